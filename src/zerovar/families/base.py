"""What a family of control variates is.

A linear family has two faces: *features* φ(x, s) ∈ Rᵖ (primal) and a *Gram* k₀ = φ·φ (dual). A new family needs only
`basis` (functions u) and an `operator`; features and Gram then come by automatic differentiation, and closed forms are
overrides that the conformance tests hold to that reference. A kernel family has a Gram and no finite basis.

All methods are pure JAX functions of standardised points x (n, d) and scores s (n, d).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..operators import Operator

Points = Float[Array, "n d"]
Others = Float[Array, "m d"]


class Family(eqx.Module):
    """A set of functions g_θ with mean zero under the target."""

    @property
    def keeps_axes(self) -> bool:
        """Whether single coordinates have a meaning, so that standardisation must not mix them."""
        return False

    @property
    def sees_values(self) -> bool:
        """Whether `resolve` looks at the integrands, so that draws left out of the fit have not quite been left out."""
        return False

    def resolve(self, x: np.ndarray, values: np.ndarray) -> Family:
        """This family with all that is open chosen from the standardised fitting draws x (n, d) and integrands (n, q)."""
        return self

    def check(self, d: int) -> None:
        """Raise a ValueError if this family makes no sense in d dimensions."""

    def separated(self) -> tuple[LinearFamily | None, tuple[Family, ...]]:
        """The part that is linear in its parameters, and the parts that are not."""
        return None, (self,)

    @abstractmethod
    def describe(self) -> str:
        """A short name for tables."""

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
        """p in d dimensions, or None if only the Gram is finite."""

    @abstractmethod
    def features(self, x: Points, s: Points) -> Float[Array, "n p"]:
        """φ(x, s), scaled by the square roots of the weights, so that features · featuresᵀ is the Gram."""

    def resolve(self, x: np.ndarray, values: np.ndarray) -> LinearFamily:
        return self

    def apply(self, x: Points, s: Points, theta: Float[Array, "p q"]) -> Float[Array, "n q"]:
        """features @ theta, where there is a way to it without the features; `work` then says so."""
        return self.features(x, s) @ theta

    def work(self, d: int) -> int | None:
        """Multiplications of `apply` a draw and integrand, or None if there are no features."""
        return self.num_features(d)

    def gram(self, x: Points, s: Points, y: Others, t: Others) -> Float[Array, "n m"]:
        """k₀((x, s), (y, t))."""
        return self.features(x, s) @ self.features(y, t).T

    def split(self) -> tuple[LinearFamily | None, LinearFamily | None]:
        """The penalised part (finite weights) and the free part (infinite weights); None where there is none."""
        return self, None

    def separated(self) -> tuple[LinearFamily | None, tuple[Family, ...]]:
        return self, ()

    def on_coefficients(self, x: np.ndarray, s: np.ndarray) -> LinearFamily:
        """The same functions, as features whose plain coefficients are what `L2` penalises; x, s (m, d) serve as centres."""
        return self


class BasisFamily(LinearFamily):
    """A linear family spanned by an operator on finitely many functions."""

    operator: eqx.AbstractVar[Operator]

    @abstractmethod
    def basis(self, x: Float[Array, " d"]) -> Float[Array, "..."]:
        """All basis functions at one point: (p,) potentials, or (p, d) vector fields."""

    def features(self, x: Points, s: Points) -> Float[Array, "n p"]:
        return jax.vmap(lambda point, score: self.operator(self.basis, point, score))(x, s)


class _OfParts(Family):
    """What any sum says of its parts."""

    parts: eqx.AbstractVar[tuple[Any, ...]]

    @property
    def keeps_axes(self):
        return any(part.keeps_axes for part in self.parts)

    @property
    def sees_values(self):
        return any(part.sees_values for part in self.parts)

    def check(self, d):
        for part in self.parts:
            part.check(d)

    def describe(self):
        return " + ".join(part.describe() for part in self.parts)


class Sum(_OfParts, LinearFamily):
    """Features concatenate, Grams add; each part carries its own weight."""

    parts: tuple[LinearFamily, ...]

    def resolve(self, x, values):
        return Sum(tuple(part.resolve(x, values) for part in self.parts))

    def on_coefficients(self, x, s):
        return Sum(tuple(part.on_coefficients(x, s) for part in self.parts))

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
        return joined(penalised), joined(free)


class Ensemble(_OfParts):
    """A sum with parts that are not linear in their parameters."""

    parts: tuple[Family, ...]

    def resolve(self, x, values):
        return Ensemble(tuple(part.resolve(x, values) for part in self.parts))

    def separated(self):
        linear = tuple(part for part in self.parts if isinstance(part, LinearFamily))
        return joined(linear), tuple(part for part in self.parts if not isinstance(part, LinearFamily))


class Translates(LinearFamily):
    """Any linear family as the span of its Gram's columns at given points: g = Σ_j θ_j k₀(·, (y_j, t_j)).

    This is the paper's parametrisation of kernels, with the penalty ‖θ‖²; fewer points than draws make it an
    approximation whose size does not grow with n. `lift` (m, p) makes p features of the m columns: the inverse of a Cholesky
    factor of their own Gram makes them orthonormal in the family's space, so that ‖θ‖² is its norm.
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


def parts_of(family: Family) -> tuple[Family, ...]:
    return family.parts if isinstance(family, (Sum, Ensemble)) else (family,)


def hyper_parameters(family: Any) -> list[Any]:
    """Logarithms of all hyper-parameters: scales of kernels, weights of parts (0 for those that are absent or free)."""
    leaves = jax.tree.leaves(family)
    return [np.log(np.where(may_change, leaf, 1.0)) for leaf, may_change in zip(leaves, are_open(family), strict=True)]


def with_hyper_parameters(family: Any, logarithms: list[Any]) -> Any:
    """The family (or tuple of families) with these in place of its own; traced or not."""
    leaves, rebuild = jax.tree.flatten(family)
    numpy = jnp if any(isinstance(new, jax.core.Tracer) for new in logarithms) else np
    given = zip(leaves, are_open(family), logarithms, strict=True)
    values = [numpy.where(may_change, numpy.exp(new), leaf) for leaf, may_change, new in given]
    return jax.tree.unflatten(rebuild, values)


def are_open(family: Any) -> list[Any]:
    """Which entries of each leaf may change: not weights that say absent (0) or free (infinite), and not directions."""
    paths = jax.tree_util.tree_flatten_with_path(family)[0]
    return [(leaf > 0) & (leaf < np.inf) & (last_name(path) != "directions") for path, leaf in paths]


def last_name(path: Any) -> str:
    """The field that a leaf is kept in."""
    return getattr(path[-1], "name", "") if path else ""


def joined(parts: tuple[LinearFamily | None, ...]) -> LinearFamily | None:
    found = tuple(part for part in parts if part is not None)
    return Sum(found) if len(found) > 1 else (found[0] if found else None)
