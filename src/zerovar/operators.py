"""Stein operators: from a function u to one whose mean under the target is zero.

An operator sees the target only through what is known at a point x, of which the score s = ∇log
π(x) is the usual kind. Families apply it to their functions u: vector fields (..., d) or potentials
(...), one or a stack of them. Any subclass of `Operator` serves; closed forms are overrides that
the tests hold to its automatic differentiation.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .arguments import Requirement, instance, read_numbers, takes
from .io.archive import Storable

Point = Float[Array, " d"]
Scores = Float[Array, " k"]
Field = Callable[[Point], Float[Array, "... d"]]
Potential = Callable[[Point], Float[Array, "..."]]


class Operator(Storable, eqx.Module):
    """What makes a control variate of a function: L u has mean zero under the target.

    on_fields: whether u is a vector field (d,), and not a potential ().

    A subclass gives `__call__` and `on_fields`. `prepare` and `apply` part what depends on the
    point alone from what depends on u: Gram matrices prepare each point once.
    """

    on_fields: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, u: Any, x: Point, s: Scores) -> Float[Array, "..."]:
        """Return (L u)(x), for u of shape (..., d) or (...)."""

    def prepare(self, x: Point, s: Scores) -> Any:
        """Return what `apply` needs of the point besides x: any arrays."""
        return s

    def apply(self, u: Any, x: Point, known: Any) -> Float[Array, "..."]:
        """Return (L u)(x) from what `prepare` returned."""
        return self(u, x, known)

    def moments(self, x: Point, s: Scores) -> tuple[Any, Any]:
        """Return L x (d,), and Γ with L(φ²) = 2φ Lφ + 2ξ·Γξ for any φ = ξ·x: half of the mean
        squares of the moves behind L, a number, (d,) or (d, d), or None for the identity."""

        def products(at: Point) -> Array:
            away = at - x
            return jnp.concatenate([away, jnp.ravel(jnp.outer(away, away)) / 2])

        first, second = jnp.split(self(products, x, s), [len(x)])
        return first, jnp.reshape(second, (len(x), -1))

    def resolve(self, x: Float[np.ndarray, "n d"], s: Float[np.ndarray, "n k"]) -> Operator:
        """Return this operator with all that is open chosen from standardised fitting draws and
        scores, or raise a ValueError if it makes no sense there."""
        return self

    def build(self, d: int, rng: np.random.Generator) -> Operator:
        """Return it with the parameters that training starts from, where it has any."""
        return self

    def describe(self) -> str:
        """Return a short name for tables."""
        return type(self).__name__


def _read_metric(value: Any) -> Any:
    if callable(value):
        return value
    found = read_numbers(value)
    if not np.isfinite(found).all() or found.ndim > 2 or found.size == 0:
        raise ValueError("no metric")
    if found.ndim == 2 and not np.array_equal(found, found.T):
        raise ValueError("not symmetric")
    values = np.linalg.eigvalsh(found) if found.ndim == 2 else found
    if values.min() <= 0:
        raise ValueError("not positive")
    return found


METRIC = Requirement(
    "a positive number, one a coordinate (d,), a symmetric positive definite matrix (d, d), or a "
    "function of a point that returns one of these",
    _read_metric,
)


class Diffusion(Operator):
    """The Langevin operators: they weigh directions by D(x), which is the identity by default.

    D: a positive number, one for each coordinate, a symmetric positive definite matrix, or a
        function of a point (d,) that returns one of these: written in JAX, or an Equinox module
        whose arrays `SGD` trains. Points are those that families see, standardised unless it is
        said otherwise. D may not grow so fast that D π has a limit other than zero far out.
    """

    D: Any = None

    @takes(D=METRIC)
    def __init__(self, D: Any = None):
        self.D = D

    @property
    def is_plain(self) -> bool:
        """Whether D is the identity, for which families have closed forms."""
        return self.D is None

    def metric(self, x: Point) -> Any:
        """Return D at one point: a number, (d,) or (d, d)."""
        return self.D(x) if callable(self.D) else jnp.asarray(self.D)

    def prepare(self, x, s):
        """Return D and the drift b = ∇·D + D s at one point; D is None for the identity."""
        if self.is_plain:
            return None, s
        D = self.metric(x)
        drift = s if getattr(self.D, "gives_drift", False) else weigh(D, s)
        if callable(self.D):
            slopes = jax.jacfwd(self.metric)(x)
            sums = {1: "k->k", 2: "kk->k", 3: "ijj->i"}
            drift = drift + jnp.einsum(sums[slopes.ndim], slopes)
        return D, drift

    def __call__(self, u, x, s):
        return self.apply(u, x, self.prepare(x, s))

    def moments(self, x, s):
        D, drift = self.prepare(x, s)
        return drift, D

    def resolve(self, x, s):
        if hasattr(self.D, "resolve"):
            return type(self)(self.D.resolve(x, s))
        if hasattr(self.D, "build"):
            return self  # trained, and positive by construction
        if callable(self.D):
            _check_metric(self, x)
        elif self.D is not None and np.ndim(self.D) and len(self.D) != x.shape[1]:
            raise ValueError(
                f"{self.describe()}: D has {len(self.D)} coordinates, and the draws that families "
                f"see have {x.shape[1]}"
            )
        return self

    def build(self, d, rng):
        build = getattr(self.D, "build", None)
        return self if build is None else type(self)(build(d, rng))

    def describe(self):
        if self.is_plain:
            return super().describe()
        kinds = ("a number", "diagonal", "a matrix")
        name = getattr(self.D, "describe", None)
        kind = (
            kinds[np.ndim(self.D)] if not callable(self.D) else "D(x)" if name is None else name()
        )
        return f"{super().describe()}({kind})"


class Langevin(Diffusion):
    """Vector fields: (Lu)(x) = ∇·(D u) + (D u)·s."""

    on_fields = True

    def apply(self, u: Field, x, known):
        D, drift = known
        slopes = jax.jacfwd(u)(x)  # (..., d, d)
        return _trace(D, slopes) + u(x) @ drift


class ScalarLangevin(Diffusion):
    """Potentials: (Lu)(x) = ∇·(D∇u) + (D∇u)·s, the Langevin operator on the field ∇u."""

    def apply(self, u: Potential, x, known):
        return Langevin.apply(self, jax.jacfwd(u), x, known)  # type: ignore[arg-type]


class Barker(Operator):
    """Potentials on points that have neighbours: (Lu)(x) = Σ_k w_k (u(x_k) − u(x)) with Barker's
    weights w_k = p(x_k) / (p(x) + p(x_k)), which are the scores that families see.

    It is the generator of a chain that is reversible, so that L u has mean zero. With `unit` (d,)
    the neighbours of x are a step up in each coordinate, x + unit_j e_j, and then a step down in
    each; without, x with the sign of each coordinate changed.
    """

    unit: np.ndarray | None = None

    def __init__(self, unit: Any = None):
        self.unit = unit

    @property
    def flips(self) -> bool:
        """Whether coordinates are ±1, and neighbours differ in the sign of one."""
        return self.unit is None

    def moves(self, x: Float[Array, "... d"]) -> Float[Array, "... k"]:
        """Return by how much the j-th neighbour differs from x, in coordinate j mod d."""
        if self.flips:
            return -2.0 * x
        unit = jnp.broadcast_to(jnp.asarray(self.unit, x.dtype), x.shape)
        return jnp.concatenate([unit, -unit], axis=-1)

    def sum_by_coordinate(self, array: Float[Array, "... k"]) -> Float[Array, "... d"]:
        """Return the sums over the neighbours along each coordinate."""
        return array if self.flips else jnp.add(*jnp.split(array, 2, axis=-1))

    def spread_to_neighbours(self, array: Float[Array, "... d"]) -> Float[Array, "... k"]:
        """Return for each neighbour the entry of its coordinate."""
        return array if self.flips else jnp.concatenate([array, array], axis=-1)

    def __call__(self, u: Potential, x, s):
        moves = self.moves(x)
        steps = moves[:, None] * self.spread_to_neighbours(jnp.eye(len(x), dtype=x.dtype).T).T
        return jnp.tensordot(s, jax.vmap(lambda step: u(x + step))(steps) - u(x), axes=1)

    def moments(self, x, s):
        moves = self.moves(x)
        return self.sum_by_coordinate(s * moves), self.sum_by_coordinate(s * moves**2) / 2


OPERATOR = instance(Operator, "an operator such as Langevin() or ScalarLangevin()")


def weigh(D: Any, v: Float[Array, "... d"]) -> Float[Array, "... d"]:
    """Return D v, for D a number, (d,), (d, d), or None for the identity."""
    if D is None:
        return v
    return v @ D if jnp.ndim(D) == 2 else D * v


def _trace(D: Any, slopes: Float[Array, "... d d"]) -> Float[Array, "..."]:
    """Return tr(D A) for matrices A."""
    if D is None:
        return jnp.trace(slopes, axis1=-2, axis2=-1)
    if jnp.ndim(D) == 2:
        return jnp.einsum("ij,...ji->...", D, slopes)
    return jnp.sum(D * jnp.diagonal(slopes, axis1=-2, axis2=-1), axis=-1)


def _check_metric(diffusion: Diffusion, x: Float[np.ndarray, "n d"]) -> None:
    """Raise a ValueError if D is no symmetric positive semidefinite matrix at one of the draws."""
    with jax.enable_x64(True):
        try:
            found = np.asarray(jax.jit(jax.vmap(diffusion.metric))(x))
        except Exception as error:  # whatever a user's function raises
            raise ValueError(
                f"{diffusion.describe()}: D cannot be called on a point of shape ({x.shape[1]},): "
                f"{error}"
            ) from error
    d = x.shape[1]
    if found.shape[1:] not in ((), (d,), (d, d)):
        raise ValueError(
            f"{diffusion.describe()}: D must return a number, ({d},) or ({d}, {d}) at a point of "
            f"shape ({d},); got shape {found.shape[1:]}"
        )
    values = found.reshape(len(x), -1)
    if found.ndim == 3:
        if not np.allclose(found, np.swapaxes(found, 1, 2), rtol=1e-8):
            raise ValueError(f"{diffusion.describe()}: D must be symmetric at every draw")
        values = np.linalg.eigvalsh(found)
    size = np.abs(values).max(axis=1, initial=0.0)
    bad = ~(values.min(axis=1) >= -np.sqrt(np.finfo(float).eps) * size) | ~np.isfinite(size)
    if bad.any():
        raise ValueError(
            f"{diffusion.describe()}: D must be positive at every draw; at {bad.sum()} of {len(x)} "
            f"it is not, first at row {int(np.argmax(bad))}, where its least eigenvalue is "
            f"{values.min(axis=1)[np.argmax(bad)]:.3g}. Return exp(...) or a square"
        )
