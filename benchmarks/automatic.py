"""The one call: gains on real posteriors, never worse than plain Monte Carlo, Markov chains, high
dimension, time."""

from __future__ import annotations

import json
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh

import zerovar as zv

from .chains import banana, eight_schools, logistic, metropolis
from .harness import Row, best, in_fresh_process, print_table, show

# Realised gains over the first three chains: the best of ten settings of ZVCV with hindsight, and
# the larger of that and a leave-one-out script with one kernel and a quadratic
ZVCV = {
    "arK": (2.2e7, 1.2e9),
    "diamonds": (3.1e6, 5.9e6),
    "eight_schools_noncentered": (250, 250),
    "garch11": (440, 500),
    "gp_regr": (2.9e4, 2.9e4),
    "kidscore_interaction": (5.3e10, 7e9),
    "logmesquite": (3.7e5, 3.6e6),
    "lotka_volterra": (1.6e4, 1.1e5),
    "low_dim_gauss_mix": (3.1e8, 3.6e9),
}


DEFAULT = zv.Automatic()
# steps of a chain for each draw that is kept: chains must be long enough for plain Monte Carlo to
# be calibrated
_THIN = 10


class Gain(NamedTuple):
    """Replicates of one problem: realised gain, spread of errors in standard errors (1 if right),
    coverage of ± 1.96."""

    case: str
    gain: float
    spread: float
    covered: float
    replicates: int
    mark: float | None = None
    note: str = ""


def posteriors(directory: Path, chains: int, options: zv.Automatic = DEFAULT) -> list[Gain]:
    """Every chain of 1000 draws alone is a replicate; the gain is the median over parameters."""
    directory = directory / "posteriors"
    truth = json.loads((directory / "truth.json").read_text())
    out = []
    for name in sorted(truth):
        stored = np.load(directory / f"{name}.npz")
        known, known_error = np.array(truth[name]["truth"]), np.array(truth[name]["se"])
        samples = [(stored["x"][c], stored["score"][c], stored["f"][c]) for c in range(chains)]
        zvcv, mark = ZVCV.get(name, (float("nan"), None))
        found = _replicates(name, samples, known, known_error, options)
        out.append(found._replace(mark=mark, note=f"ZVCV, best with hindsight: {zvcv:.2g}"))
    return out


def regressions(directory: Path, replicates: int, options: zv.Automatic = DEFAULT) -> list[Gain]:
    """Predictive probabilities of ten held-out points by Bayesian logistic regression, from 1000
    draws of thinned MALA.

    Sonar with coefficients N(0, 1) and the common N(0, 5²) on predictors of sd ½; Madelon,
    standardised, N(0, 1).
    """
    out = []
    family = zv.Polynomial(1) + zv.RidgeFunctions(zv.Polynomial(4, weight=(0.0, 1.0, 1.0, 1.0)))
    for name, features, labels, scale, step, thin in _regression_data(directory):
        points, features, labels = features[:10], features[10:], labels[10:]
        count = 20 if features.shape[1] < 100 else replicates
        draws, scores = _posterior(features, labels, scale, step, thin, replicates + count)
        values = 1 / (1 + np.exp(-draws @ points.T))
        # Truth from other chains, with control variates of their own
        samples = list(zip(draws, scores, values, strict=True))
        others = [zv.estimate(*sample, family=family) for sample in samples[replicates:]]
        means = np.array([other.value for other in others])
        error = np.std(means, axis=0, ddof=1) / np.sqrt(count) if count > 1 else others[0].std_error
        out.append(_replicates(name, samples[:replicates], means.mean(axis=0), error, options))
    return out


def _regression_data(
    directory: Path,
) -> Iterator[tuple[str, np.ndarray, np.ndarray, float, float, int]]:
    order = np.random.default_rng(0).permutation
    raw = np.genfromtxt(directory / "sonar.csv", delimiter=",", skip_header=1, dtype=str)
    x = raw[:, :-1].astype(float)
    x = np.column_stack([np.ones(len(x)), 0.5 * (x - x.mean(axis=0)) / x.std(axis=0)])
    labels = np.where(np.char.strip(raw[:, -1], '"') == "M", 1.0, -1.0)
    rows = order(len(x))
    for scale in (1.0, 5.0):
        yield f"Sonar, d = 61, N(0, {scale:g}²)", x[rows], labels[rows], scale, 0.7, 30
    raw = np.genfromtxt(directory / "madelon_train.csv.gz", delimiter=",", skip_header=1)
    x = (raw[:, 1:] - raw[:, 1:].mean(axis=0)) / raw[:, 1:].std(axis=0)
    yield "Madelon, d = 500, N(0, 1)", x, raw[:, 0], 1.0, 0.45, 60


