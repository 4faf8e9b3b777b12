"""What a family of control variates is.

A linear family has two faces: *features* φ(x, s) ∈ Rᵖ (primal) and a *Gram* k₀ = φ·φ (dual). A new
family needs only `basis` (functions u) and an `operator`; features and Gram then come by automatic
differentiation, and closed forms are overrides that the conformance tests hold to that reference. A
kernel family has a Gram and no finite basis.

All methods are pure JAX functions of standardised points x (n, d) and scores s (n, d).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..arguments import instance
from ..inputs.points import Keeps
from ..io.archive import Storable
from ..operators import Operator
from ..spaces import Space

Nd = Float[Array, "n d"]
Md = Float[Array, "m d"]
Nk = Float[Array, "n k"]  # what is known of points: scores, or weights of k neighbours
Mk = Float[Array, "m k"]


class Family(Storable, eqx.Module):
    """A set of functions g_θ with mean zero under the target."""

    @property
    def keeps_axes(self) -> bool:
        """Whether single coordinates have a meaning, so that standardisation must not mix them."""
        return False

    @property
    def keeps(self) -> Keeps:
        """What standardisation must leave as it is."""
        return Keeps.AXES if self.keeps_axes else Keeps.NOTHING

    @property
    def sees_values(self) -> bool:
        """Whether `resolve` looks at the integrands, so that draws left out of the fit have not
        quite been left out."""
        return False

    @property
    def chooses_monomials(self) -> bool:
        """Whether the fit chooses a few of its monomials, for each integrand by itself."""
        return False

    def resolve(self, x: np.ndarray, values: np.ndarray) -> Family:
        """Return this family with all that is open chosen from the standardised fitting draws x (n,
        d) and integrands (n, q)."""
        return self

    def check(self, d: int) -> None:
        """Raise a ValueError if this family makes no sense in d dimensions."""

    def check_space(self, space: Space) -> None:
        """Raise a ValueError if this family makes no sense in a space other than Rᵈ."""

    def separate(self) -> tuple[LinearFamily | None, tuple[Family, ...]]:
        """Return the part that is linear in its parameters, and the parts that are not."""
        return None, (self,)

    @abstractmethod
    def describe(self) -> str:
        """Return a short name for tables."""

    def __add__(self, other: Family) -> Family:
        if not isinstance(other, Family):
            return NotImplemented
        parts = (*parts_of(self), *parts_of(other))
        linear = tuple(part for part in parts if isinstance(part, LinearFamily))
        return Sum(linear) if len(linear) == len(parts) else Ensemble(parts)


class LinearFamily(Family):
    """A family that is linear in θ. A sum of such families is one too."""

    @abstractmethod
    def num_features(self, d: int) -> int | None:
        """Return p in d dimensions, or None if only the Gram is finite."""

    @abstractmethod
    def features(self, x: Nd, s: Nk) -> Float[Array, "n p"]:
        """Return φ(x, s), each feature times the square root of its weight, so that features ·
        featuresᵀ is the Gram."""

    def resolve(self, x: np.ndarray, values: np.ndarray) -> LinearFamily:
        return self

    def apply(self, x: Nd, s: Nk, theta: Float[Array, "p q"]) -> Float[Array, "n q"]:
        """Return features @ theta. A family that has a way to it without the features overrides
        this, and says in `work` what that costs."""
        return self.features(x, s) @ theta

    def work(self, d: int) -> int | None:
        """Return the multiplications of `apply` a draw and integrand, or None without features."""
        return self.num_features(d)

    def gram(self, x: Nd, s: Nk, y: Md, t: Mk) -> Float[Array, "n m"]:
        """Return k₀((x, s), (y, t))."""
        return self.features(x, s) @ self.features(y, t).T

    def split(self) -> tuple[LinearFamily | None, LinearFamily | None]:
        """Return the penalised part (finite weights) and the free part (infinite weights); None
        where there is none."""
        return self, None

    def separate(self) -> tuple[LinearFamily | None, tuple[Family, ...]]:
        return self, ()

    def split_by_features(self, d: int) -> tuple[LinearFamily | None, LinearFamily | None]:
        """Return the part that has features in d dimensions, and the part that has only a Gram;
        None where there is none."""
        return (None, self) if self.num_features(d) is None else (self, None)

    def unweighted(self) -> LinearFamily:
        """Return the same functions with unit weights, those that are infinite or zero as they are.

        A penalty on the coefficients themselves (`L2`) asks for it: a family with weights has it.
        """
        return self

    @property
    def length_scale_power(self) -> float:
        """The power of its own length-scales with which its Gram shrinks as they grow: tuning holds
        weights against that."""
        return 0.0

    def coefficient_features(self, x: np.ndarray, s: np.ndarray) -> LinearFamily:
        """Return features whose coefficients `L2` penalises: unit weights, and translates at x, s
        (m, d) in place of what has only a Gram."""
        finite, infinite = self.unweighted().split_by_features(x.shape[1])
        found = join((finite, None if infinite is None else infinite.translates(x, s)))
        assert found is not None
        return found

    def translates(self, points: Any, scores: Any, lift: Any = None) -> Translates:
        """Return the span of the Gram's columns at some points (m, d), a family with features."""
        return Translates(self, points, scores, lift)

    @property
    def translated(self) -> Translates | None:
        """This family, if it is a span of translates: its features are columns of another family's
        Gram."""
        return None


