"""Angles, directions, proportions and boxes: exact draws, means that are known, and the default
call with `space=`, beside the same draws as they would be without it."""

from __future__ import annotations

import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.special

import zerovar as zv
from zerovar.spaces import Box, Simplex, Space, Sphere, Torus

from .harness import collect, print_table

_DRAWS = 1000
_REPLICATES = {"low": 40, "normal": 3}  # by effort: a call takes tenths of a second, or many
_FLAT = 10  # of the first ones at low effort: answered in Rᵈ too
# Of a grid over two angles, or over a sphere's height and longitude: means to rounding
_NODES = 200
Values = dict[str, np.ndarray]


class Target(NamedTuple):
    """How to draw n points, their scores, integrands and the means of these; and draws and scores
    in Rᵈ of the same, None where these are numbers without borders or poles to speak of."""

    space: Space
    draw: Callable[[np.random.Generator, int], np.ndarray]
    score: Callable[[np.ndarray], np.ndarray]
    values: Callable[[np.ndarray], Values]
    means: Values
    flat: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


class Row(NamedTuple):
    """One case: the least gain over integrands by reported errors and by distances from the truth,
    both by mean squares over replicates; the second without the worst replicate, and how many of
    value ± 1.96 errors have the truth. The second and the last also for the same draws in Rᵈ, NaN
    where that was not asked."""

    case: str
    effort: str
    replicates: int
    reported: float
    realised: float
    without_worst: float
    covered: float
    flat: float
    flat_covered: float


def _weighed(values: Values, p: np.ndarray) -> Values:
    return {name: p @ array / p.sum() for name, array in values.items()}


