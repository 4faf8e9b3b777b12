"""Where the mass of a density is: modes from several starts, and the widths of the density around
each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float64

from ..errors import NumericalError
from .target import Target

_SHARE = 0.2  # of the budget that may go into the search for modes
_STARTS = 8  # that are dispersed about the given one, and as many more about the first mode
_SCALES = (0.0, 1.0, 2.0, 4.0)  # of those starts, about the given one
_FAR = (5.0, 10.0, 20.0)  # widths of the first mode, of those about it
_NEWTON = 6  # steps after L-BFGS, each of d gradients
_CONVERGED = 0.1  # widths from the maximum
_SAME = 1.0  # widths between two ends of L-BFGS that are one mode
# by how much the log density falls within two widths, where these are right: 2 if normal
_LOW, _HIGH = 0.5, 8.0
_WIDENINGS = 60  # by a factor of two each; as many narrow 1 to 1e-18
_LEAST_EVIDENCE = 12.0  # of a mode, in logarithms below the best


@dataclasses.dataclass(frozen=True, eq=False)
class Mode:
    """A maximum of the density, and root @ rootᵀ, the covariance of a normal like it there."""

    at: Float64[np.ndarray, " d"]
    log_density: float
    root: Float64[np.ndarray, "d d"]
    starts: int  # that led to it
    converged: bool

    @property
    def log_mass(self) -> float:
        """By Laplace's approximation, up to a constant."""
        return self.log_density + float(np.linalg.slogdet(self.root)[1])

    def distance(self, x: Float64[np.ndarray, " d"]) -> float:
        """From it, in its own widths."""
        return float(np.linalg.norm(np.linalg.solve(self.root, x - self.at)))


def find_modes(
    target: Target,
    starts: Float64[np.ndarray, "s d"],
    rng: np.random.Generator,
    tell: Callable[[str], Any],
    scatter: bool,
) -> list[Mode]:
    """The modes that L-BFGS reaches, best first; from `starts` alone, or with `scatter` from places
    about the first as well."""
    modes: list[Mode] = []
    stop = target.gradients + int(_SHARE * target.budget)
    queue = list(starts)
    if scatter:
        scales = np.resize(_SCALES, _STARTS)[1:]
        queue += [starts[0] + scale * rng.standard_normal(target.dim) for scale in scales]
    tried = 0
    while queue and (target.gradients < stop or not modes):
        tell(f"modes: start {tried + 1} of {tried + len(queue)}")
        _add(modes, target, queue.pop(0), max(stop - target.gradients, 20 * target.dim))
        tried += 1
        if scatter and tried == _STARTS // 2 and modes:
            best = max(modes, key=lambda mode: mode.log_density)
            directions = rng.standard_normal((_STARTS, target.dim))
            directions /= np.linalg.norm(directions, axis=1)[:, None]
            queue += [
                best.at + scale * (best.root @ u)
                for scale, u in zip(np.resize(_FAR, _STARTS), directions, strict=True)
            ]
    if not modes:
        raise NumericalError(
            f"the log density is −inf or NaN at all {tried} starts: give one where it is finite, "
            "integrate(log_density, start)"
        )
    best_mass = max(mode.log_mass for mode in modes)
    kept = [mode for mode in modes if mode.log_mass > best_mass - _LEAST_EVIDENCE]
    return sorted(kept, key=lambda mode: -mode.log_mass)


def _add(modes: list[Mode], target: Target, start: np.ndarray, most: int) -> None:
    """Climb from a start; the end is one of the modes, or one more."""
    x, value, slope = _climb(target, start, most)
    if not np.isfinite(value):
        return
    for k, mode in enumerate(modes):
        if mode.distance(x) < _SAME and abs(value - mode.log_density) < _HIGH / 2:
            modes[k] = dataclasses.replace(mode, starts=mode.starts + 1)
            return
    x, value, converged, axes, widths = _polish(target, x, value, slope)
    for k, mode in enumerate(modes):
        if mode.distance(x) < _SAME:
            modes[k] = dataclasses.replace(mode, starts=mode.starts + 1)
            return
    widths = _measure(target, x, value, axes, widths)
    modes.append(Mode(x, value, axes * widths, 1, converged))


def _climb(target: Target, start: np.ndarray, most: int) -> tuple[np.ndarray, float, np.ndarray]:
    """The best point that SciPy's L-BFGS comes to."""
    from scipy.optimize import minimize

    first = target.at_one(start)
    best = [start, float(first.log_density[0]), first.scores[0]]
    if not np.isfinite(best[1]):
        return best[0], best[1], best[2]

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        found = target.at_one(x)
        value, slope = float(found.log_density[0]), found.scores[0]
        # a wall that rises away from the best point: the line search turns back
        if not np.isfinite(value):
            back = x - best[0]
            height = 1e3 * (1 + abs(best[1]))
            return height - best[1], height * back / max(float(back @ back), 1e-300)
        if value > best[1]:
            best[:] = [x.copy(), value, slope]
        return -value, -slope

    minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxfun": most, "maxcor": 20, "ftol": 1e-8, "gtol": 1e-6},
    )
    return best[0], best[1], best[2]


def _polish(
    target: Target, x: np.ndarray, value: float, slope: np.ndarray
) -> tuple[np.ndarray, float, bool, np.ndarray, np.ndarray]:
    """By Newton's steps, along which negative curvature counts as positive; with axes (d, d) and
    widths (d,) at the end."""
    for step in range(_NEWTON + 1):
        axes, widths = _axes(target.curvature(x))
        pull = widths * (axes.T @ slope)  # the slope in widths: 0 at a maximum
        if np.linalg.norm(pull) < _CONVERGED:
            return x, value, True, axes, widths
        if step == _NEWTON:
            break
        move = axes @ (widths * pull)
        for halvings in range(12):
            found = target.at_one(x + move / 2**halvings)
            if found.log_density[0] > value:
                x, value, slope = (
                    x + move / 2**halvings,
                    float(found.log_density[0]),
                    found.scores[0],
                )
                break
        else:
            break
    return x, value, False, axes, widths


def _axes(curvature: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvectors of the curvature, (d, d), and 1/√|eigenvalue|; 1 where that says nothing."""
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


def _measure(
    target: Target, x: np.ndarray, value: float, axes: np.ndarray, widths: np.ndarray
) -> np.ndarray:
    """Widths that two steps of fall by about 2 in the log density, on the wider side: curvature
    says nothing of a flat top."""
    widths = widths.copy()
    both = np.stack([widths, widths])
    moving = np.ones(both.shape, dtype=bool)
    direction = np.zeros(both.shape)
    for _ in range(_WIDENINGS):
        side, axis = np.nonzero(moving)
        if not len(side) or target.left < len(side):
            break
        step = 2 * np.where(side == 0, 1.0, -1.0) * both[side, axis]
        fall = value - target.at(x + step[:, None] * axes[:, axis].T).log_density
        now = np.where(fall < _LOW, 1.0, np.where(fall > _HIGH, -1.0, 0.0))
        turned = now * direction[side, axis] < 0
        both[side, axis] *= np.where(turned, 1.0, 2.0**now)
        direction[side, axis] = now
        moving[side, axis] = (now != 0) & ~turned
    else:
        if (direction[:, :] > 0).any():
            raise NumericalError(
                "the log density does not fall along some direction from its highest point: it has "
                "no finite integral, or a "
                "tail too long for importance sampling. Sample it, and call zv.estimate"
            )
    return both.max(axis=0)
