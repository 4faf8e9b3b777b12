"""python -m benchmarks [--quick] [--out DIR]."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import exact
from .harness import Row, show, write


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"), help="folder for the JSON (default: %(default)s)")
    options = parser.parse_args()

    sizes = (300,) if options.quick else (1000, 2000, 4000)
    cases, dual = (((500, 5),), (200, 50)) if options.quick else (((10_000, 20), (5000, 61)), (2000, 500))
    exact.kernel_rows((200,))  # compile
    results: dict[str, list[Row]] = {}
    results["kernel"] = exact.kernel_rows(sizes)
    show("Exact kernel fits against products + Cholesky (and Cholesky + inverse)", results["kernel"], "LAPACK")
    exact.polynomial_rows(cases, dual)  # compile
    results["polynomial"] = exact.polynomial_rows(cases, dual)
    show("Quadratic polynomials against ΦᵀΦ + Cholesky, and the dual's products + Cholesky", results["polynomial"], "LAPACK")
    if not options.quick:
        results["first call"] = exact.first_call_rows()
        show("First call (compiles) against the second", results["first call"], "second call")
    matrices = exact.peak_memory(600 if options.quick else 4000)
    print(f"Peak memory of the largest kernel fit with leave-one-out: {matrices:.2f} n × n matrices (bound 4)")
    write(options.out / "exact.json", results)


if __name__ == "__main__":
    main()
