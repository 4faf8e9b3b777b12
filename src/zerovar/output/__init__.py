"""The answer and the ways to look at it: a record, and tables, pictures and pages that are drawn
from it."""

from .densities import Densities as Densities
from .estimates import Estimate as Estimate
from .record import Integration as Integration
from .record import Traces as Traces
from .selection import Selection as Selection
