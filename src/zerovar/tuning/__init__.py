"""Hyper-parameters chosen from the draws: criteria, descent, grids, and the call that users
make."""

from .criteria import CrossValidation as CrossValidation
from .criteria import Differentiable as Differentiable
from .criteria import LeaveOneOut as LeaveOneOut
from .criteria import MarginalLikelihood as MarginalLikelihood
from .descent import RIDGES as RIDGES
from .descent import Descent as Descent
from .descent import DescentEnd as DescentEnd
from .descent import DescentStart as DescentStart
from .descent import Tuned as Tuned
from .tuned import tune as tune