def _posterior(features, labels, scale, step, thin, chains) -> tuple[np.ndarray, np.ndarray]:
    """Draws and scores (chain, 1000, d), sampled in coordinates in which the posterior is about
    standard normal."""
    mode = np.zeros(features.shape[1])
    for _ in range(50):  # Newton's method: the log density is concave
        p = 1 / (1 + np.exp(-labels * (features @ mode)))
        hessian = (features.T * (p * (1 - p))) @ features + np.eye(len(mode)) / scale**2
        mode = mode + np.linalg.solve(hessian, features.T @ (labels * (1 - p)) - mode / scale**2)
    factor = np.linalg.inv(np.linalg.cholesky(hessian)).T
    target = logistic(features, labels, scale)
    start = 0.7 * np.random.default_rng(1).normal(size=(chains, len(mode)))
    made = metropolis(
        lambda z: target(mode + factor @ z), start, 1000, step, True, seed=2, thin=thin
    )
    return mode + made.draws @ factor.T, made.scores @ np.linalg.inv(factor)


def never_worse(replicates: int, n: int = 1000, options: zv.Automatic = DEFAULT) -> list[Gain]:
    """Integrands that no control variate helps; t₅ by its location-scale score."""
    rng = np.random.default_rng(0)
    normal, student = [], []
    for _ in range(replicates):
        x = rng.normal(size=(n, 2))
        values = np.stack([rng.normal(size=n), np.sin(50 * x[:, 0]), x[:, 0] > 2.5], axis=1)
        normal.append((x, -x, values.astype(float)))
        t = rng.standard_t(5, size=(n, 2))
        student.append((t, -6 * t / (5 + t**2), t[:, :1]))
    tail = 0.006209665325776132  # P(N(0, 1) > 2.5)
    names = ("independent noise", "sin(50 x₁)", "1{x₁ > 2.5}")
    out = _each(names, normal, np.array([0.0, 0.0, tail]), options)
    return out + _each(("x₁ under t₅",), student, np.zeros(1), options)


def markov_chains(
    replicates: int, draws: int, targets: int = 3, options: zv.Automatic = DEFAULT
) -> list[Gain]:
    """Random-walk Metropolis and MALA; truths exact, or from chains a hundred times as long in
    all."""
    rng = np.random.default_rng(1)
    features = np.concatenate([np.ones((100, 1)), rng.normal(size=(100, 4))], axis=1)
    labels = np.where(
        rng.uniform(size=100) < 1 / (1 + np.exp(-features @ [0.5, 1.0, -1.0, 0.0, 0.5])), 1.0, -1.0
    )
    regression = logistic(features, labels, 2.0)
    out = []
    cases = (
        (
            "banana",
            banana,
            2,
            (1.2, 0.4),
            lambda x: np.stack([x[..., 0], x[..., 1], x[..., 0] ** 2], axis=-1),
        ),
        ("eight schools", eight_schools, 10, (0.6, 0.7), lambda x: x),
        ("logistic regression", regression, 5, (0.3, 0.4), lambda x: x),
    )
    for name, target, d, steps, values in cases[:targets]:
        start = 0.1 * np.random.default_rng(2).normal(size=(max(replicates, 100), d))
        if name == "banana":
            known, error = np.array([0.0, 0.0, 1.0]), np.zeros(3)
        else:
            known, error = _long_run(target, start, steps[1], 20 * draws, values)
        for kind, step, langevin in (("random walk", steps[0], False), ("MALA", steps[1], True)):
            made = metropolis(target, start[:replicates], draws, step, langevin, seed=3, thin=_THIN)
            samples = [(x, s, values(x)) for x, s in zip(made.draws, made.scores, strict=True)]
            found = _replicates(f"{name}, {kind}", samples, known, error, options)
            out.append(found._replace(note=f"{made.accepted:.0%} accepted"))
    return out


