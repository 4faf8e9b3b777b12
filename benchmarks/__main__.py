"""python -m benchmarks [exact | sgd | automatic | adapters | all] [--quick] [--data DIR] [--out DIR]."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from . import adapters, automatic, exact, sgd
from .harness import Row, print_table, show, write


def run_exact(quick: bool) -> dict[str, list[Row]]:
    sizes = (300,) if quick else (1000, 2000, 4000)
    cases, dual = (((500, 5),), (200, 50)) if quick else (((10_000, 20), (5000, 61)), (2000, 500))
    exact.kernel_rows((200,))  # compile
    results: dict[str, list[Row]] = {}
    results["kernel"] = exact.kernel_rows(sizes)
    show("Exact kernel fits against products + Cholesky (and Cholesky + inverse)", results["kernel"], "LAPACK")
    exact.polynomial_rows(cases, dual)  # compile
    results["polynomial"] = exact.polynomial_rows(cases, dual)
    show("Quadratic polynomials against ΦᵀΦ + Cholesky, and the dual's products + Cholesky", results["polynomial"], "LAPACK")
    if not quick:
        results["first call"] = exact.first_call_rows()
        show("First call (compiles) against the second", results["first call"], "second call")
    matrices = exact.peak_memory(600 if quick else 4000)
    print(f"Peak memory of the largest kernel fit with leave-one-out: {matrices:.2f} n × n matrices (bound 4)")
    return results


def run_automatic(quick: bool, data: Path | None) -> dict[str, Any]:
    """Right on real posteriors, never worse, calibrated on chains, fast."""
    results: dict[str, Any] = {}
    columns = ("case", "replicates", "realised gain", "mark", "spread of z", "± 1.96 covers", "")
    parts = {
        "never worse": automatic.never_worse(2, 60, budget=0.0) if quick else automatic.never_worse(200),
        "chains": automatic.markov_chains(2, 100, targets=1, budget=0.0) if quick else automatic.markov_chains(50, 1500),
    }
    if data is not None:
        parts = {"posteriors": automatic.posteriors(data, 1 if quick else 10)} | parts
        parts["high dimension"] = automatic.regressions(data, 1 if quick else 10)
    for name, gains in parts.items():
        results[name] = [gain._asdict() for gain in gains]
        rows = [
            (
                g.case,
                g.replicates,
                f"{g.gain:.3g}",
                f"{g.mark:.3g}" if g.mark else "",
                f"{g.spread:.2f}",
                f"{g.covered:.1%}",
                g.note,
            )
            for g in gains
        ]
        print_table(f"The one call: {name}", columns, rows)
    results["times"] = automatic.times(quick)
    show("The one call against an n × n eigendecomposition", results["times"], "floor")
    return results


def run_sgd(quick: bool) -> dict[str, Any]:
    """In the order of what they say: right, then fast, then what it is for."""
    results: dict[str, Any] = {}
    rows = sgd.accuracy(2, (1,)) if quick else sgd.accuracy(20)
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
    results["authors"] = sgd.authors_rows((1,), networks=False) if quick else sgd.authors_rows()
    show("Warm fits against the authors' program", results["authors"], "authors")
    slopes = sgd.slopes(quick)
    results["slopes"] = [slope._asdict() | {"slope": slope.slope} for slope in slopes]
    print_table(
        "Growth of the time of one epoch",
        ("against", "sizes", "seconds", "slope", "bound", ""),
        [
            (
                slope.case,
                " ".join(map(str, slope.sizes)),
                " ".join(f"{value:.2g}" for value in slope.seconds),
                f"{slope.slope:.2f}",
                f"{slope.bound:g}",
                "ok" if slope.slope <= slope.bound else "MISSED",
            )
            for slope in slopes
        ],
    )
    if not quick:
        results["cold"] = sgd.cold_rows()
        show("First fit in a fresh process (compiles) against the second", results["cold"], "second")
        results["step"] = sgd.step_rows()
        show("One step against its matrix products", results["step"], "products")
    gains = sgd.network_gains((1,), 2, 200) if quick else sgd.network_gains((1, 5, 10, 20), 5, 5000)
    results["gains"] = [gain._asdict() | {"typical": gain.typical, "error": gain.error} for gain in gains]
    print_table(
        "Gaussian-process integrands against Gaussian mixtures: Var f / Var(f − g) on fresh draws",
        ("family", "geometric mean", "× error", "each seed"),
        [
            (gain.case, f"{gain.typical:.3g}", f"{2.718281828**gain.error:.2f}", " ".join(f"{g:.3g}" for g in gain.gains))
            for gain in gains
        ],
    )
    errors = sgd.ensemble_errors(1 if quick else 20)
    results["ensembles"] = {name: list(map(float, values)) for name, values in errors.items()}
    print_table(
        "Ensembles on the Genz functions, 25 epochs at batch 8: mean absolute error over seeds",
        ("family", *sgd.GENZ_NAMES, "geometric mean"),
        [(name, *(f"{v:.2e}" for v in values), f"{sgd.gmean(values):.2e}") for name, values in errors.items()],
    )
    return results


def run_adapters(quick: bool) -> dict[str, Any]:
    """Nothing to make smaller: compiling the samplers is what takes time."""
    if quick:
        return {}
    found = adapters.rows()
    show("Adapters against their samplers: eight schools, 4 × 1000 draws", found, "sampler")
    return {"adapters": found}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "what", nargs="?", choices=("exact", "sgd", "automatic", "adapters", "all"), default="all", help="default: %(default)s"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes and no tuning, to see that everything runs")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"), help="folder for the JSON (default: %(default)s)")
    parser.add_argument(
        "--data", type=Path, help="folder with posteriors/ (*.npz, truth.json), sonar.csv, madelon_train.csv.gz"
    )
    options = parser.parse_args()

    def run_choice(quick: bool) -> dict[str, Any]:
        return run_automatic(quick, options.data)

    for name, run in (("exact", run_exact), ("sgd", run_sgd), ("automatic", run_choice), ("adapters", run_adapters)):
        if options.what in (name, "all"):
            results = {
                key: [dataclasses.asdict(row) | {"ratio": row.ratio} if isinstance(row, Row) else row for row in value]
                if isinstance(value, list)
                else value
                for key, value in run(options.quick).items()
            }
            write(options.out / f"{name}.json", results)


if __name__ == "__main__":
    main()
