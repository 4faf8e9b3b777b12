"""Where the mass of a density is: modes from several starts, and the widths of the density around
each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from ..errors import NumericalError
from .target import Target

_SHARE = 0.2  # of the budget that may go into the search for modes
# Widths that starts are scattered by: by one each about the given start, and about the first mode
_SPREADS = (1.0, 2.0, 4.0, 8.0, 1.0, 2.0, 4.0, 8.0)
_NEAR = 0.5  # widths between a maximum and a point that is as good as it
# The log density falls by 2 within two widths of a normal. Widths are right if it does so but for
# this factor, and two ends of a climb with more than this between their log densities are not one.
_FACTOR = 4.0
NEGLIGIBLE = 1e-5  # share of the mass that is seen in no answer


@dataclasses.dataclass(frozen=True, eq=False)
class Mode:
    """A maximum of the density, and root @ rootᵀ, the covariance of a normal like it there."""

    at: Float64[np.ndarray, " d"]
    log_density: float
    root: Float64[np.ndarray, "d d"]
    starts: int  # that led to it

    @property
    def log_mass(self) -> float:
        """The log of its mass by Laplace's approximation, up to a constant."""
        return self.log_density + float(np.linalg.slogdet(self.root)[1])

    def distance(self, x: Float64[np.ndarray, " d"]) -> float:
        """The distance of a point from it, in its own widths."""
        return float(np.linalg.norm(np.linalg.solve(self.root, x - self.at)))


class _Top(NamedTuple):
    """The best point of a climb, with log density and slope there."""

    x: Float64[np.ndarray, " d"]
    value: float
    slope: Float64[np.ndarray, " d"]

    @staticmethod
    def at(target: Target, x: Float64[np.ndarray, " d"]) -> _Top:
        found = target.at_one(x)
        return _Top(x.copy(), float(found.log_density[0]), found.scores[0])


def find_modes(
    target: Target,
    starts: Float64[np.ndarray, "s d"],
    rng: np.random.Generator,
    tell: Callable[[str], None],
    scatter: bool,
) -> list[Mode]:
    """Find the modes that L-BFGS reaches, best first; from `starts` alone, or with `scatter` from
    places about the first of them and about the first mode as well."""
    modes: list[Mode] = []
    stop = target.gradients + int(_SHARE * target.budget)
    queue = [*starts, *(_scatter(starts[0], np.eye(target.dim), rng) if scatter else ())]
    tried = 0
    while queue and (target.gradients < stop or not modes):
        tell(f"modes: start {tried + 1} of {tried + len(queue)}")
        _add_mode(modes, target, queue.pop(0), stop)
        tried += 1
        if scatter and not queue and tried <= len(_SPREADS) + 1 and modes:
            best = max(modes, key=lambda mode: mode.log_density)
            queue += _scatter(best.at, best.root, rng)
    if not modes:
        raise NumericalError(
            f"the log density is −inf or NaN at all {tried} starts: give one where it is finite, "
            "integrate(log_density, start)"
        )
    best_mass = max(mode.log_mass for mode in modes)
    kept = [mode for mode in modes if mode.log_mass > best_mass + np.log(NEGLIGIBLE)]
    return sorted(kept, key=lambda mode: -mode.log_mass)


def _scatter(
    centre: Float64[np.ndarray, " d"], root: Float64[np.ndarray, "d d"], rng: np.random.Generator
) -> list[Float64[np.ndarray, " d"]]:
    return [centre + spread * (root @ rng.standard_normal(len(centre))) for spread in _SPREADS]


def _add_mode(modes: list[Mode], target: Target, start: np.ndarray, stop: int) -> None:
    """Climb from a start; the end is one of the modes, or one more."""
    top = _climb(target, start, max(stop - target.gradients, target.dim))
    if not np.isfinite(top.value) or _is_known(modes, top):
        return
    top, axes, widths = _polish(target, top, target.gradients + int(_SHARE * target.budget))
    if not _is_known(modes, top):
        widths = _measure_widths(target, top, axes, widths)
        modes.append(Mode(top.x, top.value, axes * widths, 1))


