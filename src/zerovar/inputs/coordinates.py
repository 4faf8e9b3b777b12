"""The same draws in other coordinates y = T(x), with the scores that belong to them.

If x has the log density log π, then y has log π(T⁻¹(y)) − log|det J|, J the Jacobian of T at x, and
the score J⁻ᵀ(s − ∇ log|det J|). Stein's identity then holds in the coordinates y, whatever T is, as
long as it is smooth, invertible and onto all of Rᵈ. This is a map of the sample, and not a family
around families: standardisation, checks of scores and every family work on y unchanged, the
integrands at the draws stay what they are, and files of fits hold no function of a user's.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np

from ..arguments import FLAG, NAMES, OF_A_DRAW, read_whole_numbers, takes, where
from .integrands import (
    KEPT,
    ROWS,
    DrawFunction,
    map_draws,
    run_in_double,
    run_or_explain,
)
from .sample import Posterior, Sample, check_names, require_reals

# Dimensions up to which a Jacobian is formed at every draw, those of a tile of draws at once
MOST_JACOBIAN = math.isqrt(KEPT // ROWS)
# How far numbers may be apart that should be equal and have been through single precision: half of
# its digits.
CLOSE = float(np.sqrt(np.finfo(np.float32).eps))


@takes(forward=OF_A_DRAW, inverse=OF_A_DRAW, log_det=OF_A_DRAW, names=NAMES)
@dataclasses.dataclass(frozen=True, eq=False)
class Coordinates:
    """A smooth invertible map T of one draw (d,) onto all of Rᵈ, written in JAX:
    `Coordinates(T)(sample)` is the sample in the coordinates y = T(x), and
    `Coordinates(T)(posterior)` the posterior, with the same values.

    inverse: T⁻¹.
    log_det: log|det| of the Jacobian of T, a function of x. With both, a draw costs one
        vector–Jacobian product of the inverse; without, its Jacobian is formed, which up to 200
        coordinates is affordable.
    names: of the coordinates y; by default those of x.
    """

    forward: DrawFunction
    inverse: DrawFunction | None = None
    log_det: DrawFunction | None = None
    names: Sequence[str] | None = None

    _run = staticmethod(run_in_double)

    @overload
    def __call__(self, data: Sample) -> Sample: ...
    @overload
    def __call__(self, data: Posterior) -> Posterior: ...
    def __call__(self, data: Sample | Posterior) -> Sample | Posterior:
        if isinstance(data, Posterior):
            return self._map_posterior(data)
        if not isinstance(data, Sample):
            raise ValueError(
                f"coordinates are of a zv.Sample or a Posterior; got {type(data).__name__}"
            )
        require_reals(data, "a map to other coordinates")
        draws, scores = self.map(data.draws, data.scores)
        names = check_names(data.names if self.names is None else self.names, data.dim)
        return data.replace(draws=draws, scores=scores, names=names)

    def _map_posterior(self, data: Posterior) -> Posterior:
        require_reals(data, "a map to other coordinates")
        if not isinstance(data.draws, np.ndarray):
            raise ValueError(
                "coordinates are of draws in memory; these are chunked. Map them before they are "
                "written"
            )
        shape, values = data.draws.shape, data.values
        draws, scores = self.map(*(x.reshape(-1, shape[-1]) for x in (data.draws, data.scores)))
        if values is None:  # the means of x are wanted, whatever coordinates they are estimated in
            old = [f"x{j}" for j in range(shape[-1])] if data.names is None else data.names
            values = {name: data.draws[..., j] for j, name in enumerate(old)}
        names = data.names if self.names is None else tuple(self.names)
        return Posterior(
            draws.reshape(shape),
            scores.reshape(shape),
            values,
            names,
            data.log_weights,
            from_model=data.from_model,
            divergences=data.divergences,
        )

    def map(self, draws: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return y and its scores, from draws and scores (n, d)."""
        d = draws.shape[1]
        direct = self.inverse is not None and self.log_det is not None
        if not direct and d > MOST_JACOBIAN:
            raise ValueError(
                f"coordinates of d = {d} need an inverse and a log_det: without them a {d} × {d} "
                "Jacobian is formed at every draw. zv.Coupling has both"
            )
        one = self._by_inverse if direct else self._by_jacobian
        draws, scores = draws.astype(np.float64), scores.astype(np.float64)
        y, t, back = run_or_explain(
            "coordinates",
            lambda: map_draws(one, (draws, scores)),
            f" of shape ({d},)",
            "mapped draws and scores to zv.Sample",
            self._run,
        )
        if y.shape != draws.shape:
            raise ValueError(
                f"coordinates must map a draw of shape ({d},) to as many numbers; got shape "
                f"{y.shape[1:]}"
            )
        bad = ~(np.isfinite(y) & np.isfinite(t)).all(axis=1)
        if bad.any():
            raise ValueError(
                f"coordinates: {bad.sum()} draws have infinite or undefined new coordinates or "
                "scores, the first at row "
                f"{int(np.argmax(bad))}. The map must be smooth and invertible at every draw"
            )
        scale = np.maximum(draws.std(axis=0), np.finfo(float).tiny)
        away = np.abs(back - draws).max(axis=0) / scale
        # and half of the digits that it was computed with, of numbers far larger than their spread
        rounding = np.sqrt(np.finfo(back.dtype).eps) * np.abs(draws).max(axis=0) / scale
        if (away > CLOSE + rounding).any():
            raise ValueError(
                "coordinates: the inverse of the map does not lead back to the draws; coordinate "
                f"{int(away.argmax())} is up to {away.max():.2g} standard deviations away"
            )
        # a Coupling knows its own
        if direct and d <= MOST_JACOBIAN and not isinstance(self, Coupling):
            self._check_log_det(draws[0])
        return y.astype(np.float64), t.astype(np.float64)

    def _by_inverse(self, pair: tuple[Any, Any]) -> tuple[Any, Any, Any]:
        assert self.inverse is not None
        assert self.log_det is not None
        x, s = pair
        y = jnp.asarray(self.forward(x))
        back, pull = jax.vjp(self.inverse, y)
        return y, pull(s - jax.grad(self.log_det)(x))[0], back

    def _by_jacobian(self, pair: tuple[Any, Any]) -> tuple[Any, Any, Any]:
        x, s = pair
        log_det = self._jacobian_log_det if self.log_det is None else self.log_det
        y = jnp.asarray(self.forward(x))
        t = jnp.linalg.solve(jax.jacfwd(self.forward)(x).T, s - jax.grad(log_det)(x))
        return y, t, x if self.inverse is None else self.inverse(y)

    def _jacobian_log_det(self, x: Any) -> Any:
        return jnp.linalg.slogdet(jax.jacfwd(self.forward)(x))[1]

    def _check_log_det(self, draw: np.ndarray) -> None:
        """Raise a ValueError if it is wrong at this draw: every answer would be."""
        given = self.log_det
        assert given is not None
        both = jax.jit(lambda x: (given(x), self._jacobian_log_det(x)))
        told, found = run_or_explain("coordinates", lambda: both(draw), "", "mapped draws")
        if not np.isclose(told, found, rtol=CLOSE, atol=CLOSE):
            raise ValueError(
                "coordinates: log_det must be log|det| of the map's Jacobian as a function of x; "
                "at the first draw it is "
                f"{float(told):.6g}, and the Jacobian has {float(found):.6g}"
            )


