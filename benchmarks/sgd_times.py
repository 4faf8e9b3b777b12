"""What training takes: against the authors' program, growth, compiling, and one step against its
matrix products."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import zerovar as zv
from zerovar.families import Family

from .harness import Row, Slope, best, in_fresh_process
from .targets import genz

KERNEL = zv.Kernel(zv.kernels.Decaying(0.1, 1.0, product=True))  # the authors' base kernel
SMALL_RIDGE = zv.LeastSquares(zv.Ridge(1e-7))
# Seconds of the authors' program on two cores: batch 8, m = 500 (n = 1000)
AUTHORS = {
    "polynomial": {1: 6.65, 5: 7.0, 20: 7.05},
    "kernel": {5: 0.85, 25: 3.84},
    "network": 65.0,
}


def authors_rows(
    dimensions: Iterable[int] = (1, 5, 20), networks: bool = True, m: int = 500
) -> list[Row]:
    """The whole fit (coordinates, training, choice), warm, at the authors' batch size and
    epochs."""
    rows = []
    for d in dimensions:
        x = np.random.default_rng(d).normal(size=(m, d))
        run = _fit(zv.Polynomial(2), x, x.sum(axis=1), zv.SGD(batch_size=8, epochs=25))
        rows.append(
            Row(f"degree 2, d = {d}, 25 epochs", AUTHORS["polynomial"][d], best(run), 1 / 100)
        )
    x = np.random.default_rng(0).normal(size=(m, 1))
    for epochs in (5, 25):
        run = _fit(KERNEL, x, genz(x)[:, 3], zv.SGD(batch_size=8, epochs=epochs), SMALL_RIDGE)
        rows.append(
            Row(f"kernel, d = 1, {epochs} epochs", AUTHORS["kernel"][epochs], best(run), 1 / 30)
        )
    x = np.random.default_rng(0).normal(size=(m, 5))
    for label, operator in (
        (("vector field", zv.Langevin()), ("potential", zv.ScalarLangevin())) if networks else ()
    ):
        solver = zv.SGD(batch_size=8, epochs=25, validation=0.0)
        run = _fit(zv.Network(zv.MLP(20, 6), operator), x, np.sin(x.sum(axis=1)), solver)
        rows.append(
            Row(
                f"network 6 × 20 ({label}), d = 5, 25 epochs",
                AUTHORS["network"],
                best(run, 3),
                1 / 100,
            )
        )
    return rows


def _fit(
    family: Family, x: np.ndarray, f: np.ndarray, solver: zv.SGD, objective: Any = None
) -> Callable[[], zv.Fitted]:
    sample = zv.Sample(x, -x)
    return lambda: zv.fit(family, sample, f, objective, solver)


def cold_rows() -> list[Row]:
    """The first fit in a fresh process, which compiles, against the second."""
    rows = []
    for label, family in (
        ("degree 2", "zv.Polynomial(2)"),
        ("kernel", "zv.Kernel()"),
        ("network 6 × 20, vector field", "zv.Network(zv.MLP(20, 6))"),
        ("network 6 × 20, potential", "zv.Network(zv.MLP(20, 6), zv.ScalarLangevin())"),
    ):
        setup = (
            "x = np.random.default_rng(0).normal(size=(500, 5)); sample = zv.Sample(x, -x); f "
            "= np.sin(x.sum(axis=1))"
        )
        call = f"zv.fit({family}, sample, f, None, zv.SGD(batch_size=8, epochs=25))"
        _, first, second = in_fresh_process(setup, call)
        rows.append(
            Row(
                f"{label}, first fit",
                second,
                first,
                note=f"{'ok' if first < 5 else 'MISSED'}: bound 5 s",
            )
        )
    return rows


def slopes(quick: bool) -> list[Slope]:
    """Growth of the time of one epoch in the draws and in the dimension, features kept or made anew
    for each batch."""
    draws = (500, 2000) if quick else (500, 1500, 5000, 15_000, 50_000)
    x = np.random.default_rng(0).normal(size=(max(draws), 5))
    f = np.sin(x.sum(axis=1))
    options: dict[str, Any] = {"batch_size": 64}
    out = [
        _slope(
            "degree 2, d = 5, m", draws, lambda m: (zv.Polynomial(2), x[:m], f[:m], options), 1.1
        )
    ]
    if quick:
        return out
    out.append(
        _slope(
            "kernel, 100 centres, m",
            draws,
            lambda m: (zv.Kernel(), x[:m], f[:m], options | {"centres": 100}),
            1.1,
        )
    )

    def gaussian(d: int, m: int = 2000) -> tuple[np.ndarray, np.ndarray]:
        z = np.random.default_rng(d).normal(size=(m, d))
        return z, z.sum(axis=1)

    plain = options | {"precondition": False, "learning_rate": 1e-4}
    many, wide = (20, 30, 43, 64), (8, 12, 16, 20)  # up to 1024 features are whitened densely
    out.append(
        _slope("degree 2, d", many[:3], lambda d: (zv.Polynomial(2), *gaussian(d), options), 2.1)
    )
    out.append(
        _slope("degree 3, d", wide[:3], lambda d: (zv.Polynomial(3), *gaussian(d), options), 3.1)
    )
    out.append(
        _slope(
            "degree 2, features made anew, d",
            many,
            lambda d: (zv.Polynomial(2), *gaussian(d), plain),
            2.1,
            kept=False,
        )
    )
    out.append(
        _slope(
            "degree 3, features made anew, d",
            wide,
            lambda d: (zv.Polynomial(3), *gaussian(d), plain),
            3.1,
            kept=False,
        )
    )
    centres, sizes = options | {"centres": 100}, (2, 8, 32, 128)
    out.append(
        _slope(
            "kernel, made anew, d",
            sizes,
            lambda d: (zv.Kernel(), *gaussian(d), centres),
            1.1,
            kept=False,
        )
    )
    return out


def _slope(
    case: str,
    sizes: tuple[int, ...],
    problem: Callable[[int], tuple],
    bound: float,
    kept: bool = True,
) -> Slope:
    """An epoch is the difference of two fits that differ in epochs alone, by as many as can be told
    from noise."""
    from zerovar.solvers.training import trainer

    keep, seconds = trainer.KEPT, []
    trainer.KEPT = keep if kept else 0
    try:
        for size in sizes:
            family, x, f, options = problem(size)
            more = max(10, 300_000 // len(x)) if kept else 10
            objective = zv.LeastSquares(zv.Ridge(1e-4))
            short, long = (
                _fit(family, x, f, zv.SGD(epochs=epochs, **options), objective)
                for epochs in (2, 2 + more)
            )
            short()
            long()
            seconds.append(max((best(long, 3) - best(short, 3)) / more, 1e-6))
    finally:
        trainer.KEPT = keep
    return Slope(case, sizes, tuple(seconds), bound)


def step_rows(
    sizes: Iterable[tuple[int, int]] = ((256, 1000), (1024, 1000)), d: int = 10, m: int = 20_000
) -> list[Row]:
    """One step against the products that it cannot do without: the Gram block's four, the
    whitening, the fit and its slope."""
    from zerovar.solvers.training import trainer

    x, rows, keep = np.random.default_rng(0).normal(size=(m, d)), [], trainer.KEPT
    for batch, centres in sizes:
        for label, room in (("features kept", keep), ("made for each batch", 0)):
            trainer.KEPT = room
            try:
                options = {"batch_size": batch, "centres": centres}
                objective = zv.LeastSquares(zv.Ridge(1e-4))
                short, long = (
                    _fit(
                        zv.Kernel(),
                        x,
                        np.sin(x.sum(axis=1)),
                        zv.SGD(epochs=e, **options),
                        objective,
                    )
                    for e in (1, 6)
                )
                stats = short().stats
                long()
                ours = (best(long, 2) - best(short, 2)) / (5 * -(-m // batch))
            finally:
                trainer.KEPT = keep
            floor = _products(
                x,
                batch,
                *(-(-stats[key] // 32) * 32 for key in ("centres", "unknowns")),
                bool(room),
            )
            rows.append(
                Row(f"a step, b = {batch}, {stats['centres']} centres, {label}", floor, ours, 3.0)
            )
    return rows


def _products(x: np.ndarray, batch: int, centres: int, size: int, kept: bool) -> float:
    """Seconds of the products of one step: with kept features a gather and two products, else the
    Gram's and B too."""
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        points, others, matrix, w = (
            jnp.asarray(x[:batch]),
            jnp.asarray(x[:centres]),
            jnp.ones((centres, size)),
            jnp.ones((size, 1)),
        )
        psi, chosen = (
            jnp.ones((len(x), size)),
            jnp.asarray(np.random.default_rng(0).integers(0, len(x), batch)),
        )

        @jax.jit
        def floor(points, others, matrix, w, psi, chosen):
            if kept:
                rows = psi[chosen]
            else:  # sums stand in for the kernel's elementwise work
                gram = (
                    points @ others.T
                    + (2 * points) @ others.T
                    + points @ (2 * others).T
                    + (3 * points) @ (2 * others).T
                )
                rows = gram @ matrix
            return rows.T @ (rows @ w)

        def many() -> None:
            for _ in range(20):
                out = floor(points, others, matrix, w, psi, chosen)
            jax.block_until_ready(out)

        many()
        return best(many, 3) / 20


def speed_rows(sizes: Iterable[int] = (10_000, 100_000)) -> list[Row]:
    """Seconds of a whole fit on this machine's device: for the table of CPU against GPU."""
    rows = []
    for m in sizes:
        x = np.random.default_rng(0).normal(size=(m, 10))
        f = np.sin(x.sum(axis=1))
        cases = (
            ("degree 2", zv.Polynomial(2), zv.SGD(batch_size=256, epochs=10)),
            ("kernel, 500 centres", zv.Kernel(), zv.SGD(batch_size=256, epochs=10, centres=500)),
            ("network 4 × 128", zv.Network(zv.MLP(128, 4)), zv.SGD(batch_size=1024, epochs=5)),
        )
        for label, family, solver in cases:
            objective = (
                zv.LeastSquares()
                if isinstance(family, zv.Network)
                else zv.LeastSquares(zv.Ridge(1e-6))
            )
            run = _fit(family, x, f, solver, objective)
            start = time.perf_counter()
            run()
            first = time.perf_counter() - start
            rows.append(
                Row(
                    f"{label}, m = {m}, d = 10",
                    first,
                    best(run, 2),
                    note="first (compiles) against second",
                )
            )
    return rows