def _is_known(modes: list[Mode], top: _Top) -> bool:
    """Say whether it is one of the modes, and count it there."""
    for k, mode in enumerate(modes):
        if mode.distance(top.x) < 2 * _NEAR and abs(top.value - mode.log_density) < _FACTOR:
            modes[k] = dataclasses.replace(mode, starts=mode.starts + 1)
            return True
    return False


def _climb(target: Target, start: np.ndarray, most: int) -> _Top:
    """Return the best point that SciPy's L-BFGS comes to."""
    from scipy.optimize import minimize

    best = _Top.at(target, start)
    if not np.isfinite(best.value):
        return best

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        found = _Top.at(target, x)
        # a wall that rises away from the best point: the line search turns back
        if not np.isfinite(found.value):
            back = x - best.x
            height = 1e3 * (1 + abs(best.value))
            return height - best.value, height * back / max(float(back @ back), 1e-300)
        if found.value > best.value:
            best = found
        return -found.value, -found.slope

    minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxfun": most, "maxcor": 20, "ftol": 1e-8, "gtol": 1e-6},
    )
    return best


def _polish(target: Target, top: _Top, stop: int) -> tuple[_Top, np.ndarray, np.ndarray]:
    """Take Newton's steps, along which negative curvature counts as positive; return axes (d, d)
    and widths (d,) at the end, too."""
    while True:
        axes, widths = _principal_axes(target.curvature(top.x))
        pull = widths * (axes.T @ top.slope)  # the slope in widths: 0 at a maximum
        if np.linalg.norm(pull) < _NEAR or target.gradients >= stop:
            return top, axes, widths
        move = axes @ (widths * pull)
        for halvings in range(12):
            found = _Top.at(target, top.x + move / 2**halvings)
            if found.value > top.value:
                top = found
                break
        else:
            return top, axes, widths


def _principal_axes(curvature: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvectors of the curvature (d, d), and 1/√|eigenvalue|; 1 where it says nothing."""
    if not np.isfinite(curvature).all():
        return np.eye(len(curvature)), np.ones(len(curvature))
    # scaled first: units of coordinates may be far apart
    scale = np.sqrt(np.abs(np.diag(curvature)))
    scale = np.where(scale > 1e-100, scale, 1.0)
    values, vectors = np.linalg.eigh(curvature / np.outer(scale, scale))
    size = np.abs(values)
    usable = size > 1e-14 * max(size.max(), 1e-100)
    root = vectors / np.sqrt(np.where(usable, size, 1.0)) / scale[:, None]
    # principal axes of root rootᵀ, which are orthonormal again
    axes, widths, _ = np.linalg.svd(root)
    return axes, widths


def _measure_widths(
    target: Target, top: _Top, axes: np.ndarray, widths: np.ndarray
) -> Float64[np.ndarray, " d"]:
    """Measure the widths two of which the log density falls by about 2 within, on the wider side:
    curvature says nothing of a flat top."""
    both = np.stack([widths, widths])
    moving = np.ones(both.shape, dtype=bool)
    direction = np.zeros(both.shape)
    for _ in range(np.finfo(float).nmant):  # doublings, by which 1 is lost in rounding
        side, axis = np.nonzero(moving)
        if not len(side) or target.left < len(side):
            break
        step = 2 * np.where(side == 0, 1.0, -1.0) * both[side, axis]
        fall = top.value - target.at(top.x + step[:, None] * axes[:, axis].T).log_density
        now = np.where(fall < 2 / _FACTOR, 1.0, np.where(fall > 2 * _FACTOR, -1.0, 0.0))
        turned = now * direction[side, axis] < 0
        both[side, axis] *= np.where(turned, 1.0, 2.0**now)
        direction[side, axis] = now
        moving[side, axis] = (now != 0) & ~turned
    else:
        if (direction > 0).any():
            raise NumericalError(
                "the log density does not fall along some direction from its highest point: it has "
                "no finite integral, or a "
                "tail too long for importance sampling. Sample it, and call zv.estimate"
            )
    return both.max(axis=0)
