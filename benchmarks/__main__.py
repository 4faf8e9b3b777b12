"""python -m benchmarks [NAME] [--quick]: one of those below, or all of them."""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path
from typing import Any

import zerovar as zv
from zerovar.choice import Policy

from . import (
    adapters,
    automatic,
    calibration,
    checks,
    device,
    dimensions,
    evidence,
    evidence_peers,
    exact,
    growth,
    integrate,
    intervals,
    ladders,
    metrics,
    peers,
    scale,
    sensitivities,
    sgd,
    shapes,
    spaces,
    states,
    stream,
    wavelets,
)
from .harness import Row, print_table, show, show_slopes, write


def run_exact(quick: bool) -> dict[str, list[Row]]:
    sizes = (300,) if quick else (1000, 2000, 4000)
    cases, dual = (((500, 5),), (200, 50)) if quick else (((10_000, 20), (5000, 61)), (2000, 500))
    exact.kernel_rows((200,))  # compile
    results: dict[str, list[Row]] = {}
    results["kernel"] = exact.kernel_rows(sizes)
    show(
        "Exact kernel fits against products + Cholesky (and Cholesky + inverse)",
        results["kernel"],
        "LAPACK",
    )
    exact.polynomial_rows(cases, dual)  # compile
    results["polynomial"] = exact.polynomial_rows(cases, dual)
    show(
        "Quadratic polynomials against ΦᵀΦ + Cholesky, and the dual's products + Cholesky",
        results["polynomial"],
        "LAPACK",
    )
    if not quick:
        results["first call"] = exact.first_call_rows()
        show("First call (compiles) against the second", results["first call"], "second call")
    matrices = exact.peak_memory(600 if quick else 4000)
    print(
        f"Peak memory of the largest kernel fit with leave-one-out: {matrices:.2f} n × n matrices "
        "(bound 4)"
    )
    return results


def run_automatic(quick: bool, data: Path | None, policy: Policy) -> dict[str, Any]:
    """Right on real posteriors, never worse, calibrated on chains, fast; with other numbers of the
    choice if asked for."""
    options = zv.Automatic("low" if quick else "normal", policy=policy)
    results: dict[str, Any] = {}
    columns = ("case", "replicates", "realised gain", "mark", "spread of z", "± 1.96 covers", "")
    parts = {
        "never worse": automatic.never_worse(*((2, 60) if quick else (200, 1000)), options),
        "chains": automatic.markov_chains(*((2, 100, 1) if quick else (50, 1500, 3)), options),
    }
    if data is not None:
        parts = {"posteriors": automatic.posteriors(data, 1 if quick else 10, options)} | parts
        parts["high dimension"] = automatic.regressions(data, 1 if quick else 10, options)
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


