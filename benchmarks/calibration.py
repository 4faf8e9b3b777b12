"""Are the errors of the default call right where tails are long? Known means, and rules tried on
kept answers.

python -m benchmarks.calibration FOLDER [--draws 400] [--replicates 30] [--data ../shared/data]
[--only t5 pdb]

Candidates take nearly all the time, and rules for errors none. So what the candidates answer is
kept in FOLDER, one file a replicate, and a run that is stopped goes on where it was. The table is
then made by the rule that is in the code now.
"""

from __future__ import annotations

import argparse
import json
import warnings
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.integrate import quad
from scipy.special import digamma, gamma

from .harness import workers

Rng = np.random.Generator


class Draws(NamedTuple):
    """Draws and scores (chain, draw, d), integrands (chain, draw, q), their names and means, and
    the errors of these."""

    x: np.ndarray
    s: np.ndarray
    f: np.ndarray
    names: tuple[str, ...]
    means: np.ndarray
    errors: np.ndarray
    log_weights: np.ndarray | None = None


def _one_chain(
    x: np.ndarray, s: np.ndarray, f: dict[str, tuple[np.ndarray, float]], log_weights=None
) -> Draws:
    values = np.stack([column for column, _ in f.values()], axis=1)
    means = np.array([mean for _, mean in f.values()])
    return Draws(x[None], s[None], values[None], tuple(f), means, 0 * means, log_weights)


def student(rng: Rng, n: int, freedom: int, d: int) -> Draws:
    x = rng.normal(size=(n, d)) / np.sqrt(rng.chisquare(freedom, size=(n, 1)) / freedom)
    s = -(freedom + d) * x / (freedom + (x**2).sum(axis=1, keepdims=True))
    a = x[:, 0]
    density = lambda y: (1 + y * y / freedom) ** (-(freedom + 1) / 2)  # noqa: E731
    whole = quad(density, -np.inf, np.inf)[0]
    mean = {
        name: quad(lambda y, f=f: f(y) * density(y), -np.inf, np.inf)[0] / whole
        for name, f in _OF_STUDENT[freedom].items()
    }
    return _one_chain(x, s, {name: (f(a), mean[name]) for name, f in _OF_STUDENT[freedom].items()})


_OF_STUDENT: dict[int, dict[str, Callable]] = {
    2: {"|x|": np.abs, "log(1 + x²)": lambda y: np.log1p(y * y)},
    3: {"x²": np.square, "|x|": np.abs, "atan x": np.arctan},
    5: {"x²": np.square},
}


def log_gamma(rng: Rng, n: int) -> Draws:
    t = np.maximum(rng.gamma(0.3, size=n), 1e-300)
    x = np.log(t)[:, None]
    means = {
        "τ^−0.2": (t**-0.2, gamma(0.1) / gamma(0.3)),
        "τ": (t, 0.3),
        "log τ": (np.log(t), digamma(0.3)),
    }
    return _one_chain(x, 0.3 - t[:, None], means)


def normal(rng: Rng, n: int) -> Draws:
    x = rng.normal(size=(n, 2))
    a, b = x.T
    heavy = {
        "e^2x": (np.exp(2 * a), np.exp(2)),
        "e^x²/4": (np.exp(a * a / 4), np.sqrt(2)),
        "e^3x": (np.exp(3 * a), np.exp(4.5)),
    }
    light = {"x²": (a * a, 1.0), "e^x": (np.exp(a), np.exp(0.5)), "cos": (np.cos(b), np.exp(-0.5))}
    return _one_chain(x, -x, heavy | light)


