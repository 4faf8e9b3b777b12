"""Training: accuracy against the exact solver, networks, ensembles; what it takes is in
`sgd_times.py`."""

from __future__ import annotations

import warnings
from argparse import Namespace
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import gmean

import zerovar as zv

from .harness import print_table, show, show_slopes
from .sgd_times import KERNEL, SMALL_RIDGE, authors_rows, cold_rows, slopes, step_rows
from .targets import GENZ_MEANS, GENZ_NAMES, Mixture, gaussian_process, genz, sums


class Accuracy(NamedTuple):
    """Mean absolute errors over seeds of one integrand, and whether the trained one meets its
    bound."""

    case: str
    epochs: int
    plain: float
    exact: float
    trained: float
    factor: float

    @property
    def met(self) -> bool:
        return self.trained <= max(self.factor * self.exact, 1e-3 * self.plain)


def accuracy(
    seeds: int, dimensions: Iterable[int] = (1, 2, 3, 4, 5, 20), m: int = 500
) -> list[Accuracy]:
    """Held-out error of trained and exact fits at batch 8: kernel on the Genz functions, degree 2
    on sums."""
    out = _accuracy(
        "kernel, ",
        KERNEL,
        SMALL_RIDGE,
        genz,
        GENZ_MEANS,
        GENZ_NAMES,
        1,
        m,
        seeds,
        ((5, 2.0), (25, 1.2)),
    )
    for d in dimensions:
        goals = ((5, 2.0), (25, 1.2)) if d <= 5 else ((25, 1.2),)
        names = (f"Σ x, d = {d}", f"Σ sin x, d = {d}")
        out += _accuracy(
            "degree 2, ",
            zv.Polynomial(2),
            zv.LeastSquares(),
            sums,
            np.zeros(2),
            names,
            d,
            m,
            seeds,
            goals,
        )
    return out


def _accuracy(
    label, family, objective, function, truth, names, d, m, seeds, goals
) -> list[Accuracy]:
    errors: dict[Any, list[np.ndarray]] = {
        key: [] for key in ("plain", "exact", *(epochs for epochs, _ in goals))
    }
    for seed in range(seeds):
        x = np.random.default_rng(seed).normal(size=(2 * m, d))
        f, sample = function(x), zv.Sample(x[:m], -x[:m])
        errors["plain"].append(f.mean(axis=0) - truth)
        errors["exact"].append(
            _held_out(zv.fit(family, sample, f[:m], objective), x[m:], f[m:]) - truth
        )
        for epochs, _ in goals:
            fitted = zv.fit(
                family, sample, f[:m], objective, zv.SGD(batch_size=8, epochs=epochs), seed=seed
            )
            errors[epochs].append(_held_out(fitted, x[m:], f[m:]) - truth)
    mean = {key: np.mean(np.abs(values), axis=0) for key, values in errors.items()}
    return [
        Accuracy(
            label + name,
            epochs,
            *(float(mean[key][k]) for key in ("plain", "exact", epochs)),
            factor,
        )
        for epochs, factor in goals
        for k, name in enumerate(names)
    ]


def _held_out(fitted: zv.Fitted, x: np.ndarray, f: np.ndarray) -> np.ndarray:
    return (f - fitted.at(x, -x)).mean(axis=0)


class Gain(NamedTuple):
    """Var f / Var(f − g) on fresh draws, one a seed."""

    case: str
    gains: tuple[float, ...]

    @property
    def typical(self) -> float:
        return float(gmean(self.gains))

    @property
    def error(self) -> float:
        """Standard error of the logarithm."""
        return float(np.std(np.log(self.gains), ddof=1) / np.sqrt(len(self.gains)))


def network_gains(dimensions: Iterable[int], seeds: int, m: int) -> list[Gain]:
    """Gaussian-process integrands against Gaussian mixtures: where polynomials and kernels degrade,
    networks keep a gain."""
    out = []
    for d in dimensions:
        found: dict[str, list[float]] = {}
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            target = Mixture(rng, d)
            x, s = target.draw(rng, m + 5000)
            f, _ = gaussian_process(rng, target, x)
            sample = zv.Sample(x[:m], s[:m])
            runs: dict[str, Any] = {
                "Polynomial(2)": (zv.Polynomial(2), zv.LeastSquares(zv.Ridge(1e-4)), None),
                "Network, LeastSquares": (zv.Network(), zv.LeastSquares(), zv.SGD()),
                "Network, Variance": (zv.Network(), zv.Variance(), zv.SGD()),
            }
            if m <= 2000:
                runs["Kernel"] = (zv.Kernel(), zv.LeastSquares(zv.Ridge(1e-4)), None)
            for name, (family, objective, solver) in runs.items():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    fitted = zv.fit(family, sample, f[:m], objective, solver, seed=seed)
                residual = f[m:] - fitted.at(x[m:], s[m:])[:, 0]
                found.setdefault(name, []).append(float(np.var(f[m:]) / np.var(residual)))
        out += [Gain(f"d = {d}: {name}", tuple(gains)) for name, gains in found.items()]
    return out


