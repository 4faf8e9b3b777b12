"""Stein operators, by automatic differentiation: the reference for every closed form.

An operator turns a function u into one whose mean under π is zero, using only the score s = ∇log
π(x). Both take u at one point x (d,) and may be given a stack of functions at once: u(x) of shape
(..., d) or (...).
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .arguments import instance
from .io.archive import Storable

Point = Float[Array, " d"]


class Langevin(Storable, eqx.Module):
    """Vector fields: (Lu)(x) = ∇·u(x) + u(x)·s."""

    def __call__(
        self, u: Callable[[Point], Float[Array, "... d"]], x: Point, s: Point
    ) -> Float[Array, "..."]:
        return jnp.trace(jax.jacfwd(u)(x), axis1=-2, axis2=-1) + u(x) @ s


class ScalarLangevin(Storable, eqx.Module):
    """Potentials: (Lu)(x) = Δu(x) + ∇u(x)·s, the Langevin operator on the vector field ∇u."""

    def __call__(
        self, u: Callable[[Point], Float[Array, "..."]], x: Point, s: Point
    ) -> Float[Array, "..."]:
        return Langevin()(jax.jacfwd(u), x, s)


Operator = Langevin | ScalarLangevin
OPERATOR = instance(Operator, "Langevin() or ScalarLangevin()")