def run_calibration(quick: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Standard errors against known means, with and without rules; what the candidates answer is
    kept, and a run that is stopped goes on."""
    folder, given = options.out / "calibration", {"only": options.only, "without": options.without}
    if quick:
        rules = options.without or ["single_scores"]
        return {"calibration": calibration.run(folder, 60, 1, only=("t3", "few"), without=rules)}
    asked = options.draws is not None
    sizes = ((options.draws, options.replicates or 30),) if asked else ((400, 100), (2000, 40))
    return {
        f"{n} draws": calibration.run(
            folder, n, count, options.chains or n // 500 or 1, options.data, **given
        )
        for n, count in sizes
    }


def run_integrate(quick: bool, data: Path | None, processes: int | None) -> dict[str, Any]:
    """From log densities to their means, without a chain."""
    if quick:
        return {
            "integrate": integrate.run(
                seeds=1, gradients=600, processes=1, only=("normal, d = 1", "hole"), simple=True
            )
        }
    return {"integrate": integrate.run(data, processes=processes)}


def run_sensitivities(quick: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Derivatives in powers of prior, likelihood and observations, where they are known."""
    if quick:
        rows = sensitivities.run(None, 1, 200, processes=1, beside=False)
    else:
        rows = sensitivities.run(options.data, processes=options.processes)
    return {"sensitivities": rows}


def run_metrics(quick: bool) -> dict[str, Any]:
    """Operators with a metric D(x) beside the identity."""
    return {"metrics": metrics.run(1, 200, 2) if quick else metrics.run(3, 1000, 60)}


def run_wavelets(quick: bool) -> dict[str, Any]:
    """Wavelets on integrands with kinks and jumps."""
    return {"wavelets": wavelets.run(wavelets.CASES[:1], 1, 200, 2) if quick else wavelets.run()}


def run_evidence(quick: bool, options: argparse.Namespace) -> dict[str, Any]:
    """log Z of chains, and along a ladder, where it is known; or beside other programs."""
    if options.peers:
        data = None if quick else options.data
        rows = evidence_peers.run(data, 1 if quick else 8, quick, processes=options.processes)
        found = {"evidence_peers": rows}
        if data is not None:
            found["beside_mbar"] = evidence_peers.beside_mbar(data.parent)
            options.out.mkdir(parents=True, exist_ok=True)
            evidence_peers.picture(rows, options.out / "evidence_peers.png")
        return found
    if quick:
        return {
            "evidence": evidence.run(None, 1, 200, ("8 groups, non-centred",), 1),
            "evidence_peers": evidence_peers.run(None, 1, True, processes=1),
        }
    found = {
        "evidence": evidence.run(options.data, processes=options.processes),
        "conjugate": evidence.run(
            None, 40, only=tuple(evidence.CONJUGATE), processes=options.processes
        ),
    }
    found["crescents"] = [row._asdict() for row in ladders.drawn_rows()]
    if options.data is not None:
        rows = ladders.ladder_rows(options.data.parent)
        ladders.show_ladder(rows)
        found["ladder"] = [row._asdict() for row in rows]
    return found


def run_intervals(quick: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Probabilities, quantiles, intervals and curves where they are known."""
    if quick:
        one = ("normal, d = 2",)
        return {
            "intervals": intervals.run(None, 1, 100, one, 1),
            "shapes": shapes.run(1, 100, one, 1),
        }
    return {
        "intervals": intervals.run(options.data, processes=options.processes),
        "shapes": shapes.run(processes=options.processes),
    }


def run_checks(quick: bool, data: Path | None, seed: int) -> dict[str, Any]:
    """False alarms, mistakes found and named, events that no draw shows, and what a check costs."""
    few = "d = 1" if quick else ""
    right = checks.alarms(2 if quick else 200, None if quick else data, few, seed)
    print_table(
        "check on right samples",
        ("sample", "samples", "false alarms", "the first"),
        [(row.case, row.samples, f"{row.share:.1%}", row.said) for row in right],
    )
    wrong = checks.mistakes(2 if quick else 100, "twice" if quick else "", seed)
    print_table(
        "check on mistakes, 4 × 1000 draws",
        ("mistake", "samples", "found", "named rightly"),
        [
            (
                row.case,
                row.samples,
                f"{row.found / row.samples:.0%}",
                f"{row.named / row.samples:.0%}",
            )
            for row in wrong
        ],
    )
    cases = dict(list(checks.EVENT_CASES.items())[:1]) if quick else checks.EVENT_CASES
    seen = checks.events(2 if quick else 200, cases, seed)
    print_table(
        "P(x₀ > c) within 1.96 errors",
        ("draws", "samples", "never seen", "covered if never seen", "covered"),
        [
            (
                row.case,
                row.samples,
                row.unseen,
                f"{row.covered_unseen / row.unseen:.0%}" if row.unseen else "",
                f"{row.covered / row.samples:.0%}",
            )
            for row in seen
        ],
    )
    cost = checks.cost(*((50, 100) if quick else (1000, 1000)))
    print(
        f"One check, d = {cost['d']}, {cost['draws']} draws: {cost['seconds']:.2f} s, "
        f"{cost['gigabytes']:.2f} GB"
    )
    return {
        name: [row._asdict() for row in rows]
        for name, rows in (("right", right), ("wrong", wrong), ("events", seen))
    } | {"cost": cost}


def run_states(quick: bool) -> dict[str, Any]:
    """Spins, inclusion indicators and counts."""
    found = list(states.rows(200, 2, quick=True) if quick else states.rows(1000))
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


def run_dimensions(quick: bool) -> dict[str, Any]:
    """Hundreds and thousands of parameters."""
    found = list(dimensions.rows(quick))
    print_table(
        "Hierarchies and regressions of many parameters: gains by the reported errors, and how "
        "often 1.96 of them cover",
        (
            "case",
            "chains",
            "median gain",
            "μ",
            "τ",
            "σ",
            "± 1.96 covers",
            "seconds",
            "peak memory (GB)",
        ),
        [
            (
                row.case,
                row.chains,
                f"{row.median:.3g}",
                *(
                    "" if math.isnan(gain) else f"{gain:.3g}"
                    for gain in (row.mu, row.tau, row.sigma)
                ),
                "" if row.covered is None else f"{row.covered:.1%}",
                f"{row.seconds:.1f}",
                f"{row.gigabytes:.2f}" if row.gigabytes else "",
            )
            for row in found
        ],
    )
    return {"dimensions": [row._asdict() for row in found]}


def run_spaces(quick: bool, processes: int | None) -> dict[str, Any]:
    """Angles, directions, proportions, boxes."""
    columns = ("case", "effort", "replicates", "reported", "realised", "without worst", "covers")
    found = []
    for row in spaces.rows(quick, processes):
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
    results["slopes"] = show_slopes("Growth of the time of one epoch", sgd.slopes(quick))
    if not quick:
        results["cold"] = sgd.cold_rows()
        show(
            "First fit in a fresh process (compiles) against the second", results["cold"], "second"
        )
        results["step"] = sgd.step_rows()
        show("One step against its matrix products", results["step"], "products")
    gains = sgd.network_gains((1,), 2, 100) if quick else sgd.network_gains((1, 5, 10, 20), 5, 5000)
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
    errors = sgd.ensemble_errors(1 if quick else 20)
    results["ensembles"] = {name: list(map(float, values)) for name, values in errors.items()}
    print_table(
        "Ensembles on the Genz functions, 25 epochs at batch 8: mean absolute error over seeds",
        ("family", *sgd.GENZ_NAMES, "geometric mean"),
        [
            (name, *(f"{v:.2e}" for v in values), f"{sgd.gmean(values):.2e}")
            for name, values in errors.items()
        ],
    )
    return results


def run_adapters(quick: bool) -> dict[str, Any]:
    """Nothing to make smaller: compiling the samplers is what takes time."""
    if quick:
        return {}
    found = adapters.rows()
    show("Adapters against their samplers: eight schools, 4 × 1000 draws", found, "sampler")
    return {"adapters": found}


def run_scale(quick: bool) -> dict[str, Any]:
    """Many draws on this machine: solvers against each other, growth, the default choice,
    start-up."""
    results: dict[str, Any] = {}
    rows = (
        scale.agreement_rows(300, 50, ("Gaussian",))
        if quick
        else scale.agreement_rows(20_000, 2000)
    )
    if not quick:
        rows.append(scale.centres_alone(100_000, 2000))
    results["solvers"] = [row._asdict() | {"ratio": row.ratio} for row in rows]
    print_table(
        "Kernel + quadratic, d = 10, ridge 1e-6 of the mean diagonal: seconds, and distance from "
        "the exact answer",
        (
            "solver",
            "seconds",
            "of exact",
            "standard errors away",
            "iterations",
            "peak memory (GB)",
            "",
        ),
        [
            (
                row.case,
                f"{row.seconds:.1f}",
                f"{row.ratio:.2f}",
                f"{row.distance:.2g}",
                row.iterations or "",
                f"{row.gigabytes:.2f}",
                ""
                if row.bound is None
                else "ok"
                if row.ratio <= row.bound and row.distance <= 0.1
                else "MISSED",
            )
            for row in rows
        ],
    )
    results["growth"] = show_slopes("Growth of time and memory", growth.slopes(quick))
    results["choice"] = scale.choice_rows(quick)
    show("The cost model of the default choice against what it takes", results["choice"], "model")
    if not quick:
        results["start"] = scale.start_rows()
        show(
            "A fresh process: against importing JAX, and against the second call",
            results["start"],
            "floor",
        )
    return results


def run_peers(quick: bool, out: Path) -> dict[str, Any]:
    """What else there is, and the picture of error against time."""
    results: dict[str, Any] = {"peers": peers.rows(100, 1) if quick else peers.rows(1000, 5)}
    show("Against plain re-implementations", results["peers"], "peer")
    reached = (
        peers.digits(1, (100,), 200, few=True)
        if quick
        else peers.digits(5, (500, 2000, 8000), 100_000)
    )
    results["digits"] = [row._asdict() for row in reached]
    print_table(
        "Error reached against time, NUTS included, kernel + quadratic, d = 10",
        ("method", "draws", "seconds", "error (deviations)"),
        [(row.method, row.draws, f"{row.seconds:.3g}", f"{row.error:.2e}") for row in reached],
    )
    out.mkdir(parents=True, exist_ok=True)
    peers.picture(reached, out / "digits.png")
    return results


def run_device(quick: bool) -> dict[str, Any]:
    """What needs an accelerator to be worth its time; small sizes run anywhere."""
    results: dict[str, Any] = {"genz": device.genz_rows(2 if quick else 20, 60 if quick else 1000)}
    show(
        "One program for all repetitions, against one fit after the other",
        results["genz"],
        "one by one",
    )
    if not quick:
        results["cholesky"] = device.cholesky_rows((20_000,))
        show(
            "Exact dual on the default device against a bare Cholesky factorisation",
            results["cholesky"],
            "Cholesky",
        )
        large = device.large_rows(100_000, 100_000, 10**6)
        results["large"] = [row._asdict() for row in large]
        print_table(
            "As large as it gets: kernel + quadratic, d = 10",
            ("solver", "seconds", "Var f / Var(f − g) on fresh draws", ""),
            [(row.case, f"{row.seconds:.1f}", f"{row.gain:.3g}", row.note) for row in large],
        )
    return results


def run_stream(quick: bool) -> dict[str, Any]:
    """Ten million draws on disk, 3.2 GB."""
    sizes, chunk = ((20_000,), 5000) if quick else ((10**5, 10**6, 10**7), 10**5)
    results: dict[str, Any] = {}
    with stream.written(sizes[-1], chunk) as name:
        folder = Path(name)
        if not quick:
            results["pass"] = stream.rows(folder, sizes[-1])
            show(
                "One pass over chunks on disk, on one core, against bare NumPy",
                results["pass"],
                "NumPy",
            )
        grown = stream.growth(folder, sizes)
        results["growth"] = [row._asdict() for row in grown]
        print_table(
            "The whole call on Dask's threads, in a fresh process",
            ("draws", "seconds", "seconds a million draws", "peak memory (GB)"),
            [
                (
                    f"{g.draws:.0e}",
                    f"{g.seconds:.2f}",
                    f"{1e6 * g.seconds / g.draws:.2f}",
                    f"{g.gigabytes:.2f}",
                )
                for g in grown
            ],
        )
        if not quick:
            found = stream.workers(folder, sizes[-1])
            results["workers"] = found._asdict() | {"ratio": found.ratio}
            print_table(
                "Local workers with one thread each (seconds of the pass)",
                (
                    "one",
                    "two",
                    "ratio",
                    "two, one killed in the middle",
                    "change of the values",
                    "restarted",
                ),
                [
                    (
                        f"{found.one:.1f}",
                        f"{found.two:.1f}",
                        f"{found.ratio:.2f}",
                        f"{found.killed:.1f}",
                        f"{found.change:.1e}",
                        found.restarts,
                    )
                ],
            )
    return results


def varied(changes: list[str]) -> Policy:
    """The numbers of the choice with these, NAME=VALUE, in place of their own."""
    known = {name: value for name, value, *_ in Policy().explain()}
    found = {}
    for name, _, value in (change.partition("=") for change in changes):
        if name not in known or not isinstance(known[name], (int, float)):
            raise ValueError(
                f"--vary: {name!r} is no number of the choice; they are {', '.join(known)}"
            )
        found[name] = type(known[name])(float(value))
    return Policy(**found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "what",
        nargs="?",
        choices=(
            "exact",
            "sgd",
            "automatic",
            "calibration",
            "integrate",
            "intervals",
            "evidence",
            "sensitivities",
            "metrics",
            "wavelets",
            "checks",
            "dimensions",
            "spaces",
            "states",
            "adapters",
            "scale",
            "peers",
            "stream",
            "device",
            "all",
        ),
        default="all",
        help="default: %(default)s",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small sizes and no tuning, to see that everything runs",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("benchmarks/out"),
        help="folder for the JSON (default: %(default)s)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with posteriors/ (*.npz, truth.json), sonar.csv, madelon_train.csv.gz",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the samples of `checks`")
    parser.add_argument(
        "--processes",
        type=int,
        help="that share the calls of `integrate` and `intervals` (default: one a core)",
    )
    parser.add_argument(
        "--peers",
        action="store_true",
        help="`evidence` beside dynesty, pymbar and others, and nothing else",
    )
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a number of the automatic choice, such as pilot=2000",
    )
    calibration.add_options(parser.add_argument_group("calibration"))
    options = parser.parse_args()
    try:
        policy = varied(options.vary)
    except ValueError as error:
        parser.error(str(error))

    def run_choice(quick: bool) -> dict[str, Any]:
        return run_automatic(quick, options.data, policy)

    runs = {
        "exact": run_exact,
        "sgd": run_sgd,
        "automatic": run_choice,
        "adapters": run_adapters,
        "scale": run_scale,
    }
    runs |= {"calibration": lambda quick: run_calibration(quick, options)}
    runs |= {"integrate": lambda quick: run_integrate(quick, options.data, options.processes)}
    runs |= {"intervals": lambda quick: run_intervals(quick, options)}
    runs |= {"evidence": lambda quick: run_evidence(quick, options)}
    runs |= {"sensitivities": lambda quick: run_sensitivities(quick, options)}
    runs |= {"metrics": run_metrics, "wavelets": run_wavelets}
    runs |= {"checks": lambda quick: run_checks(quick, options.data, options.seed)}
    runs |= {"dimensions": run_dimensions, "states": run_states}
    runs |= {"spaces": lambda quick: run_spaces(quick, options.processes)}
    runs |= {
        "peers": lambda quick: run_peers(quick, options.out),
        "stream": run_stream,
        "device": run_device,
    }
    for name, run in runs.items():
        if options.what in (name, "all"):
            results = {
                key: [
                    dataclasses.asdict(row) | {"ratio": row.ratio} if isinstance(row, Row) else row
                    for row in value
                ]
                if isinstance(value, list)
                else value
                for key, value in run(options.quick).items()
            }
            write(options.out / f"{name}.json", results)


if __name__ == "__main__":
    main()
