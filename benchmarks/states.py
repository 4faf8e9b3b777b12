"""Spins, inclusion indicators and counts: control variates of differences, against sums over all
states or long runs.

A case has draws of its own sampler, log ratios to all neighbours, integrands, and their means, each
with a standard error that is zero where they come from a sum over all states.
"""

from __future__ import annotations

import functools
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64

import zerovar as zv
from zerovar.families import Family
from zerovar.spaces import Grid

from .harness import print_table

_SIDE = 16  # of the lattice
_SWEEPS = 5  # of its heat bath between draws
_CHAINS = 4  # of it
_LONG = 40_000  # draws of each long run: errors are a ninth of those of 500
_SHIFTS = ((0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (0, 4), (0, 6))  # of its correlations
_VARIABLES, _ROWS = 12, 60  # of the regression
_REPLICATES, _FEW = 40, 12  # of the second where a call takes many seconds
Values = dict[str, np.ndarray]


class States(NamedTuple):
    """Draws (chain, draw, d), log ratios (chain, draw, k), and integrands (chain, draw)."""

    draws: np.ndarray
    ratios: np.ndarray
    values: Values


class Case(NamedTuple):
    """A target: draws by seed and number, means with their errors, space, a family of its own where
    the default call has none for it, and at most how many replicates."""

    sample: Callable[[int, int], States]
    truth: Callable[[], dict[str, tuple[float, float]]]
    space: Grid
    family: Family | None = None
    replicates: int = _REPLICATES


class Row(NamedTuple):
    """Of one integrand, over replicates: the gain by distances from the truth and that by reported
    errors, both by mean squares; how often 1.96 errors cover, and the median time of a call."""

    case: str
    integrand: str
    realised: float
    reported: float
    covered: float
    replicates: int
    seconds: float


# ---- two values, few coordinates: all states


def all_states(d: int) -> np.ndarray:
    """{0, 1}ᵈ as rows (2ᵈ, d), the first coordinate the highest bit."""
    return (np.arange(2**d)[:, None] >> np.arange(d)[::-1] & 1).astype(float)


def flip_ratios(log_p: Float64[np.ndarray, " s"], states: np.ndarray) -> np.ndarray:
    """log p(x′) − log p(x) for flips of each coordinate, at these numbers of states."""
    d = int(np.log2(len(log_p)))
    return (
        np.stack([log_p[states ^ (1 << j)] for j in range(d)[::-1]], axis=-1) - log_p[states, None]
    )


def gibbs(log_p: Float64[np.ndarray, " s"], seed: int, n: int, chains: int = 2) -> np.ndarray:
    """Numbers of states, (chain, draw), by sweeps over all coordinates of a density on {0, 1}ᵈ."""
    rng, d = np.random.default_rng(seed), int(np.log2(len(log_p)))
    state = rng.integers(len(log_p), size=chains)
    out = np.empty((chains, n // chains), dtype=int)
    for k in range(-20, n // chains):
        for j in range(d):
            ahead = log_p[state | (1 << j)] - log_p[state & ~(1 << j)]
            on = rng.random(chains) < 1 / (1 + np.exp(-ahead))
            state = np.where(on, state | (1 << j), state & ~(1 << j))
        if k >= 0:
            out[:, k] = state
    return out


@functools.cache
def regression() -> Float64[np.ndarray, " s"]:
    """The log posterior of which variables a regression includes: correlated predictors, Zellner's
    prior with g = n, each variable in with probability 1/4."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(_ROWS, _VARIABLES)) + 0.8 * rng.normal(size=(_ROWS, 1))
    y = x[:, :3] @ np.array([0.6, -0.4, 0.3]) + rng.normal(size=_ROWS)
    x, y = x - x.mean(axis=0), y - y.mean()
    states, out = all_states(_VARIABLES), np.empty(2**_VARIABLES)
    for k, row in enumerate(states):
        q = x[:, row > 0]
        fit = q @ np.linalg.lstsq(q, y, rcond=None)[0] if q.shape[1] else 0 * y
        left = y @ y - _ROWS / (1 + _ROWS) * (y @ fit)
        size = q.shape[1]
        out[k] = -0.5 * size * np.log(1 + _ROWS) - 0.5 * (_ROWS - 1) * np.log(left)
        out[k] += size * np.log(0.25) + (_VARIABLES - size) * np.log(0.75)
    return out


@functools.cache
def mixture() -> Float64[np.ndarray, " s"]:
    """log p of a mixture of two products of Bernoulli distributions in ten coordinates."""
    p = np.random.default_rng(2).uniform(0.15, 0.85, size=(2, 10))
    x = all_states(10)[:, None]
    return np.logaddexp(*np.sum(x * np.log(p) + (1 - x) * np.log(1 - p), axis=2).T)


@functools.cache
def small_lattice() -> Float64[np.ndarray, " s"]:
    """log p of the Ising model on 4×4 spins at β = 0.3, periodic."""
    spins = 2 * all_states(16).reshape(-1, 4, 4) - 1
    return 0.3 * (spins * around(spins)).sum(axis=(-2, -1)) / 2


def small_lattice_values(x: np.ndarray) -> Values:
    """m², energy a site and whether the corners of a square are all up, of indicators (..., 16)."""
    spins = 2 * x.reshape(*x.shape[:-1], 4, 4) - 1
    return {
        "m²": spins.mean(axis=(-2, -1)) ** 2,
        "energy": -(spins * around(spins)).mean(axis=(-2, -1)) / 2,
        "square up": x[..., [0, 2, 8, 10]].prod(axis=-1),
    }


def _of_states(log_p: Callable[[], np.ndarray], values: Callable[[np.ndarray], Values]) -> Case:
    def draw(seed: int, n: int) -> States:
        states = gibbs(log_p(), seed, n)
        x = all_states(int(np.log2(len(log_p()))))[states]
        return States(x, flip_ratios(log_p(), states), values(x))

    def truth() -> dict[str, tuple[float, float]]:
        p = np.exp(log_p() - np.logaddexp.reduce(log_p()))
        every = values(all_states(int(np.log2(len(p)))))
        return {name: (float(p @ value), 0.0) for name, value in every.items()}

    return Case(draw, truth, Grid(), replicates=_FEW)


# ---- spins


def heat_bath(beta: float, seed: int, n: int) -> np.ndarray:
    """Spins ±1 on a periodic square lattice, (chain, draw, side, side), by a heat bath on the two
    colours of a chess-board; the first 300 sweeps are left out."""
    rng, size = np.random.default_rng(seed), _SIDE
    spins = rng.choice([-1.0, 1.0], size=(_CHAINS, size, size))
    colour = np.add.outer(np.arange(size), np.arange(size)) % 2
    out = []
    for sweep in range(300 + n // _CHAINS * _SWEEPS):
        for which in (0, 1):
            up = rng.random(spins.shape) < 1 / (1 + np.exp(-2 * beta * around(spins)))
            spins = np.where(colour == which, np.where(up, 1.0, -1.0), spins)
        if sweep >= 300 and (sweep + 1) % _SWEEPS == 0:
            out.append(spins)
    return np.stack(out, axis=1)


def around(spins: np.ndarray) -> np.ndarray:
    """The sum of the four nearest spins."""
    return sum(np.roll(spins, step, axis) for step in (1, -1) for axis in (-1, -2))


def lattice_values(spins: np.ndarray) -> Values:
    """Means over the lattice that physicists ask for, (chain, draw)."""
    site = (-2, -1)
    third = np.roll(spins, 3, -1) + np.roll(spins, 3, -2)
    return {
        "m²": spins.mean(axis=site) ** 2,
        "|m|": np.abs(spins.mean(axis=site)),
        "energy": -(spins * around(spins)).mean(axis=site) / 2,
        "correlation at 3": (spins * third).mean(axis=site) / 2,
    }


class LatticeSums(zv.BasisFamily):
    """m², the correlations at some distances, and their products: sums over the lattice, so that
    few functions serve all sites."""

    operator: zv.Operator

    def __init__(self, operator: zv.Operator | None = None):
        self.operator = zv.ScalarLangevin() if operator is None else operator

    def basis(self, x):
        waves = jnp.fft.rfft2(x.reshape(_SIDE, _SIDE))
        c = jnp.fft.irfft2(jnp.abs(waves) ** 2, s=(_SIDE, _SIDE)) / x.size
        turned = [(c[a, b] + c[b, a] + c[a, -b] + c[b, -a]) / 4 for a, b in _SHIFTS]
        one = jnp.stack([jnp.mean(x) ** 2, *turned])
        first, second = np.triu_indices(len(one))
        return jnp.concatenate([one, one[first] * one[second]])

    def features(self, x, s):
        """In closed form, from what a flip changes: L(fg) = f Lg + g Lf + Σ w δf δg."""
        sums = jax.vmap(self.basis)(x)[:, : 1 + len(_SHIFTS)]
        spins, size = x.reshape(-1, _SIDE, _SIDE), x.shape[1]
        changes = [-4 * jnp.mean(x, axis=1)[:, None] * x / size + 4 / size**2]
        for a, b in _SHIFTS:
            near = sum(
                jnp.roll(spins, shift, (1, 2)) + jnp.roll(spins, (-shift[0], -shift[1]), (1, 2))
                for shift in ((a, b), (b, a), (a, -b), (b, -a))
            )
            changes.append(-x * near.reshape(x.shape) / (2 * size))
        change = jnp.stack(changes, axis=1)
        moved = jnp.einsum("nk,njk->nj", s, change)
        both = jnp.einsum("nik,nk,njk->nij", change, s, change)
        both = both + sums[:, :, None] * moved[:, None] + moved[:, :, None] * sums[:, None]
        first, second = np.triu_indices(sums.shape[1])
        return jnp.concatenate([moved, both[:, first, second]], axis=1)

    def num_features(self, d):
        sums = 1 + len(_SHIFTS)
        return sums + sums * (sums + 1) // 2

    def describe(self):
        return "sums over the lattice"

    def unweighted(self):
        return self


def _ising(beta: float) -> Case:
    def draw(seed: int, n: int) -> States:
        spins = heat_bath(beta, seed, n)
        flat = spins.reshape(*spins.shape[:2], -1)
        ratios = -2 * beta * (spins * around(spins)).reshape(flat.shape)
        return States((flat + 1) / 2, ratios, lattice_values(spins))

    def truth() -> dict[str, tuple[float, float]]:
        values = lattice_values(heat_bath(beta, 10**6, _LONG))
        blocks = {k: v.reshape(_CHAINS * 25, -1).mean(axis=1) for k, v in values.items()}
        return {k: (float(b.mean()), float(b.std() / np.sqrt(len(b)))) for k, b in blocks.items()}

    return Case(draw, truth, Grid(), LatticeSums())


# ---- counts


def _log_factorial(x: np.ndarray) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, 400)))])[x.astype(int)]


def two_seasons(x: np.ndarray) -> np.ndarray:
    """log p of two counts, Poisson with means (3, 2) in one season and (9, 7) in the other."""
    parts = [
        x @ np.log(rate) - sum(rate) - _log_factorial(x).sum(axis=-1) + np.log(share)
        for rate, share in ((np.array([3.0, 2.0]), 0.6), (np.array([9.0, 7.0]), 0.4))
    ]
    return np.logaddexp(*parts)


def queue(x: np.ndarray) -> np.ndarray:
    """log p of a birth–death process in equilibrium: births at a rate 6, deaths at x^1.4."""
    return x[..., 0] * np.log(6.0) - 1.4 * _log_factorial(x).sum(axis=-1)


def step_ratios(log_p: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    """log p(x′) − log p(x) of a step up in each count and then a step down in each."""
    d = x.shape[-1]
    steps, at = np.concatenate([np.eye(d), -np.eye(d)]), log_p(x)
    there = x[..., None, :] + steps
    change = log_p(np.maximum(there, 0)) - at[..., None]
    return np.where((there >= 0).all(axis=-1), change, -np.inf)


def _of_counts(
    log_p: Callable[[np.ndarray], np.ndarray], d: int, values: Callable[[np.ndarray], Values]
) -> Case:
    top = np.stack(np.meshgrid(*d * [np.arange(60.0)], indexing="ij"), axis=-1).reshape(-1, d)
    log = log_p(top)
    p = np.exp(log - np.logaddexp.reduce(log))

    def draw(seed: int, n: int) -> States:
        x = top[np.random.default_rng(seed).choice(len(top), size=n, p=p)][None]
        return States(x, step_ratios(log_p, x), values(x))

    def truth() -> dict[str, tuple[float, float]]:
        return {name: (float(p @ value), 0.0) for name, value in values(top).items()}

    return Case(draw, truth, Grid(0, np.inf))


CASES = {
    "Bernoulli mixture, d = 10": _of_states(
        mixture, lambda x: {"sum²": x.sum(axis=-1) ** 2, "pair": x[..., 0] * x[..., 5]}
    ),
    "Ising 4×4, β = 0.3": _of_states(small_lattice, small_lattice_values),
    "regression, 12 variables": _of_states(
        regression,
        lambda x: {f"in: {j}": x[..., j] for j in (0, 1, 2, 3)} | {"size": x.sum(axis=-1)},
    ),
    "two seasons of counts": _of_counts(
        two_seasons,
        2,
        lambda x: {
            "sum": x.sum(axis=-1),
            "product": x[..., 0] * x[..., 1],
            "empty": 1.0 * (x[..., 0] == 0),
        },
    ),
    "queue": _of_counts(
        queue, 1, lambda x: {"length": x[..., 0], "square": x[..., 0] ** 2, "√": np.sqrt(x[..., 0])}
    ),
    "Ising 16×16, β = 0.3": _ising(0.3),
    "Ising 16×16, β = 0.4": _ising(0.4),
}


def rows(n: int, most: int = _REPLICATES, only: str = "", quick: bool = False) -> Iterator[Row]:
    """Each case over replicates of n draws, `most` of them or as many as it says."""
    for name, case in CASES.items():
        if only not in name or (quick and case.family):
            continue
        replicates = min(most, case.replicates)
        truth = case.truth()
        found, plain, errors, plain_errors, seconds = ([] for _ in range(5))
        for seed in range(replicates):
            draws, ratios, values = case.sample(seed, n)
            begun = time.perf_counter()
            answer = zv.estimate(
                draws,
                ratios,
                values,
                space=case.space,
                family=case.family,
                objective=zv.LeastSquares(zv.Ridge(1e-8)) if case.family else None,
            )
            seconds.append(time.perf_counter() - begun)
            found.append(answer.value)
            plain.append(answer.plain_value)
            errors.append(answer.std_error)
            plain_errors.append(answer.plain_std_error)
        known, known_error = np.array([truth[key] for key in values]).T
        off, plain_off = np.array(found) - known, np.array(plain) - known
        total = np.sqrt(np.array(errors) ** 2 + known_error**2)
        reported = np.mean(np.square(plain_errors), axis=0) / np.mean(np.square(errors), axis=0)
        for j, key in enumerate(values):
            square = np.mean(off[:, j] ** 2) - known_error[j] ** 2
            yield Row(
                name,
                key,
                float((np.mean(plain_off[:, j] ** 2) - known_error[j] ** 2) / square),
                float(reported[j]),
                float(np.mean(np.abs(off[:, j]) < 1.96 * total[:, j])),
                replicates,
                float(np.median(seconds)),
            )


def measure(options: Namespace) -> dict[str, Any]:
    """Spins, inclusion indicators and counts."""
    found = list(rows(200, 2, quick=True) if options.quick else rows(1000))
    print_table(
        "Countable spaces: gains of 1000 draws against the truth, and how often 1.96 errors cover",
        ("case", "integrand", "replicates", "realised", "reported", "± 1.96 covers", "seconds"),
        [
            (
                row.case,
                row.integrand,
                row.replicates,
                f"{row.realised:.3g}",
                f"{row.reported:.3g}",
                f"{row.covered:.1%}",
                f"{row.seconds:.1f}",
            )
            for row in found
        ],
    )
    return {"states": [row._asdict() for row in found]}