FAMILY = instance(Family, "a family such as Polynomial(2) or Kernel()")
LINEAR = instance(LinearFamily, "a family that is linear in its parameters, such as Kernel()")


class NonlinearFamily(Family):
    """A family whose parameters are trained: a module g(x, s) with arrays inside."""

    # random directions an estimate of g takes while training; 0 if it is exact
    probes: eqx.AbstractVar[int]

    @abstractmethod
    def build(self, d: int, q: int, rng: np.random.Generator) -> NonlinearFamily:
        """Return it with parameters in double precision, for q integrands in d dimensions."""

    @abstractmethod
    def perturb(self, rng: np.random.Generator) -> NonlinearFamily:
        """Return it with typical parameters in place of those that training starts from."""

    @abstractmethod
    def __call__(self, x: Nd, s: Nk) -> Float[Array, "n q"]:
        """Return g, exact."""

    @abstractmethod
    def probe(
        self, x: Nd, s: Nk, key: PRNGKeyArray
    ) -> tuple[Float[Array, "n q"], Float[Array, "n q"]]:
        """Return two independent unbiased estimates of g."""

    @abstractmethod
    def floats(self, d: int) -> int:
        """Return about how many numbers g at one point holds in memory at once."""

    @property
    def starts_at_zero(self) -> bool:
        """Whether g is zero with the parameters that it was built with."""
        return False


class BasisFamily(LinearFamily):
    """A linear family spanned by an operator on finitely many functions."""

    operator: eqx.AbstractVar[Operator]

    @abstractmethod
    def basis(self, x: Float[Array, " d"]) -> Float[Array, "..."]:
        """Return all basis functions at one point, each times the square root of its weight: (p,)
        potentials, or (p, d) vector fields."""

    def features(self, x: Nd, s: Nk) -> Float[Array, "n p"]:
        return jax.vmap(lambda point, score: self.operator(self.basis, point, score))(x, s)


class MonomialChoice(NamedTuple):
    """What a fit that chooses monomials must know: their highest degree, the most of them an
    integrand may have besides linear ones and squares, and the prior variance of a coefficient."""

    degree: int
    most: int | None
    weight: float


class MonomialFamily(LinearFamily):
    """A linear family of monomials, rows of `families/monomials.py`; a fit may choose a few."""

    @property
    @abstractmethod
    def choice(self) -> MonomialChoice | None:
        """What there is to choose, or None where the monomials are known."""

    @abstractmethod
    def with_monomials(self, monomials: np.ndarray) -> MonomialFamily:
        """Return the same family with these monomials (p, degree)."""

    def check_space(self, space):
        refuse_space(self, space)

    @property
    def chooses_monomials(self):
        return self.choice is not None

    @property
    def sees_values(self):
        return self.chooses_monomials


def refuse_space(family: Family, space: Space) -> None:
    """Raise a ValueError: this family maps points linearly, or has an operator that it cannot
    change."""
    raise ValueError(
        f"{family.describe()} is for draws in Rᵈ, and these live on a {space.describe()}. Use a "
        "Polynomial, a Kernel, a Network, or a sum of these"
    )


