"""Families of control variates."""

from .base import BasisFamily as BasisFamily
from .base import Family as Family
from .base import LinearFamily as LinearFamily
from .base import Sum as Sum
from .base import Translates as Translates
from .kernel import Kernel as Kernel
from .polynomial import Polynomial as Polynomial