def _as_numbers(x: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x, s


def torus(d: int, coupling: float = 0.0) -> Target:
    """Von Mises, independent or with a factor exp(coupling cos(θ₁ − θ₂))."""
    mu, kappa = np.linspace(0.5, 2.5, d), np.linspace(1.0, 3.0, d)

    def log_density(x: np.ndarray) -> np.ndarray:
        return np.cos(x - mu) @ kappa + coupling * np.cos(x[:, 0] - x[:, -1])

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        x = np.empty((0, d))
        while len(x) < n:  # the coupling by rejection
            new = rng.vonmises(mu, kappa, size=(n, d))
            kept = np.cos(new[:, 0] - new[:, -1]) - 1 > np.log(rng.random(n)) / max(coupling, 1e-9)
            x = np.concatenate([x, new[kept]])
        return x[:n]

    def score(x: np.ndarray) -> np.ndarray:
        s = -kappa * np.sin(x - mu)
        pull = coupling * np.sin(x[:, 0] - x[:, -1])
        s[:, 0] -= pull
        s[:, -1] += pull
        return s

    def values(x: np.ndarray) -> Values:
        return {
            "cos θ1": np.cos(x[:, 0]),
            "sin 2θ2": np.sin(2 * x[:, 1]),
            "cos(θ1 − θ2)": np.cos(x[:, 0] - x[:, 1]),
            "exp(mean sin θ)": np.exp(np.sin(x).sum(axis=1) / d),
            "Π (1 + cos θ / 2)": np.prod(1 + np.cos(x) / 2, axis=1),
        }

    line = 2 * np.pi * np.arange(_NODES) / _NODES
    if d == 2:
        grid = np.stack([a.ravel() for a in np.meshgrid(line, line)], axis=1)
        means = _weighed(values(grid), np.exp(log_density(grid)))
    else:  # independent, of one angle each
        p = np.exp(kappa * np.cos(line[:, None] - mu))
        p /= p.sum(axis=0)

        def mean(function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
            return np.sum(p * function(line)[:, None], axis=0)

        cos, sin = mean(np.cos), mean(np.sin)
        means = {
            "cos θ1": cos[0],
            "sin 2θ2": mean(lambda t: np.sin(2 * t))[1],
            "cos(θ1 − θ2)": cos[0] * cos[1] + sin[0] * sin[1],
            "exp(mean sin θ)": np.prod(mean(lambda t: np.exp(np.sin(t) / d))),
            "Π (1 + cos θ / 2)": np.prod(1 + cos / 2),
        }
    return Target(Torus(), draw, score, values, means, _as_numbers)


def sphere(pull: float, spread: tuple[float, float, float]) -> Target:
    """exp(pull μ·x + xᵀ diag(spread) x): von Mises–Fisher, or Bingham without a pull."""
    mu, axes = np.array([1.0, 2.0, 2.0]) / 3, np.array(spread)

    def log_density(x: np.ndarray) -> np.ndarray:
        return pull * x @ mu + x**2 @ axes

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        top, x = pull + axes.max(), np.empty((0, 3))
        while len(x) < n:
            new = rng.normal(size=(20 * n, 3))
            new /= np.linalg.norm(new, axis=1, keepdims=True)
            kept = np.log(rng.random(len(new))) < log_density(new) - top
            x = np.concatenate([x, new[kept]])
        return x[:n]

    def values(x: np.ndarray) -> Values:
        return {
            "x1": x[:, 0],
            "x1²": x[:, 0] ** 2,
            "x1 x2": x[:, 0] * x[:, 1],
            "exp x3": np.exp(x[:, 2]),
        }

    z, weight = np.polynomial.legendre.leggauss(_NODES)
    phi = 2 * np.pi * np.arange(_NODES) / _NODES
    height, around = (a.ravel() for a in np.meshgrid(z, phi, indexing="ij"))
    r = np.sqrt(1 - height**2)
    grid = np.stack([r * np.cos(around), r * np.sin(around), height], axis=1)
    means = _weighed(values(grid), np.repeat(weight, _NODES) * np.exp(log_density(grid)))

    def flat(x: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Longitude and the logit of the height, with the Jacobian of both."""
        r2 = 1 - x[:, 2] ** 2
        along = s[:, 1] * x[:, 0] - s[:, 0] * x[:, 1]
        up = s[:, 2] - x[:, 2] * (s[:, 0] * x[:, 0] + s[:, 1] * x[:, 1]) / r2
        logit = np.log((1 + x[:, 2]) / (1 - x[:, 2]))
        y = np.stack([np.arctan2(x[:, 1], x[:, 0]), logit], axis=1)
        return y, np.stack([along, up * r2 / 2 - x[:, 2]], axis=1)

    score = lambda x: pull * mu + 2 * x * axes  # noqa: E731
    return Target(Sphere(), draw, score, values, means, flat)


def simplex(alpha: tuple[float, ...]) -> Target:
    """A Dirichlet distribution; in Rᵈ log ratios to the last share."""
    a, total = np.array(alpha), float(np.sum(alpha))

    def score(x: np.ndarray) -> np.ndarray:
        return (a[:-1] - 1) / x - ((a[-1] - 1) / (1 - x.sum(axis=1)))[:, None]

    def values(x: np.ndarray) -> Values:
        last = 1 - x.sum(axis=1)
        return {
            "p1": x[:, 0],
            "p1 p2": x[:, 0] * x[:, 1],
            "p1² p_k": x[:, 0] ** 2 * last,
            "Σ p²": np.sum(x**2, axis=1) + last**2,
            "−Σ p log p": -np.sum(x * np.log(x), axis=1) - last * np.log(last),
        }

    def moment(*powers: float) -> float:
        """E Π p_j^power."""
        k = np.array([*powers, *(0,) * (len(a) - len(powers))])
        logs = scipy.special.gammaln(a + k).sum() - scipy.special.gammaln(a).sum()
        logs += scipy.special.gammaln(total) - scipy.special.gammaln(total + k.sum())
        return float(np.exp(logs))

    entropy = scipy.special.digamma(total + 1) - a @ scipy.special.digamma(a + 1) / total
    last_of = (0,) * (len(a) - 1) + (1,)
    means = {
        "p1": moment(1),
        "p1 p2": moment(1, 1),
        "p1² p_k": moment(*np.add((2, *(0,) * (len(a) - 1)), last_of)),
        "Σ p²": float(np.sum(a * (a + 1)) / (total * (total + 1))),
        "−Σ p log p": float(entropy),
    }

    def flat(x: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        last = 1 - x.sum(axis=1, keepdims=True)
        p = np.concatenate([x, last], axis=1)
        # the density of log ratios is Π p^α
        return np.log(x / last), a[:-1] - total * p[:, :-1]

    draw = lambda rng, n: rng.dirichlet(a, n)[:, :-1]  # noqa: E731
    return Target(Simplex(), draw, score, values, means, flat)


def box() -> Target:
    """exp(1.5 y − x) on the unit square, times an exponential: no end where the density vanishes.
    In Rᵈ logits and a logarithm."""
    rate = np.array([1.0, -1.5])

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        x = -np.log1p(-rng.random((n, 2)) * (1 - np.exp(-rate))) / rate
        return np.column_stack([x, rng.exponential(2.0, n)])

    def values(x: np.ndarray) -> Values:
        return {
            "x": x[:, 0],
            "x y": x[:, 0] * x[:, 1],
            "z²": x[:, 2] ** 2,
            "exp(x y)": np.exp(x[:, 0] * x[:, 1]),
            "sin 3y": np.sin(3 * x[:, 1]),
        }

    t, weight = np.polynomial.legendre.leggauss(_NODES)
    grid = np.stack([a.ravel() for a in np.meshgrid((t + 1) / 2, (t + 1) / 2)], axis=1)
    p = np.outer(weight, weight).ravel() * np.exp(-grid @ rate)
    square = values(np.column_stack([grid, np.zeros(len(grid))]))
    means = _weighed(square, p) | {"z²": 8.0}

    def flat(x: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inside, z = x[:, :2], x[:, 2:]
        slope = inside * (1 - inside)
        y = np.concatenate([np.log(inside / (1 - inside)), np.log(z)], axis=1)
        return y, np.concatenate([s[:, :2] * slope + 1 - 2 * inside, s[:, 2:] * z + 1], axis=1)

    score = lambda x: np.broadcast_to([*-rate, -0.5], x.shape)  # noqa: E731
    return Target(Box([0, 0, 0], [1, 1, np.inf]), draw, score, values, means, flat)


TARGETS: dict[str, Callable[[], Target]] = {
    "von Mises, d = 2": lambda: torus(2),
    "von Mises, coupled": lambda: torus(2, 1.0),
    "von Mises, d = 5": lambda: torus(5),
    "von Mises–Fisher, κ = 3": lambda: sphere(3.0, (0.0, 0.0, 0.0)),
    "Bingham": lambda: sphere(0.0, (1.5, 0.0, -1.5)),
    "Dirichlet, k = 3": lambda: simplex((0.7, 1.0, 2.5)),
    "Dirichlet, k = 6": lambda: simplex((0.7, 1.0, 2.5, 3.0, 5.0, 2.0)),
    "box with open ends": box,
}


class _Answer(NamedTuple):
    """Of one replicate, for each integrand: how far the value and the plain mean are from the
    truth, and their errors."""

    off: np.ndarray
    error: np.ndarray
    plain: np.ndarray
    plain_error: np.ndarray


def _ask(job: tuple[str, int, int, str]) -> tuple[str, str, _Answer, _Answer | None]:
    """The answers in the space and, for some of the replicates, in Rᵈ."""
    name, seed, draws, effort = job
    target = TARGETS[name]()
    x = target.draw(np.random.default_rng(seed), draws)
    s, values = target.score(x), target.values(x)
    truth, family = np.array(list(target.means.values())), zv.Automatic(effort, progress=False)

    def answer(*at: np.ndarray, **where: Any) -> _Answer:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", zv.ZerovarWarning)
            found = zv.estimate(*at, values, family=family, **where)
        error = np.maximum(found.std_error, 1e-14 * np.abs(truth))  # rounding
        plain = found.plain_value - truth
        return _Answer(found.value - truth, error, plain, found.plain_std_error)

    flat = answer(*target.flat(x, s)) if seed < _FLAT and effort == "low" else None
    return name, effort, answer(x, s, space=target.space), flat


def rows(quick: bool, processes: int | None) -> Iterator[Row]:
    """One row a target and effort."""
    draws, efforts = (200, {"low": 2}) if quick else (_DRAWS, _REPLICATES)
    for effort, replicates in efforts.items():
        for name in list(TARGETS)[:: 3 if quick else 1]:
            jobs = [(name, seed, draws, effort) for seed in range(replicates)]
            answers = collect(_ask, jobs, processes)
            there = _stack([own for *_, own, _ in answers])
            flat = [other for *_, other in answers if other is not None]
            in_reals = (_realised(_stack(flat)), _covered(_stack(flat))) if flat else 2 * (np.nan,)
            yield Row(
                name,
                effort,
                replicates,
                _gain(there.plain_error, there.error),
                _realised(there),
                _realised(_without_worst(there)),
                _covered(there),
                *in_reals,
            )


def _stack(answers: list[_Answer]) -> _Answer:
    return _Answer(*map(np.array, zip(*answers, strict=True)))


def _without_worst(found: _Answer) -> _Answer:
    """Without the replicate that is furthest from the truth, in its plain errors."""
    worst = np.max(np.abs(found.off) / found.plain_error, axis=1).argmax()
    return _Answer(*(np.delete(part, worst, axis=0) for part in found))


def _gain(plain: np.ndarray, own: np.ndarray) -> float:
    """The least of all integrands."""
    return float(np.min(np.mean(plain**2, axis=0) / np.mean(own**2, axis=0)))


def _realised(found: _Answer) -> float:
    """The gain by distances from the truth, which chance may make zero."""
    return _gain(found.plain, np.maximum(np.abs(found.off), found.error * 1e-3))


def _covered(found: _Answer) -> float:
    return float(np.mean(np.abs(found.off) < 1.96 * found.error))


def measure(options: Namespace) -> dict[str, Any]:
    """Angles, directions, proportions, boxes."""
    columns = ("case", "effort", "replicates", "reported", "realised", "without worst", "covers")
    found = []
    for row in rows(options.quick, options.processes):
        found.append(row)
        print_table(
            "Draws that do not live in Rᵈ: least gain over integrands of the default call, by "
            "reported errors and by distances from the truth, and what ± 1.96 covers; the same "
            "draws in Rᵈ",
            (*columns, "realised in Rᵈ", "covers"),
            [
                (
                    row.case,
                    row.effort,
                    row.replicates,
                    *(f"{gain:.3g}" for gain in (row.reported, row.realised, row.without_worst)),
                    f"{row.covered:.1%}",
                    f"{row.flat:.3g}",
                    f"{row.flat_covered:.1%}",
                )
            ],
        )
    return {"spaces": [row._asdict() for row in found]}
