"""Families of control variates."""

from .along import Along as Along
from .base import BasisFamily as BasisFamily
from .base import Ensemble as Ensemble
from .base import Family as Family
from .base import LinearFamily as LinearFamily
from .base import Sum as Sum
from .base import Translates as Translates
from .kernel import Kernel as Kernel
from .network import MLP as MLP
from .network import Network as Network
from .network import ResNet as ResNet
from .polynomial import Polynomial as Polynomial
from .stretched import Stretched as Stretched