class _OfParts(Family):
    """A sum, which asks its parts."""

    parts: tuple[Any, ...]

    @property
    def keeps_axes(self):
        return any(part.keeps_axes for part in self.parts)

    @property
    def keeps(self):
        return max(part.keeps for part in self.parts)

    @property
    def sees_values(self):
        return any(part.sees_values for part in self.parts)

    def check(self, d):
        for part in self.parts:
            part.check(d)

    def resolve(self, x, values):
        return type(self)(tuple(part.resolve(x, values) for part in self.parts))

    def describe(self):
        return " + ".join(part.describe() for part in self.parts)


class Sum(_OfParts, LinearFamily):
    """Features concatenate, Grams add; each part carries its own weight."""

    parts: tuple[LinearFamily, ...]

    def num_features(self, d):
        sizes = [part.num_features(d) for part in self.parts]
        return None if None in sizes else sum(sizes)

    def features(self, x, s):
        return jnp.concatenate([part.features(x, s) for part in self.parts], axis=1)

    def apply(self, x, s, theta):
        sizes = [part.num_features(x.shape[1]) or 0 for part in self.parts]
        shares = jnp.split(theta, np.cumsum(sizes)[:-1])
        return sum(part.apply(x, s, share) for part, share in zip(self.parts, shares, strict=True))

    def work(self, d):
        found = [part.work(d) for part in self.parts]
        return None if None in found else sum(found)

    def gram(self, x, s, y, t):
        return sum(part.gram(x, s, y, t) for part in self.parts)

    def split(self):
        penalised, free = zip(*(part.split() for part in self.parts), strict=True)
        return join(penalised), join(free)

    def split_by_features(self, d):
        finite, infinite = zip(*(part.split_by_features(d) for part in self.parts), strict=True)
        return join(finite), join(infinite)

    def unweighted(self):
        return Sum(tuple(part.unweighted() for part in self.parts))


class Ensemble(_OfParts):
    """A sum with parts that are not linear in their parameters."""

    parts: tuple[Family, ...]

    def separate(self):
        linear = [part for part in self.parts if isinstance(part, LinearFamily)]
        others = [part for part in self.parts if not isinstance(part, LinearFamily)]
        return join(tuple(linear)), tuple(others)


class Wrapper(LinearFamily):
    """A linear family in other coordinates: parts of it are parts of the family inside, wrapped in
    the same way."""

    family: eqx.AbstractVar[LinearFamily]

    def check_space(self, space):
        refuse_space(self, space)

    @abstractmethod
    def wrap(self, family: LinearFamily) -> LinearFamily:
        """Return another family in the same coordinates."""

    def inner_dimension(self, d: int) -> int:
        """Return the number of coordinates that the family inside sees."""
        return d

    def split(self):
        return self._each(self.family.split())

    def split_by_features(self, d):
        return self._each(self.family.split_by_features(self.inner_dimension(d)))

    def unweighted(self):
        return self.wrap(self.family.unweighted())

    def _each(self, parts):
        return tuple(None if part is None else self.wrap(part) for part in parts)


class Translates(LinearFamily):
    """Any linear family as the span of its Gram's columns at given points: g = Σ_j θ_j k₀(·, (y_j,
    t_j)).

    This is the paper's parametrisation of kernels, with the penalty ‖θ‖²; fewer points than draws
    make it an approximation whose size does not grow with n. `lift` (m, p) makes p features of the
    m columns: the inverse of a Cholesky factor of their own Gram makes them orthonormal in the
    family's space, so that ‖θ‖² is its norm.
    """

    family: LinearFamily
    points: Any  # (m, d)
    scores: Any  # (m, d)
    lift: Any = None  # (m, p)

    def describe(self):
        return f"{self.family.describe()} at {len(self.points)} points"

    def num_features(self, d):
        return len(self.points) if self.lift is None else self.lift.shape[1]

    def features(self, x, s):
        columns = self.family.gram(x, s, self.points, self.scores)
        return columns if self.lift is None else columns @ self.lift

    @property
    def translated(self):
        return self


def parts_of(family: Family) -> tuple[Family, ...]:
    """Return the summands of a sum, or the family itself."""
    return family.parts if isinstance(family, (Sum, Ensemble)) else (family,)


def join(parts: tuple[LinearFamily | None, ...]) -> LinearFamily | None:
    """Return the sum of families, in one level, or None if there are none."""
    found = tuple(
        inner
        for part in parts
        if part is not None
        for inner in (part.parts if isinstance(part, Sum) else (part,))
    )
    return Sum(found) if len(found) > 1 else (found[0] if found else None)
