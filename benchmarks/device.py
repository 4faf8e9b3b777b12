"""One accelerator: the exact dual against a bare Cholesky factorisation, what is too large for
that, and many small fits."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import zerovar as zv

from .harness import Row, best, print_table, show
from .scale import FAMILY, ridge_of
from .targets import GENZ_MEANS, banana, genz


class Large(NamedTuple):
    """A fit that is done once: its time, and Var f / Var(f − g) on fresh draws."""

    case: str
    seconds: float
    gain: float
    note: str


def cholesky_rows(sizes: tuple[int, ...]) -> list[Row]:
    """Whole exact fits, points to coefficients, against the Cholesky factorisation of a matrix that
    is there already."""
    rows = []
    for n in sizes:
        x, s, f = banana(n)
        sample, objective = zv.Sample(x, s), zv.LeastSquares(zv.Ridge(ridge_of(x, s, 1e-6)))
        with jax.enable_x64(True):
            matrix = jnp.eye(n) + 0.1 / n
            root = jax.jit(jnp.linalg.cholesky)
            root(matrix).block_until_ready()
            floor = best(lambda root=root, matrix=matrix: root(matrix).block_until_ready(), 10)
            del matrix
        fit = best(
            lambda sample=sample, f=f, objective=objective: zv.fit(
                FAMILY, sample, f, objective, zv.Exact()
            ),
            10,
        )
        prepared = zv.fit(FAMILY, sample, f, objective, zv.Exact())
        rows.append(Row(f"exact fit, n = {n}", floor, fit, 2.0))
        rows.append(Row(f"  with leave-one-out, n = {n}", floor, fit + best(prepared.leave_out, 2)))
    return rows


def large_rows(exact: int, iterative: int, centres: int) -> list[Large]:
    """Each way at its size, once, compilation included."""
    found = []
    for solver, n in ((zv.Exact(), exact), (zv.CG(), iterative), (zv.Nystrom(2000), centres)):
        x, s, f = banana(n)
        sample, objective = zv.Sample(x, s), zv.LeastSquares(zv.Ridge(ridge_of(x, s, 1e-6)))
        start = time.perf_counter()
        fitted = zv.fit(FAMILY, sample, f, objective, solver)
        seconds = time.perf_counter() - start
        fresh, scores, values = banana(20_000, seed=1)
        left = values - fitted(zv.Sample(fresh, scores))
        note = ", ".join(
            f"{key} {fitted.stats[key]}" for key in ("iterations", "rank") if key in fitted.stats
        )
        gain = float(np.median(values.var(axis=0) / left.var(axis=0)))
        found.append(Large(f"{type(solver).__name__} n = {n}", seconds, gain, note))
    return found


def genz_rows(repetitions: int, n: int = 1000) -> list[Row]:
    """The paper's first study, all functions and repetitions in one program, against one fit after
    the other."""
    draws = np.random.default_rng(0).normal(size=(repetitions, n, 1))
    values = np.stack([genz(x) for x in draws])
    family, ridge, half = zv.Kernel(zv.kernels.Gaussian(0.5)), 1e-8, n // 2

    def together() -> Any:
        with jax.enable_x64(True):
            return np.asarray(
                _held_out(family, ridge, jnp.asarray(draws), jnp.asarray(values), half)
            )

    def one_by_one() -> Any:
        objective = zv.LeastSquares(zv.Ridge(ridge))
        out = []
        for x, f in zip(draws, values, strict=True):
            fitted = zv.fit(
                family,
                zv.Sample(x[:half], -x[:half]),
                f[:half],
                objective,
                zv.Exact(),
                standardise=False,
            )
            out.append(np.mean(f[half:] - fitted.at(x[half:], -x[half:]), axis=0))
        return np.array(out)

    both = together(), one_by_one()
    apart = np.abs(both[0] - both[1]).max() / np.abs(both[1] - GENZ_MEANS).mean()
    note = f"largest difference {apart:.1e} of the mean error"
    return [
        Row(
            f"six Genz functions, {repetitions} repetitions",
            best(one_by_one, 2),
            best(together, 3),
            note=note,
        )
    ]


@eqx.filter_jit
def _held_out(family: Any, ridge: float, draws: Any, values: Any, half: int) -> Any:
    """A family is a tree of arrays with pure methods: the whole study is one vmapped function of
    the draws."""

    def one(x: Any, f: Any) -> Any:
        fitting, s = x[:half], -x
        gram = family.gram(fitting, s[:half], fitting, s[:half]) + half * ridge * jnp.eye(half)
        factor = jax.scipy.linalg.cho_factor(gram)
        ones = jax.scipy.linalg.cho_solve(factor, jnp.ones(half))
        solved = jax.scipy.linalg.cho_solve(factor, f[:half])
        intercept = jnp.sum(solved, axis=0) / jnp.sum(ones)
        g = family.gram(x[half:], s[half:], fitting, s[:half]) @ (
            solved - ones[:, None] * intercept
        )
        return jnp.mean(f[half:] - g, axis=0)

    return jax.vmap(one)(draws, values)


def measure(options: Namespace) -> dict[str, Any]:
    """What needs an accelerator to be worth its time; small sizes run anywhere."""
    results: dict[str, Any] = {"genz": genz_rows(*((2, 60) if options.quick else (20, 1000)))}
    show(
        "One program for all repetitions, against one fit after the other",
        results["genz"],
        "one by one",
    )
    if not options.quick:
        results["cholesky"] = cholesky_rows((20_000,))
        show(
            "Exact dual on the default device against a bare Cholesky factorisation",
            results["cholesky"],
            "Cholesky",
        )
        large = large_rows(100_000, 100_000, 10**6)
        results["large"] = [row._asdict() for row in large]
        print_table(
            "As large as it gets: kernel + quadratic, d = 10",
            ("solver", "seconds", "Var f / Var(f − g) on fresh draws", ""),
            [(row.case, f"{row.seconds:.1f}", f"{row.gain:.3g}", row.note) for row in large],
        )
    return results
