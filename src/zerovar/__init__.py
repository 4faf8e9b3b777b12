"""Control variates by Stein's method: draws and scores in, means with far smaller standard errors
out."""

from . import kernels, spaces
from .adapters import (
    from_arviz,
    from_blackjax,
    from_bridgestan,
    from_cmdstan,
    from_log_density,
    from_numpyro,
    from_pymc,
)
from .choice import Automatic
from .diagnostics import Check
from .distributions import density, interval, quantile
from .environment import __version__ as __version__
from .errors import (
    NumericalError,
    NumericalWarning,
    SampleWarning,
    ScoreWarning,
    ZerovarWarning,
)
from .estimation import check, estimate
from .evidences import Ladder, evidence, ladder
from .families import (
    MLP,
    Anisotropic,
    BasisFamily,
    Kernel,
    LatticeField,
    LatticeMLP,
    LinearFamily,
    Network,
    Polynomial,
    ResNet,
    RidgeFunctions,
    SparsePolynomial,
    Wavelets,
    metrics,
)
from .fitting import Fitted, fit
from .inference.splits import cross_fit, holdout, in_sample
from .inputs.coordinates import Coordinates, Coupling
from .inputs.sample import Posterior, Sample
from .integration import integrate
from .io.archive import load
from .io.programs import keep_compiled
from .objectives import L1, L2, LeastSquares, Magnitude, Ridge, SpectralVariance, Variance
from .operators import Langevin, Operator, ScalarLangevin
from .output import Comparison, Densities, Estimate, Evidence, Selection, Sensitivities, plots
from .probabilities import probability
from .sensitivities import sensitivity
from .solvers import CG, SGD, DualSGD, Exact, Nystrom, Prepared, Screening, Solver, Spectral
from .solvers.exact import centres
from .solvers.training import schedules
from .summaries import summary
from .tuning import CrossValidation, LeaveOneOut, MarginalLikelihood, Tuned, tune

__all__ = [
    "CG",
    "L1",
    "L2",
    "MLP",
    "SGD",
    "Anisotropic",
    "Automatic",
    "BasisFamily",
    "Check",
    "Comparison",
    "Coordinates",
    "Coupling",
    "CrossValidation",
    "Densities",
    "DualSGD",
    "Estimate",
    "Evidence",
    "Exact",
    "Fitted",
    "Kernel",
    "Ladder",
    "Langevin",
    "LatticeField",
    "LatticeMLP",
    "LeastSquares",
    "LeaveOneOut",
    "LinearFamily",
    "Magnitude",
    "MarginalLikelihood",
    "Network",
    "NumericalError",
    "NumericalWarning",
    "Nystrom",
    "Operator",
    "Polynomial",
    "Posterior",
    "Prepared",
    "ResNet",
    "Ridge",
    "RidgeFunctions",
    "Sample",
    "SampleWarning",
    "ScalarLangevin",
    "ScoreWarning",
    "Screening",
    "Selection",
    "Sensitivities",
    "Solver",
    "SparsePolynomial",
    "Spectral",
    "SpectralVariance",
    "Tuned",
    "Variance",
    "Wavelets",
    "ZerovarWarning",
    "centres",
    "check",
    "cross_fit",
    "density",
    "estimate",
    "evidence",
    "fit",
    "from_arviz",
    "from_blackjax",
    "from_bridgestan",
    "from_cmdstan",
    "from_log_density",
    "from_numpyro",
    "from_pymc",
    "holdout",
    "in_sample",
    "integrate",
    "interval",
    "keep_compiled",
    "kernels",
    "ladder",
    "load",
    "metrics",
    "plots",
    "probability",
    "quantile",
    "schedules",
    "sensitivity",
    "spaces",
    "summary",
    "tune",
]


def __dir__() -> list[str]:
    return list(__all__)