def _are_blocks(pairs: list[tuple[np.ndarray, Any]]) -> bool:
    every = np.concatenate([block for block, _ in pairs])
    return bool(
        all(block.ndim == 1 and callable(function) for block, function in pairs)
        and every.min() >= 0
        and len(np.unique(every)) == len(every)
    )


class Coupling(Coordinates):
    """Some coordinates become an affine function of themselves, given the others: y_B = location +
    scale · x_B.

    blocks: (numbers of the coordinates B, function) pairs. The function takes a draw in which x_B
        is zero, and gives location and scale, each a number or one for each of B; or as scale a
        matrix, or matrices (m, k, k) of which each is for the next k of B. It may depend on blocks
        before it.
    backwards: the other way round, y_B = scale⁻¹ (x_B − location).

    That is how non-centred and centred forms of a hierarchy differ. For eight groups
    `Coupling([(range(2, 10), lambda x: (x[0], jnp.exp(x[1])))])` takes (μ, log τ, z) to (μ, log τ,
    θ), and `backwards=True` back. The inverse and the determinant are known, so that a draw costs
    little in any dimension.
    """

    @takes(
        blocks=where(
            "pairs of coordinate numbers, integers ≥ 0 that do not overlap, and a function of one "
            "draw",
            _are_blocks,
            lambda value: [(read_whole_numbers(block), function) for block, function in value],
        ),
        backwards=FLAG,
        names=NAMES,
    )
    def __init__(
        self,
        blocks: Sequence[tuple[Sequence[int], DrawFunction]],
        backwards: bool = False,
        names: Sequence[str] | None = None,
    ):
        pairs: Any = blocks

        def split(x: Any, block: np.ndarray, function: DrawFunction) -> tuple[Any, Any]:
            location, scale = function(x.at[block].set(0.0))
            return location, jnp.asarray(scale)

        def apply(x: Any) -> Any:
            y = x
            for block, function in pairs:
                location, scale = split(x, block, function)
                y = y.at[block].set(location + _multiply(scale, x[block]))
            return y

        def restore(y: Any) -> Any:
            x = y
            for block, function in pairs:
                location, scale = split(x, block, function)
                x = x.at[block].set(_divide(scale, x[block] - location))
            return x

        def log_det(x: Any) -> Any:
            scales = [(len(block), split(x, block, function)[1]) for block, function in pairs]
            return sum((_log_det(scale, count) for count, scale in scales), jnp.zeros(()))

        if backwards:
            super().__init__(restore, apply, lambda x: -log_det(restore(x)), names)
        else:
            super().__init__(apply, restore, log_det, names)


def _by_row(scale: jax.Array, x: jax.Array) -> jax.Array:
    """The entries that each of the matrices is for, (m, k)."""
    return x.reshape(-1, scale.shape[-1])


def _multiply(scale: jax.Array, x: jax.Array) -> jax.Array:
    if scale.ndim < 2:
        return scale * x
    return (scale @ _by_row(scale, x)[..., None]).ravel()


def _divide(scale: jax.Array, x: jax.Array) -> jax.Array:
    if scale.ndim < 2:
        return x / scale
    return jnp.linalg.solve(scale, _by_row(scale, x)[..., None]).ravel()


def _log_det(scale: jax.Array, count: int) -> jax.Array:
    if scale.ndim < 2:
        return jnp.sum(jnp.log(jnp.abs(jnp.broadcast_to(scale, (count,)))))
    return jnp.sum(jnp.linalg.slogdet(scale)[1])
