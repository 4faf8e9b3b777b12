"""The control variate for each integrand: candidates, the numbers that decide, and their stack."""

from .automatic import CHOICE as CHOICE
from .automatic import LOW_EFFORT as LOW_EFFORT
from .automatic import Automatic as Automatic
from .automatic import Forms as Forms
from .automatic import choose as choose
from .defaults import polynomials as polynomials
from .policy import Policy as Policy
from .race import Known as Known
from .request import SCORE_ERROR as SCORE_ERROR
from .request import Request as Request
