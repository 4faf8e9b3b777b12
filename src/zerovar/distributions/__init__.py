"""What is said of a quantity besides its mean: quantiles, intervals, density curves."""

from .calls import density as density
from .calls import interval as interval
from .calls import quantile as quantile
