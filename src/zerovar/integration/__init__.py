"""From a log density to its means, without a chain: modes, importance sampling, and control
variates on the weighted points."""

from .means import integrate as integrate