def _long_run(target, start, step, draws, values) -> tuple[np.ndarray, np.ndarray]:
    """Means over many long chains with control variates of their own, and the scatter of the
    chains' answers."""
    made = metropolis(target, start[:20], draws, step, True, seed=4, thin=_THIN)
    family = zv.Polynomial(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        means = [
            zv.estimate(x, s, values(x), family=family).value
            for x, s in zip(made.draws, made.scores, strict=True)
        ]
    return np.mean(means, axis=0), np.std(means, axis=0, ddof=1) / np.sqrt(len(means))


def _replicates(
    case: str,
    samples: Sequence[Any],
    known: np.ndarray,
    known_error: np.ndarray,
    options: zv.Automatic = DEFAULT,
) -> Gain:
    plain, ours, z = _errors(samples, known, known_error, options)
    gain = float(np.median(np.mean(plain**2, axis=0) / np.mean(ours**2, axis=0)))
    return Gain(
        case, gain, float(np.sqrt(np.mean(z**2))), float(np.mean(np.abs(z) < 1.96)), len(samples)
    )


def _each(
    names: Sequence[str], samples: Sequence[Any], known: np.ndarray, options: zv.Automatic
) -> list[Gain]:
    plain, ours, z = _errors(samples, known, np.zeros(len(known)), options)
    gain = np.mean(plain**2, axis=0) / np.mean(ours**2, axis=0)
    return [
        Gain(
            name,
            float(gain[j]),
            float(np.sqrt(np.mean(z[:, j] ** 2))),
            float(np.mean(np.abs(z[:, j]) < 1.96)),
            len(z),
            1 / 1.05,
        )
        for j, name in enumerate(names)
    ]


def _errors(samples, known, known_error, options) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    plain, ours, z = [], [], []
    for x, s, f in samples:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            est = zv.estimate(x, s, f, family=options)
        plain.append(f.mean(axis=0) - known)
        ours.append(est.value - known)
        z.append(ours[-1] / np.hypot(est.std_error, known_error))
    return np.array(plain), np.array(ours), np.array(z)


def times(quick: bool) -> list[Row]:
    """The call against one symmetric eigendecomposition of n × n, and its first run in a fresh
    process."""
    n = 200 if quick else 1000
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 10))
    matrix = rng.normal(size=(n, n))
    floor = best(lambda: eigh(matrix + matrix.T), 3)
    rows = []
    for effort, bound in (("low", 0.3 / floor), ("normal", 8.0), ("high", 40.0))[
        : 1 if quick else 3
    ]:
        call = _call(x, zv.Automatic(effort))
        call()
        rows.append(
            Row(
                f"n = {n}, d = 10, 10 integrands, warm, {effort} effort",
                floor,
                best(call, 1 if quick else 3),
                bound,
            )
        )
    if quick:
        return rows
    single = _call(x, values=_singles(x))
    single()
    rows.append(
        Row(
            "n = 1000, d = 10, 10 sums of functions of single coordinates, warm",
            floor,
            best(single, 3),
            8.0,
        )
    )

    def summary() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return zv.summary(
                zv.Posterior(
                    x[None],
                    -x[None],
                    {f"f{j}": column[None] for j, column in enumerate(_values(x).T)},
                )
            )

    summary()
    rows.append(
        Row("n = 1000, summary against estimate, warm", best(_call(x), 2), best(summary, 2), 1.3)
    )
    for what, case in (("pairs", "_values"), ("single coordinates", "_singles")):
        setup = (
            "from benchmarks.automatic import _call, _singles, _values; x = "
            "np.random.default_rng(0)"
        )
        setup += f".normal(size=({n}, 10)); call = _call(x, values={case}(x))"
        _, first, second = in_fresh_process(setup, "call()")
        rows.append(
            Row(
                f"n = 1000, {what}, the first call of a process against the second",
                second,
                first,
                7.0 / second,
                "7 s",
            )
        )
    for size, seconds in ((4000, 4.0), (10_000, 8.0)):
        larger = rng.normal(size=(size, 10))
        for what, values in (("pairs", _values(larger)), ("single coordinates", _singles(larger))):
            large = _call(larger, values=values)
            large()
            rows.append(
                Row(
                    f"n = {size}, {what}, warm",
                    floor,
                    best(large, 2),
                    seconds / floor,
                    f"bound: {seconds:g} s",
                )
            )
    return rows


def _values(x: np.ndarray) -> np.ndarray:
    """Of pairs of coordinates."""
    return np.sin(x * np.roll(x, 1, axis=1)) + np.exp(0.3 * (x + np.roll(x, 2, axis=1)))


def _singles(x: np.ndarray) -> np.ndarray:
    """Sums of functions of single coordinates, which are recognised."""
    return np.exp(0.5 * x) + np.sin(x)[:, ::-1] + (x**2).sum(axis=1, keepdims=True) / 10


def _call(
    x: np.ndarray, options: zv.Automatic = DEFAULT, values: np.ndarray | None = None
) -> Callable[[], Any]:
    values = _values(x) if values is None else values

    def call() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return zv.estimate(x, -x, values, family=options)

    return call


def measure(options: Namespace) -> dict[str, Any]:
    """Right on real posteriors, never worse, calibrated on chains, fast; with other numbers of the
    choice if asked for."""
    quick, data = options.quick, options.data
    choice = zv.Automatic("low" if quick else "normal", policy=options.policy)
    results: dict[str, Any] = {}
    columns = ("case", "replicates", "realised gain", "mark", "spread of z", "± 1.96 covers", "")
    parts = {
        "never worse": never_worse(*((2, 60) if quick else (200, 1000)), choice),
        "chains": markov_chains(*((2, 100, 1) if quick else (50, 1500, 3)), choice),
    }
    if data is not None:
        parts = {"posteriors": posteriors(data, 1 if quick else 10, choice)} | parts
        parts["high dimension"] = regressions(data, 1 if quick else 10, choice)
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
    results["times"] = times(quick)
    show("The one call against an n × n eigendecomposition", results["times"], "floor")
    return results