def scale(rng: Rng, n: int, data: int) -> Draws:
    """(μ, log σ) of a normal sample with flat priors."""
    y = np.array([4.9, 1.2, 3.8, 0.4, 5.1, 2.7, 6.3, 2.2, 3.1, 4.4])[:data]
    squares = np.sum((y - y.mean()) ** 2)
    variance = squares / rng.chisquare(data - 1, size=n)
    mu = y.mean() + rng.normal(size=n) * np.sqrt(variance / data)
    x = np.stack([mu, np.log(variance) / 2], axis=1)
    pull = data * (mu - y.mean())
    s = np.stack([-pull / variance, -data + (squares + pull * (mu - y.mean())) / variance], axis=1)
    k = (data - 1) / 2
    sigma = np.sqrt(squares / 2) * gamma(k - 0.5) / gamma(k)
    return _one_chain(
        x,
        s,
        {
            "σ": (np.sqrt(variance), sigma),
            "μ": (mu, y.mean()),
            "σ²": (variance, squares / (data - 3)),
        },
    )


def mixture(rng: Rng, n: int) -> Draws:
    x = rng.normal(size=n) + np.where(rng.random(n) < 0.5, -2.0, 2.0)
    s = -(x - 2 * np.tanh(2 * x))
    means = {
        "x": (x, 0.0),
        "x²": (x * x, 5.0),
        "e^x/2": (np.exp(x / 2), np.exp(1 / 8) * np.cosh(1)),
    }
    return _one_chain(x[:, None], s[:, None], means)


def autoregression(rng: Rng, n: int, rho: float) -> Draws:
    x = rng.normal(size=(n, 2))
    for i in range(1, n):
        x[i] = rho * x[i - 1] + np.sqrt(1 - rho**2) * x[i]
    a, b = x.T
    return _one_chain(x, -x, {"x": (a, 0.0), "x²": (a * a, 1.0), "e^x": (np.exp(b), np.exp(0.5))})


def narrow_proposal(rng: Rng, n: int) -> Draws:
    x = 0.6 * rng.normal(size=(n, 1))
    a = x[:, 0]
    means = {"x⁴": (a**4, 3.0), "e^x": (np.exp(a), np.exp(0.5))}
    return _one_chain(x, -x, means, (0.5 * (a / 0.6) ** 2 - 0.5 * a**2)[None])


def funnel(rng: Rng, n: int) -> Draws:
    """v ~ N(0, 1.5²) and x | v ~ N(0, eᵛ), by Hamiltonian Monte Carlo."""
    spread = 1.5

    def slope(y: np.ndarray) -> np.ndarray:
        v, x = y
        return np.array([-v / spread**2 - 0.5 + 0.5 * x * x * np.exp(-v), -x * np.exp(-v)])

    def energy(y: np.ndarray, p: np.ndarray) -> float:
        return y[0] ** 2 / (2 * spread**2) + y[0] / 2 + y[1] ** 2 * np.exp(-y[0]) / 2 + p @ p / 2

    v = spread * rng.normal()
    y, draws = np.array([v, rng.normal() * np.exp(v / 2)]), np.empty((n, 2))
    for i in range(n):
        start = rng.normal(size=2)
        step, at, p = rng.uniform(0.05, 0.35), y, start
        with np.errstate(all="ignore"):  # what diverges is refused
            p = p + step / 2 * slope(at)
            for k in range(12):
                at = at + step * p
                p = p + (step if k < 11 else step / 2) * slope(at)
            y = at if np.log(rng.random()) < energy(y, start) - energy(at, p) else y
        draws[i] = y
    v = draws[:, 0]
    scores = np.stack([slope(y) for y in draws])
    return _one_chain(
        draws,
        scores,
        {"v²": (v * v, spread**2), "e^v/4": (np.exp(v / 4), np.exp(spread**2 / 32)), "v": (v, 0.0)},
    )


