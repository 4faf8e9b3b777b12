"""What is minimised over θ and the intercept c.

    LeastSquares   (1/m) Σ (f − g_θ − c)² + Σ strength · Ω(θ)
    Variance       (1/(m−1)) Σ (f − g_θ − mean)² + Σ strength · Ω(θ)

    SpectralVariance   the same with the asymptotic variance of the chain's mean in place of the
    variance

With probabilities p_i in place of 1/m (importance weights, merged duplicates) the second divides by
1 − Σp². So for a linear family `Variance` with strength λ has the minimiser of `LeastSquares` with
strength λ(1 − Σp²) = λ(m−1)/m.
"""

import math
from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import numpy as np

from .arguments import NOT_NEGATIVE, instance, number, several, takes, whole
from .io.archive import Storable


class Penalty(Storable, eqx.Module):
    """A penalty on θ with its strength."""

    strength: Any  # float64 leaf

    @takes(strength=NOT_NEGATIVE)
    def __init__(self, strength: float):
        self.strength = np.asarray(strength, dtype=np.float64)


class Ridge(Penalty):
    """The squared norm of g in the family's space: Σ θ²/weight on features, θᵀKθ on kernel
    translates."""


class L2(Penalty):
    """‖θ‖² on the coefficients themselves (the paper's Ω): of the features, or of the m translates
    of a kernel."""


class L1(Penalty):
    """Σ |θ_j| · sd(feature j): sparse, on features brought to unit variance. Needs a family with
    features."""


class Magnitude(Penalty):
    """The mean of g² over the draws: a penalty on the function itself, for families without a norm
    of their own (networks)."""


_ONE_OR_MORE = "Ridge(λ), L2(λ), L1(λ), Magnitude(λ) or a tuple of these"
_PENALTIES = several(instance(Penalty, _ONE_OR_MORE), _ONE_OR_MORE)


class Objective(Storable, eqx.Module):
    """A mean of squares plus penalties.

    needs_order: whether it looks at the order of the chain, as a criterion of moving sums of
        features.
    pairwise: whether it is a mean over pairs of draws, in which no intercept stands.
    """

    needs_order: ClassVar[bool] = False
    pairwise: ClassVar[bool] = False
    penalties: eqx.AbstractVar[tuple[Penalty, ...]]
    intercept_variance: eqx.AbstractVar[float]

    @abstractmethod
    def scale(self, probabilities: np.ndarray) -> float:
        """Return what turns a strength into that of the equivalent least-squares problem."""

    def window_of(self, draws: int) -> int:
        """Return how many consecutive residuals of a chain of so many draws are summed before they
        are squared."""
        return 1

    @property
    def kinds(self) -> tuple[type[Penalty], ...]:
        """Kinds of penalty with a positive strength, each once."""
        return tuple(dict.fromkeys(type(p) for p in self.penalties if float(p.strength)))

    def strength(self, kind: type[Penalty], probabilities: np.ndarray) -> float:
        """Return the total strength of one kind of penalty, for least squares with these
        probabilities (m,)."""
        return self.scale(probabilities) * self.total(kind)

    def total(self, kind: type[Penalty]) -> float:
        """Return the total strength of one kind of penalty in this objective itself."""
        return float(sum(float(p.strength) for p in self.penalties if isinstance(p, kind)))


class LeastSquares(Objective):
    """Least squares with a free intercept; `penalties` is one penalty or several.

    A finite `intercept_variance` σ² penalises c²/σ² along with the `Ridge` (control functionals
    with finite σ); the default, infinite, leaves c free.
    """

    penalties: tuple[Penalty, ...]
    intercept_variance: float = eqx.field(static=True)

    @takes(
        penalties=_PENALTIES,
        intercept_variance=number("positive, inf for a free intercept", lambda x: x > 0),
    )
    def __init__(self, penalties: Any = (), intercept_variance: float = math.inf):
        self.penalties, self.intercept_variance = penalties, intercept_variance

    def scale(self, probabilities):
        return 1.0


class Variance(Objective):
    """The sample variance of f − g, which needs no intercept; c is then the mean of f − g over the
    fitting draws."""

    pairwise: ClassVar[bool] = True
    penalties: tuple[Penalty, ...]
    intercept_variance: float = eqx.field(static=True)

    @takes(penalties=_PENALTIES)
    def __init__(self, penalties: Any = ()):
        self.penalties, self.intercept_variance = penalties, math.inf

    def scale(self, probabilities):
        return 1.0 - float(np.sum(probabilities**2))


class SpectralVariance(Objective):
    """The asymptotic variance of the mean of f − g over the chain, estimated with Bartlett's lag
    window.

    For a slow chain the best g for independent draws is not the best for its mean: this weighs a
    residual by what follows it. Up to a factor the criterion is the mean square of moving sums of
    `window` consecutive residuals. By default the window is the square root of the chain's length,
    at most a tenth of it. For linear families with features, by `Exact`; there is no closed-form
    leave-out, so `estimate` cross-fits. The penalty, if any, is a `Ridge`.
    """

    needs_order: ClassVar[bool] = True
    penalties: tuple[Penalty, ...]
    window: int | None = eqx.field(static=True)
    intercept_variance: float = eqx.field(static=True)

    @takes(window=whole(1), penalties=_PENALTIES)
    def __init__(self, window: int | None = None, penalties: Any = ()):
        self.window, self.penalties, self.intercept_variance = window, penalties, math.inf
        if others := [kind.__name__ for kind in self.kinds if not issubclass(kind, Ridge)]:
            raise ValueError(f"SpectralVariance takes a Ridge penalty; got {', '.join(others)}")

    def scale(self, probabilities):
        return 1.0

    def window_of(self, draws):
        if self.window is None:
            return min(math.isqrt(draws), max(draws // 10, 1))
        if self.window > draws:
            raise ValueError(
                f"SpectralVariance: the window of {self.window} draws is longer than the chain, "
                f"{draws}"
            )
        return self.window