def ensemble_errors(seeds: int, m: int = 500) -> dict[str, np.ndarray]:
    """Mean absolute errors on the six Genz functions of parts and of their sums, trained for 25
    epochs at batch 8."""
    scale = 1.0
    one = zv.Kernel(zv.kernels.Decaying(0.1, scale, product=True))
    two = zv.Kernel(zv.kernels.Decaying(0.1, np.sqrt(2) * scale, product=True))
    families = {
        "Polynomial(2)": zv.Polynomial(2),
        "Kernel(ℓ)": one,
        "Kernel(√2 ℓ)": two,
        "Polynomial(2) + Kernel(ℓ)": zv.Polynomial(2) + one,
        "Polynomial(2) + Kernel(ℓ) + Kernel(√2 ℓ)": zv.Polynomial(2) + one + two,
    }
    errors: dict[str, list[np.ndarray]] = {name: [] for name in ("plain", *families)}
    for seed in range(seeds):
        x = np.random.default_rng(seed).normal(size=(2 * m, 1))
        f, sample = genz(x), zv.Sample(x[:m], -x[:m])
        errors["plain"].append(np.abs(f.mean(axis=0) - GENZ_MEANS))
        for name, family in families.items():
            fitted = zv.fit(
                family, sample, f[:m], SMALL_RIDGE, zv.SGD(batch_size=8, epochs=25), seed=seed
            )
            errors[name].append(np.abs(_held_out(fitted, x[m:], f[m:]) - GENZ_MEANS))
    return {name: np.mean(values, axis=0) for name, values in errors.items()}


def measure(options: Namespace) -> dict[str, Any]:
    """In the order of what they say: right, then fast, then what it is for."""
    quick = options.quick
    results: dict[str, Any] = {}
    rows = accuracy(2, (1,)) if quick else accuracy(20)
    results["accuracy"] = [row._asdict() | {"met": row.met} for row in rows]
    print_table(
        "Held-out error at batch 8, m = 500: mean absolute error over seeds",
        ("case", "epochs", "plain", "exact", "trained", "trained / exact", "bound", ""),
        [
            (
                row.case,
                row.epochs,
                f"{row.plain:.2e}",
                f"{row.exact:.2e}",
                f"{row.trained:.2e}",
                f"{row.trained / row.exact:.2f}" if row.exact > 1e-12 else "",
                f"{row.factor:g} × exact",
                "ok" if row.met else "MISSED",
            )
            for row in rows
        ],
    )
    results["authors"] = authors_rows((1,), networks=False) if quick else authors_rows()
    show("Warm fits against the authors' program", results["authors"], "authors")
    results["slopes"] = show_slopes("Growth of the time of one epoch", slopes(quick))
    if not quick:
        results["cold"] = cold_rows()
        show(
            "First fit in a fresh process (compiles) against the second", results["cold"], "second"
        )
        results["step"] = step_rows()
        show("One step against its matrix products", results["step"], "products")
    gains = network_gains((1,), 2, 100) if quick else network_gains((1, 5, 10, 20), 5, 5000)
    results["gains"] = [
        gain._asdict() | {"typical": gain.typical, "error": gain.error} for gain in gains
    ]
    print_table(
        "Gaussian-process integrands against Gaussian mixtures: Var f / Var(f − g) on fresh draws",
        ("family", "geometric mean", "× error", "each seed"),
        [
            (
                gain.case,
                f"{gain.typical:.3g}",
                f"{2.718281828**gain.error:.2f}",
                " ".join(f"{g:.3g}" for g in gain.gains),
            )
            for gain in gains
        ],
    )
    errors = ensemble_errors(1 if quick else 20)
    results["ensembles"] = {name: list(map(float, values)) for name, values in errors.items()}
    print_table(
        "Ensembles on the Genz functions, 25 epochs at batch 8: mean absolute error over seeds",
        ("family", *GENZ_NAMES, "geometric mean"),
        [
            (name, *(f"{v:.2e}" for v in values), f"{gmean(values):.2e}")
            for name, values in errors.items()
        ],
    )
    return results
