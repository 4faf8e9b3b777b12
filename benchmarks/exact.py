"""The exact solver against the LAPACK and matrix products that it cannot do without."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

import zerovar as zv
from zerovar.families import LinearFamily

from .harness import Row, best, in_fresh_process, peak_begun_anew, peak_gigabytes, show

KERNEL = zv.Kernel(zv.kernels.Gaussian(3.0))
RIDGE = zv.LeastSquares(zv.Ridge(1e-6))


def draws(n: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A Gaussian sample with three integrands."""
    x = np.random.default_rng(n + d).normal(size=(n, d))
    return x, -x, np.sin(x[:, :3])


def kernel_rows(sizes: tuple[int, ...], d: int = 10) -> list[Row]:
    """Fits with given kernel and ridge: Gram's products and Cholesky as the floor; with
    leave-one-out, Cholesky and inverse."""
    rows = []
    for n in sizes:
        x, s, f = draws(n, d)
        sample = zv.Sample(x, s)
        products = best(lambda x=x, s=s: (x @ x.T, s @ s.T, s @ x.T))
        matrix = _positive(n)
        cholesky = _in_place(matrix, lambda a: lapack.dpotrf(a, lower=1, overwrite_a=1, clean=0))
        lapack.dpotrf(matrix, lower=1, overwrite_a=1, clean=0)
        inverse = _in_place(matrix, lambda a: lapack.dpotri(a, lower=1, overwrite_c=1))
        fit = best(lambda sample=sample, f=f: zv.fit(KERNEL, sample, f, RIDGE))
        both = best(lambda sample=sample, f=f: zv.fit(KERNEL, sample, f, RIDGE).leave_out(), 3)
        rows.append(Row(f"kernel fit, n = {n}, d = {d}", products + cholesky, fit, 2.0))
        rows.append(Row(f"  with leave-one-out, n = {n}", cholesky + inverse, both, 2.0))
    return rows


def polynomial_rows(cases: tuple[tuple[int, int], ...], dual: tuple[int, int]) -> list[Row]:
    """Primal: forming ΦᵀΦ and factorising it, Φ given. Dual: the Gram's three products and one
    Cholesky."""
    rows = []
    for n, d in cases:
        x, s, f = draws(n, d)
        sample, p = zv.Sample(x, s), d * (d + 3) // 2
        phi = np.random.default_rng(0).normal(size=(p, n))

        def floor(phi: np.ndarray = phi) -> None:
            gram = blas.dsyrk(1.0, phi.T, trans=1, lower=1)
            lapack.dpotrf(gram, lower=1, overwrite_a=1, clean=0)

        family = zv.Polynomial(2)
        ours = best(lambda sample=sample, f=f, family=family: zv.fit(family, sample, f), 3)
        rows.append(Row(f"Polynomial(2) primal, n = {n}, d = {d}, p = {p}", best(floor, 3), ours))
    n, d = dual
    x, s, f = draws(n, d)
    matrix = _positive(n)
    cholesky = _in_place(matrix, lambda a: lapack.dpotrf(a, lower=1, overwrite_a=1, clean=0))
    products = best(lambda: (x @ x.T, s @ s.T, s @ x.T))
    ours = best(lambda: zv.fit(zv.Polynomial(2), zv.Sample(x, s), f, RIDGE, standardise=False), 3)
    rows.append(Row(f"Polynomial(2) dual, n = {n}, d = {d}", products + cholesky, ours))
    return rows


def first_call_rows() -> list[Row]:
    """Compile time: the first estimate in a fresh process, against the second; and the import."""
    rows = []
    for label, family in (
        ("Polynomial(2)", "zv.Polynomial(2)"),
        ("Kernel(Gaussian)", "zv.Kernel()"),
        ("sum", "zv.Polynomial(2) + zv.Kernel()"),
    ):
        setup = "x = np.random.default_rng(0).normal(size=(1000, 10))"
        imported, first, second = in_fresh_process(
            setup, f"zv.estimate(x, -x, np.sin(x), family={family})"
        )
        rows.append(
            Row(
                f"{label}, n = 1000, d = 10: first call",
                second,
                first,
                note=f"import {imported:.2f} s",
            )
        )
    return rows


def peak_memory(n: int = 4000, family: LinearFamily = KERNEL) -> float:
    """n × n float64 matrices that a fit with leave-one-out peaks at, above the process's size after
    a warm-up."""
    x, s, f = draws(n, 10)
    sample = zv.Sample(x, s)
    small = zv.Sample(x[:600], s[:600])
    zv.fit(family, small, f[:600], RIDGE).leave_out()
    before = peak_begun_anew()
    zv.fit(family, sample, f, RIDGE).leave_out()
    return 1e9 * (peak_gigabytes() - before) / (8 * n * n)


def _positive(n: int) -> np.ndarray:
    base = np.random.default_rng(0).normal(size=(n, 32))
    return np.asfortranarray(base @ base.T + n * np.eye(n))


def _in_place(matrix: np.ndarray, run, repeats: int = 5) -> float:
    """Seconds of a routine that overwrites its argument, without the copy."""
    times = []
    for _ in range(repeats):
        copy = matrix.copy(order="F")
        start = time.perf_counter()
        run(copy)
        times.append(time.perf_counter() - start)
    return min(times)


def measure(options: Namespace) -> dict[str, Any]:
    """Exact fits against what they cannot do without, and how much memory the largest takes."""
    quick = options.quick
    sizes = (300,) if quick else (1000, 2000, 4000)
    cases, dual = (((500, 5),), (200, 50)) if quick else (((10_000, 20), (5000, 61)), (2000, 500))
    kernel_rows((200,))  # compile
    results: dict[str, list[Row]] = {}
    results["kernel"] = kernel_rows(sizes)
    show(
        "Exact kernel fits against products + Cholesky (and Cholesky + inverse)",
        results["kernel"],
        "LAPACK",
    )
    polynomial_rows(cases, dual)  # compile
    results["polynomial"] = polynomial_rows(cases, dual)
    show(
        "Quadratic polynomials against ΦᵀΦ + Cholesky, and the dual's products + Cholesky",
        results["polynomial"],
        "LAPACK",
    )
    if not quick:
        results["first call"] = first_call_rows()
        show("First call (compiles) against the second", results["first call"], "second call")
    matrices = peak_memory(600 if quick else 4000)
    print(
        f"Peak memory of the largest kernel fit with leave-one-out: {matrices:.2f} n × n matrices "
        "(bound 4)"
    )
    return results
