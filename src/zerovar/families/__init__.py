"""Families of control variates."""

from . import metrics as metrics
from .anisotropic import Anisotropic as Anisotropic
from .base import FAMILY as FAMILY
from .base import LINEAR as LINEAR
from .base import BasisFamily as BasisFamily
from .base import Ensemble as Ensemble
from .base import Family as Family
from .base import LinearFamily as LinearFamily
from .base import MonomialFamily as MonomialFamily
from .base import NonlinearFamily as NonlinearFamily
from .base import Sum as Sum
from .base import join as join
from .kernel import Kernel as Kernel
from .lattice import LatticeField as LatticeField
from .lattice import LatticeMLP as LatticeMLP
from .network import MLP as MLP
from .network import Network as Network
from .network import ResNet as ResNet
from .polynomial import Polynomial as Polynomial
from .ridge_functions import RidgeFunctions as RidgeFunctions
from .settling import settle as settle
from .sparse_polynomial import SparsePolynomial as SparsePolynomial
from .wavelets import Wavelets as Wavelets
