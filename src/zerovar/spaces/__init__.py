"""Spaces: where draws live, which scores they have, and the operator that has mean zero there.

On a manifold, and where a density may end with a positive value, Stein's identity holds for the
Langevin operators of a metric D(x) that fits the space: along a sphere it has no part across, at
the border of a box it vanishes, so that no boundary term is left. Families are the same as in Rᵈ.
They see points in coordinates x in which smooth functions of the space are smooth functions of x:
an angle is a point of the unit circle there. Where draws are whole numbers, differences take the
place of derivatives, and ratios of probabilities that of scores.
"""

from .base import REALS as REALS
from .base import SPACE as SPACE
from .base import Euclidean as Euclidean
from .base import Space as Space
from .grid import Grid as Grid
from .manifolds import Box as Box
from .manifolds import Manifold as Manifold
from .manifolds import Metric as Metric
from .manifolds import Simplex as Simplex
from .manifolds import Sphere as Sphere
from .manifolds import Torus as Torus
