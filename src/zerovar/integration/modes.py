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

_SHARE = 0.3  # of the budget that may go into the search for modes
# deviations of the starts about the given one
_SCALES = (0.0, 1.0, 2.0, 4.0, 1.0, 2.0, 4.0)
_BATCH = 0.1  # of the budget: points among which more modes are looked for
# Points about a mode are as many at each distance from two widths to so many times that. From one
# width on, a mode of a hundredth of the width of another was found in 15 of 20 searches, not in 19.
_FARTHEST = 16.0
_BEYOND = 3.0  # times as far from their middle as the modes are looked for more
# Neighbours than which a top among those points is higher: one in 2^k is so by chance.
_NEIGHBOURS = 10
_NEWTON = 6  # steps after L-BFGS, each of d gradients
_CONVERGED = 0.1  # widths from the maximum
# times too little or too much that the log density falls within two widths, where these are right,
# of 2 if normal
_UNLIKE = 4.0
_WIDENINGS = 60  # by a factor of two each; as many narrow 1 to 1e-18
_LEAST_EVIDENCE = 12.0  # of a mode, in logarithms below the best
_FLAT = (
    "the log density does not fall along some direction from its highest point: it has no finite "
    "integral, or a tail too long for importance sampling. Sample it, and call zv.estimate"
)
_RISES = (
    "the log density still rises at the highest point that the search came to: it has no maximum, "
    "as where a scale goes to zero in a centred hierarchy, or the search needs more gradients. "
    "Standardise the effects (effect = mean + scale * z), or sample it and call zv.estimate"
)


@dataclasses.dataclass(frozen=True, eq=False)
class Mode:
    """A maximum of the density, and root @ rootᵀ, the covariance of a normal like it there."""

    at: Float64[np.ndarray, " d"]
    log_density: float
    root: Float64[np.ndarray, "d d"]
    starts: int  # that led to it
    fault: str = ""  # why it is none

    @property
    def log_mass(self) -> float:
        """By Laplace's approximation, up to a constant."""
        return self.log_density + float(np.linalg.slogdet(self.root)[1])

    def distances(self, x: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, " n"]:
        """From it, in its own widths."""
        return np.linalg.norm(np.linalg.solve(self.root, (x - self.at).T), axis=0)


def find_modes(
    target: Target,
    starts: Float64[np.ndarray, "s d"],
    rng: np.random.Generator,
    tell: Callable[[str], Any],
    scatter: bool,
) -> list[Mode]:
    """The modes that L-BFGS reaches, best first; from `starts` alone, or with `scatter` from places
    about the first, and from the highest of many points about what these lead to."""
    modes: list[Mode] = []
    stop = target.gradients + int(_SHARE * target.budget)
    if scatter:
        scales = np.array(_SCALES)[:, None]
        starts = starts[0] + scales * rng.standard_normal((len(scales), target.dim))
    _climb_all(modes, target, starts, stop, tell)
    if not modes:
        raise NumericalError(
            f"the log density is −inf or NaN at all {len(starts)} starts: give one where it is "
            "finite, integrate(log_density, start)"
        )
    if scatter:
        places = _about_each(modes, int(_BATCH * target.budget), rng)
        seen = [places]
        _climb_all(modes, target, _tops(target, modes[0], places), stop, tell)
        known = 1
        while len(_heavy(modes)) > known and target.gradients + len(places) <= stop:
            known = len(_heavy(modes))
            places = _about_all(_heavy(modes), len(places), rng)
            seen.append(places)
            _climb_all(modes, target, _tops(target, modes[0], places), stop, tell)
        modes = _count(modes, np.concatenate(seen))
    kept = _heavy(modes)
    if kept[0].fault:
        raise NumericalError(kept[0].fault)
    return kept


def _heavy(modes: list[Mode]) -> list[Mode]:
    """Those that have mass beside the others, the most first."""
    best = max(mode.log_mass for mode in modes)
    kept = [mode for mode in modes if mode.log_mass >= best - _LEAST_EVIDENCE]
    return sorted(kept, key=lambda mode: -mode.log_mass)


def _climb_all(
    modes: list[Mode],
    target: Target,
    starts: Float64[np.ndarray, "s d"],
    stop: int,
    tell: Callable[[str], Any],
) -> None:
    """Climb from starts while the budget lasts."""
    for k, start in enumerate(starts):
        if modes and target.gradients >= stop:
            return
        tell(f"modes: start {k + 1} of {len(starts)}")
        _add(modes, target, start, max(stop - target.gradients, 20 * target.dim))


def _directions(n: int, d: int, rng: np.random.Generator) -> Float64[np.ndarray, "n d"]:
    draws = rng.standard_normal((n, d))
    return draws / np.linalg.norm(draws, axis=1)[:, None]


