"""The answer and the ways to look at it: a record, and tables, pictures and pages that are drawn
from it."""

from .densities import Densities as Densities
from .estimates import Estimate as Estimate
from .evidences import BridgeTraces as BridgeTraces
from .evidences import Comparison as Comparison
from .evidences import Evidence as Evidence
from .evidences import LadderTraces as LadderTraces
from .evidences import Part as Part
from .record import Integration as Integration
from .record import Traces as Traces
from .selection import Selection as Selection
from .sensitivities import Jackknife as Jackknife
from .sensitivities import PowerCurves as PowerCurves
from .sensitivities import Sensitivities as Sensitivities