TARGETS: dict[str, Callable[[Rng, int], Draws]] = {
    "t5, d = 3": partial(student, freedom=5, d=3),
    "t3": partial(student, freedom=3, d=1),
    "t2": partial(student, freedom=2, d=1),
    "log Gamma(0.3)": log_gamma,
    "normal": normal,
    "normal sample of 10": partial(scale, data=10),
    "normal sample of 5": partial(scale, data=5),
    "two modes": mixture,
    "AR(0.9)": partial(autoregression, rho=0.9),
    "AR(-0.9)": partial(autoregression, rho=-0.9),
    "weights, N(0, 0.6²)": narrow_proposal,
    "funnel": funnel,
}


def draws_of(target: str, n: int, replicate: int, data: Path | None) -> Draws:
    """Of a constructed target, or a chain of a posterior in a folder with truth.json."""
    if target in TARGETS:
        return TARGETS[target](
            np.random.default_rng([zlib.crc32(target.encode()), n, replicate]), n
        )
    assert data is not None
    folder = next(path.parent for path in sorted(data.glob(f"*/{target}.npz")))
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))[target]
    with np.load(folder / f"{target}.npz") as chains:
        count, length = chains["x"].shape[:2]
        these = [(replicate + j) % count for j in range(n // length)]
        x, s, f = (np.asarray(chains[key][these], dtype=float) for key in ("x", "score", "f"))
    return Draws(x, s, f, tuple(truth["names"]), np.array(truth["truth"]), np.array(truth["se"]))


def record(job: tuple[Path, str, int, int, Path | None]) -> None:
    """Keep what every candidate answers."""
    import zerovar as zv
    from zerovar.choice.automatic import tried
    from zerovar.inference.task import Task
    from zerovar.io.atomic import atomic

    path, target, n, replicate, data = job
    if path.exists():
        return
    found = draws_of(target, n, replicate, data)
    sample = zv.Sample(found.x, found.s, found.log_weights)
    task = Task.of(sample, found.f.reshape(len(sample), -1))
    contenders, _ = tried(task, zv.Automatic(progress=False))
    kept = {
        "labels": [one.label for one in contenders],
        "simple": [one.simple for one in contenders],
        "values": [one.answer.value for one in contenders],
        "influences": [one.answer.influences for one in contenders],
        "residuals": [one.answer.in_a_mean for one in contenders],
        "outer": [one.answer.at_tails(task.tails) for one in contenders],
    }
    with atomic(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **{name: np.array(entry) for name, entry in kept.items()})


class Judged(NamedTuple):
    """Of one replicate, (q,) each, by the rule as it is now."""

    z: np.ndarray  # deviations in standard errors
    error: np.ndarray
    plain_error: np.ndarray
    off: np.ndarray  # values less means
    plain_off: np.ndarray
    named: np.ndarray  # in a warning
    accused: np.ndarray  # of scores that are not those of the draws: never true here


def judged(job: tuple[Path, str, int, int, Path | None]) -> Judged:
    import zerovar as zv
    from zerovar.choice import Selection
    from zerovar.choice.policy import Policy
    from zerovar.choice.stacking import CandidateAnswer, stacked
    from zerovar.diagnostics import Cautions
    from zerovar.inference.answers import Answer, plain_answer
    from zerovar.inference.conclude import Evidence, concluded
    from zerovar.inference.task import Task

    path, target, n, replicate, data = job
    found = draws_of(target, n, replicate, data)
    sample = zv.Sample(found.x, found.s, found.log_weights)
    task = Task.of(sample, found.f.reshape(len(sample), -1))
    stats = plain_answer(task).stats
    with np.load(path) as kept:
        rows = zip(
            *(
                kept[key]
                for key in ("labels", "simple", "values", "influences", "residuals", "outer")
            ),
            strict=True,
        )
        contenders = [
            CandidateAnswer(str(a), bool(b), Answer(v, i, stats, residuals=r, outer=o))
            for a, b, v, i, r, o in rows
        ]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        cautions = Cautions()
        cautions.scores(zv.check(sample))
        evidence = Evidence.of(task, found.names, np.zeros(len(found.names), dtype=bool))
        stack = stacked(task, contenders, Policy())
        labels = tuple(one.label for one in contenders)
        selection = Selection(
            found.names, labels, stack.errors, stack.weights, tuple(stack.reasons), ()
        )
        how = {"family": None, "split": "in sample", "settings": {}, "selection": selection}
        answer = concluded(evidence, stack.answer, cautions, **how)
    named = {name for one in said for name in getattr(one.message, "names", ())}
    off, accused = (
        answer.value - found.means,
        any(issubclass(one.category, zv.ScoreWarning) for one in said),
    )
    return Judged(
        off / np.hypot(answer.std_error, found.errors),
        answer.std_error,
        answer.plain_std_error,
        off,
        answer.plain_value - found.means,
        np.array([name in named for name in found.names]),
        np.full(len(found.names), accused),
    )


HEAD = (
    "answers",
    "within 1.96",
    "rms z",
    "reported",
    "realised",
    "named",
    "missed",
    "unsaid",
    "accused",
)


def row(some: Judged) -> list[str]:
    """Of arrays (replicate, q). `reported` is the median of the gains as reported, `realised` that
    over integrands of the ratio of mean squares; `missed` the share that is more than three errors
    off, and `unsaid` that of them which no warning names."""
    z = np.abs(some.z)
    reported = np.median((some.plain_error / some.error) ** 2)
    realised = np.median(np.mean(some.plain_off**2, axis=0) / np.mean(some.off**2, axis=0))
    numbers = np.mean(z < 1.96), np.sqrt(np.mean(z**2)), reported, realised
    shares = (
        np.mean(some.named),
        np.mean(z > 3),
        np.mean((z > 3) & ~some.named),
        np.mean(some.accused),
    )
    return [
        str(z.size),
        *(f"{number:.3g}" for number in numbers),
        *(f"{share:.0%}" for share in shares),
    ]


def run(
    folder: Path,
    draws: int,
    replicates: int,
    chains: int = 1,
    data: Path | None = None,
    only: Sequence[str] = ("",),
) -> dict[str, list[str]]:
    """Print the table and return its rows: constructed targets of so many draws, so many chains of
    the posteriors in `data`."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {target: (draws, replicates) for target in TARGETS}
    for truth in sorted(data.glob("*/truth.json")) if data is not None else ():
        sizes |= dict.fromkeys(json.loads(truth.read_text(encoding="utf-8")), (1000 * chains, 10))
    jobs = {
        target: [
            (folder / f"{target}-{n}-{k}.npz".replace("/", "_"), target, n, k, data)
            for k in range(count)
        ]
        for target, (n, count) in sizes.items()
        if target.startswith(tuple(only))
    }
    every = sorted((job for some in jobs.values() for job in some), key=lambda job: job[3])
    rows = {}
    with workers() as pool:
        for _ in pool.imap_unordered(record, every):
            pass
        print(f"{'target':38s}" + "".join(f"{word:>12s}" for word in HEAD))
        for target, some in jobs.items():
            found = Judged(*map(np.array, zip(*pool.map(judged, some), strict=True)))
            names = draws_of(target, *some[0][2:]).names if target in TARGETS else ("all",)
            for j, name in enumerate(names):
                label, part = f"{target}: {name}", Judged(*(each[:, j : j + 1] for each in found))
                rows[label] = row(found if len(names) == 1 else part)
                print(f"{label:38s}" + "".join(f"{cell:>12s}" for cell in rows[label]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--draws", type=int, default=400, help="of each replicate of the constructed targets"
    )
    parser.add_argument("--replicates", type=int, default=30)
    parser.add_argument("--chains", type=int, default=1, help="of a posterior, for each replicate")
    parser.add_argument(
        "--data",
        type=Path,
        help="a folder with */truth.json; ten chains of each posterior are used",
    )
    parser.add_argument("--only", nargs="+", default=[""], help="targets whose names begin so")
    run(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