def _about_each(modes: list[Mode], n: int, rng: np.random.Generator) -> Float64[np.ndarray, "n d"]:
    """Points about the modes, as many at each scale."""
    distance = 2 * _FARTHEST ** rng.random((n, 1))
    step = distance * _directions(n, len(modes[0].at), rng)
    centre = rng.integers(len(modes), size=n)
    return np.stack([modes[k].at + modes[k].root @ u for k, u in zip(centre, step, strict=True)])


def _about_all(modes: list[Mode], n: int, rng: np.random.Generator) -> Float64[np.ndarray, "n d"]:
    """Points between the modes and beyond them, in a ball in the coordinates of the first."""
    at, root = np.stack([mode.at for mode in modes]), modes[0].root
    unit = np.linalg.solve(root, at.T).T
    middle, d = unit.mean(axis=0), at.shape[1]
    radius = _BEYOND * np.linalg.norm(unit - middle, axis=1).max()
    return (middle + radius * rng.random((n, 1)) ** (1 / d) * _directions(n, d, rng)) @ root.T


def _tops(target: Target, mode: Mode, x: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, "k d"]:
    """Points that are higher than their neighbours, in the coordinates of a mode; highest first."""
    from scipy.spatial import cKDTree

    height, unit = target.at(x).log_density, np.linalg.solve(mode.root, x.T).T
    near = cKDTree(unit).query(unit, k=min(_NEIGHBOURS + 1, len(x)))[1]
    tops = np.flatnonzero((height >= height[near].max(axis=1)) & np.isfinite(height))
    return x[tops[np.argsort(-height[tops])]]


def _count(modes: list[Mode], x: Float64[np.ndarray, "n d"]) -> list[Mode]:
    """The modes, with the points among their starts that would lead to them if all were normal."""
    height = [mode.log_density - 0.5 * mode.distances(x) ** 2 for mode in modes]
    counts = np.bincount(np.argmax(height, axis=0), minlength=len(modes))
    return [
        dataclasses.replace(mode, starts=mode.starts + int(count))
        for mode, count in zip(modes, counts, strict=True)
    ]


def _add(modes: list[Mode], target: Target, start: np.ndarray, most: int) -> None:
    """Climb from a start; the end is one of the modes, or one more."""
    x, value, slope = _climb(target, start, most)
    best = max((mode.log_density for mode in modes), default=-np.inf)
    # nothing, or nothing beside the best however wide it is
    if not np.isfinite(value) or value < best - target.dim * _WIDENINGS - _LEAST_EVIDENCE:
        return
    for k, mode in enumerate(modes):
        if mode.distances(x[None])[0] < 1 and abs(value - mode.log_density) < _UNLIKE:
            modes[k] = dataclasses.replace(mode, starts=mode.starts + 1)
            return
    x, value, converged, axes, widths = _polish(target, x, value, slope)
    for k, mode in enumerate(modes):
        if mode.distances(x[None])[0] < 1:
            modes[k] = dataclasses.replace(mode, starts=mode.starts + 1)
            return
    widths, fault = _measure(target, x, value, axes, widths, converged)
    modes.append(Mode(x, value, axes * widths, 1, fault))


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
    target: Target,
    x: np.ndarray,
    value: float,
    axes: np.ndarray,
    widths: np.ndarray,
    converged: bool,
) -> tuple[np.ndarray, str]:
    """Widths that two steps of fall by about 2 in the log density, on the wider side: curvature
    says nothing of a flat top. And why this is no mode, if so."""
    # a shorter step is none
    widths = np.maximum(widths, np.finfo(float).eps * np.linalg.norm(x))
    both, fault = np.stack([widths, widths]), ""
    moving = np.ones(both.shape, dtype=bool)
    direction = np.zeros(both.shape)
    for _ in range(_WIDENINGS):
        side, axis = np.nonzero(moving)
        if not len(side) or target.left < len(side):
            break
        step = 2 * np.where(side == 0, 1.0, -1.0) * both[side, axis]
        fall = value - target.at(x + step[:, None] * axes[:, axis].T).log_density
        if not converged and (fall < -2 * _UNLIKE).any():
            fault = _RISES
        now = np.where(fall < 2 / _UNLIKE, 1.0, np.where(fall > 2 * _UNLIKE, -1.0, 0.0))
        turned = now * direction[side, axis] < 0
        both[side, axis] *= np.where(turned, 1.0, 2.0**now)
        direction[side, axis] = now
        moving[side, axis] = (now != 0) & ~turned
    else:
        fault = fault or (_FLAT if (direction > 0).any() else "")
    return both.max(axis=0), fault
