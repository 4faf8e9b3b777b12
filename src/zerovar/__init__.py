"""Control variates by Stein's method: draws and scores in, means with far smaller standard errors out."""

from . import kernels as kernels
from .checks import check as check
from .errors import NumericalError as NumericalError
from .errors import NumericalWarning as NumericalWarning
from .errors import SampleWarning as SampleWarning
from .errors import ScoreWarning as ScoreWarning
from .errors import ZerovarWarning as ZerovarWarning
from .estimate import estimate as estimate
from .families import Kernel as Kernel
from .families import Polynomial as Polynomial
from .fitting import Fitted as Fitted
from .fitting import fit as fit
from .loading import load as load
from .objectives import L1 as L1
from .objectives import L2 as L2
from .objectives import LeastSquares as LeastSquares
from .objectives import Ridge as Ridge
from .objectives import Variance as Variance
from .operators import Langevin as Langevin
from .operators import ScalarLangevin as ScalarLangevin
from .result import Estimate as Estimate
from .sample import Sample as Sample
from .solvers import Exact as Exact
from .splits import cross_fit as cross_fit
from .splits import holdout as holdout
from .splits import in_sample as in_sample
