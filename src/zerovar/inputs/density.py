"""The log density that draws were taken from, and its quantities on their natural scale."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from .integrands import (
    FEW_NUMBERS,
    ROWS,
    DrawFunction,
    InSingleOnly,
    Tree,
    describe_draw,
    entry_name,
    insist_on_double,
    leaves_by_path,
    run_or_explain,
)
from .points import Matrix, Vector
from .terms import Terms

# Points that are evaluated at once: what 200 steps of a model's loop leave then stays in a core's
# cache (garch11 takes 3.0 us a point, and 4.5 with 1024)
_BLOCK = 256


@runtime_checkable
class OfPoints(Protocol):
    """A number that depends on a point: from points (m, d) to (m,). Some have a gradient, from
    points to (m, d)."""

    def __call__(self, points: Matrix, /) -> Vector: ...


class Constants(NamedTuple):
    """Why the integral of a density is no evidence of a model: reasons for which it is one up to a
    constant alone, and reasons for which it means nothing."""

    relative: tuple[str, ...] = ()
    meaningless: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Density:
    """A log density and its quantities, functions of one draw (d,) on the unconstrained scale, in
    JAX. Nothing is traced before it is asked for, and everything is compiled once.

    log_density: a number, the Jacobian of the transformation in it; constants matter for evidence
        alone.
    natural: the draw on its natural scale, as functions of the user see it: a dict of named arrays,
        another tree, or an array, whose entries are x[0], x[1], …
    more: name → further functions of the draw on its natural scale.
    labels: what an entry of a named array is called.
    constants: says what is known of the constants of the log density, for evidence.
    terms: says what the log density of a model is made of; a ValueError if that cannot be told.
    """

    log_density: DrawFunction
    natural: DrawFunction
    more: Mapping[str, DrawFunction] = dataclasses.field(default_factory=dict)
    labels: Callable[[str, tuple[int, ...]], str] = entry_name
    constants: Callable[[], Constants] = Constants
    terms: Callable[[], Terms] | None = None

    def at(self, points: Matrix) -> Vector:
        """Return the log density at points (m, d)."""
        return self._log_density(points)

    def find(self, name: str, draw: Vector) -> OfPoints | None:
        """Return the function that gives a number on the natural scale by its name, such as
        theta[0]; None if there is no such. `draw` (d,) is any draw."""
        number = self._places(draw).get(name)
        return None if number is None else self._entry.with_options(number=number)

    def quantity(self, function: DrawFunction) -> OfPoints:
        """Return a function of one draw on the natural scale, to a number, as one of points."""
        return Tiled(lambda x: jnp.reshape(function(self.natural(x)), ()).astype(float))

    def evaluate(
        self, name: str, function: DrawFunction, draws: Matrix
    ) -> tuple[Vector, OfPoints | None]:
        """Return what `quantity` gives at draws (n, d), and the quantity itself; no such where the
        function runs in single precision alone. An error says what is wrong with the function, and
        what there is."""
        at = self.quantity(function)

        def run() -> tuple[Vector, OfPoints | None]:
            try:
                return at(draws), at
            except InSingleOnly as single:
                return single.found, None

        looks = describe_draw(_shapes(self.natural, draws[0]))
        instead = "its values at the draws"
        return run_or_explain(name, run, f", {looks}", instead, lambda _, run: run())

    def _places(self, draw: Vector) -> dict[str, int]:
        """The names of all numbers on the natural scale, and their places."""
        if "_names" not in vars(self):
            shapes = _shapes(self._arrays, draw)
            names = [
                self.labels(name, index) if index else name
                for name, leaf in shapes.items()
                for index in np.ndindex(leaf.shape)
            ]
            vars(self)["_names"] = {name: k for k, name in enumerate(names)}
        return vars(self)["_names"]

    def _arrays(self, x: jax.Array) -> dict[str, Any]:
        natural = self.natural(x)
        found = {name or "x": leaf for name, leaf in leaves_by_path(natural).items()}
        found |= {name: jnp.asarray(each(natural)) for name, each in self.more.items()}
        return dict(sorted(found.items()))  # as JAX gives dicts back

    @cached_property
    def _log_density(self) -> OfPoints:
        return Tiled(lambda x: jnp.reshape(self.log_density(x), ()))

    @cached_property
    def _entry(self) -> Any:
        def entry(x: jax.Array, number: Any) -> jax.Array:
            arrays = self._arrays(x).values()
            return jnp.concatenate([jnp.ravel(one).astype(float) for one in arrays])[number]

        return Tiled(entry)


def _shapes(function: DrawFunction, draw: Vector) -> Tree:
    """What a function of one draw gives, by shapes alone."""
    point = np.asarray(draw, np.float64)
    try:
        return insist_on_double(lambda: jax.eval_shape(function, point))
    except InSingleOnly as single:  # of the same shapes
        return single.found


class Tiled:
    """A function of one draw at any number of points, and its gradient there: one program each.
    Most give a number."""

    def __init__(self, function: Callable[..., Tree], **options: Any):
        self.function, self.options = function, options
        self._programs: dict[str, Any] = {}
        self._single: list[InSingleOnly] = []

    def with_options(self, **options: Any) -> Tiled:
        """Return the same with some of its arguments given; programs are shared."""
        other = Tiled(self.function, **options)
        other._programs, other._single = self._programs, self._single
        return other

    def __call__(self, points: Matrix) -> np.ndarray:
        return self._at("value", self.function, points)

    def gradient(self, points: Matrix) -> Matrix:
        """Return the gradients at points (m, d)."""
        return self._at("gradient", jax.grad(self.function), points)

    def _at(self, name: str, function: Callable[..., Tree], points: Matrix) -> np.ndarray:
        def run() -> np.ndarray:
            if name not in self._programs:
                like = jax.eval_shape(partial(function, **self.options), points[0])
                rows = min(FEW_NUMBERS // max(points.shape[1], like.size), 4 * ROWS)
                most = _BLOCK * max(rows // _BLOCK, 1)
                self._programs[name] = most, jax.jit(partial(_in_blocks, function))
            most, program = self._programs[name]
            found = []
            for first in range(0, len(points), most):
                rows = points[first : first + most]
                padding = np.broadcast_to(points[0], (most - len(rows), points.shape[1]))
                blocks = -(-len(rows) // _BLOCK)
                one = program(np.concatenate([rows, padding]), blocks, **self.options)
                found.append(np.asarray(one, np.float64)[: len(rows)])
            return np.concatenate(found)

        if self._single:
            raise self._single[0]
        try:
            return insist_on_double(run)
        except InSingleOnly as failure:
            self._single.append(failure)  # seven digits are too few along lines: not tried again
            raise


def _in_blocks(
    function: Callable[..., Tree], points: jax.Array, blocks: jax.Array, **options: Any
) -> jax.Array:
    """A function of one draw at the points of the first so many blocks, one block at a time."""
    at = jax.vmap(partial(function, **options))

    def step(block: Any, found: jax.Array) -> jax.Array:
        start = block * _BLOCK
        new = at(jax.lax.dynamic_slice_in_dim(points, start, _BLOCK))
        return jax.lax.dynamic_update_slice_in_dim(found, new, start, 0)

    like = jax.eval_shape(at, points[:_BLOCK])
    blank = jnp.zeros((len(points), *like.shape[1:]), like.dtype)
    return jax.lax.fori_loop(0, blocks, step, blank)
