"""Are the errors of the default call right where tails are long? Known means, and rules left out.

python -m benchmarks.calibration FOLDER [--draws 400] [--replicates 30] [--data ../shared/data]
    [--only t5 pdb] [--without RULE … | --without each]

Candidates take nearly all the time, and rules for errors none. So what the candidates answer is
kept in FOLDER, one file a replicate, and a run that is stopped goes on where it was. The table is
then made by the rules that are in the code now; or, for each RULE, without it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from .harness import workers
from .known_means import DECIDES, TARGETS, Draws, draws_of

ROUTES = {
    "disk": "ON_DISK",
    "family": "ONE_FAMILY",
    "default": "STACK",
    "integrate": "WEIGHTED_POINTS",
}


class Job(NamedTuple):
    """A replicate of a target: where its answers are kept, and which rule is left out."""

    path: Path
    target: str
    draws: int
    replicate: int
    data: Path | None
    without: str = ""

    @property
    def route(self) -> str:
        return TARGETS[self.target].route if self.target in TARGETS else "default"

    @property
    def found(self) -> Draws:
        return draws_of(self.target, self.draws, self.replicate, self.data)


def record(job: Job) -> None:
    """Keep what every candidate answers; only the default call has candidates."""
    import zerovar as zv
    from zerovar.choice.automatic import try_all
    from zerovar.choice.structure import find_hierarchy
    from zerovar.inference.task import Task
    from zerovar.io.atomic import atomic

    if job.path.exists() or job.route != "default":
        return
    found = job.found
    sample = zv.Sample(found.x, found.s, found.log_weights)
    task = Task.of(sample, found.f.reshape(len(sample), -1))
    hierarchy = find_hierarchy(task.sample, task.effective)
    options = zv.Automatic(progress=False)
    contenders = try_all(task, options, found.coordinates, hierarchy=hierarchy).contenders
    kept = {
        "labels": [one.label for one in contenders],
        "simple": [one.simple for one in contenders],
        "values": [one.answer.value for one in contenders],
        "influences": [one.answer.influences for one in contenders],
        "residuals": [one.answer.in_a_mean for one in contenders],
        "outer": [one.answer.at_tails(task.tails) for one in contenders],
    }
    with atomic(job.path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **{name: np.array(entry) for name, entry in kept.items()})


class Judged(NamedTuple):
    """Of one replicate, (q,) each, by the rules that were applied."""

    z: np.ndarray  # deviations in standard errors
    error: np.ndarray
    plain_error: np.ndarray
    off: np.ndarray  # values less means
    plain_off: np.ndarray
    named: np.ndarray  # in a warning
    accused: np.ndarray  # of scores that are not those of the draws: never true here


def judge(job: Job) -> Judged:
    """Hold the answer of one replicate against the means."""
    import zerovar as zv

    found = job.found
    answers = {
        "default": from_kept_answers,
        "family": by_one_family,
        "disk": from_disk,
        "integrate": by_integrate,
    }
    with warnings.catch_warnings(record=True) as said, leave_out(job.without):
        warnings.simplefilter("always")
        answer = answers[job.route](job, found)
    named = {name for one in said for name in getattr(one.message, "names", ())}
    accused = any(issubclass(one.category, zv.ScoreWarning) for one in said)
    order = [answer.names.index(name) for name in found.names]
    value, error, plain_value, plain_error = (
        getattr(answer, key)[order]
        for key in ("value", "std_error", "plain_value", "plain_std_error")
    )
    off = value - found.means
    return Judged(
        off / np.hypot(error, found.errors),
        error,
        plain_error,
        off,
        plain_value - found.means,
        np.array([name in named for name in found.names]),
        np.full(len(found.names), accused),
    )


@contextlib.contextmanager
def leave_out(rule: str) -> Iterator[None]:
    """Within this context, no route has the rule of this name."""
    from zerovar.inference import rules

    with contextlib.ExitStack() as stack:
        for route in ROUTES.values():
            kept = tuple(one for one in getattr(rules, route) if one.__name__ != rule)
            stack.enter_context(mock.patch.object(rules, route, kept))
        yield


def rule_names() -> list[str]:
    """The names of all rules, in their order."""
    from zerovar.inference import rules

    routes = (getattr(rules, route) for route in ROUTES.values())
    return list(dict.fromkeys(one.__name__ for route in routes for one in route))


def has_rule(route: str, rule: str) -> bool:
    """Whether the rules of a route are those of a ledger with this one."""
    from zerovar.inference import rules

    return rule in [one.__name__ for one in getattr(rules, ROUTES[route])]


def from_kept_answers(job: Job, found: Draws) -> Any:
    """The default call, whose candidates are not tried again."""
    import zerovar as zv
    from zerovar.choice.policy import Policy
    from zerovar.choice.stacking import Contender, stack
    from zerovar.inference import rules
    from zerovar.inference.answer import Answer, plain_answer
    from zerovar.inference.cautions import Cautions
    from zerovar.inference.conclude import conclude
    from zerovar.inference.facts import Facts, ScoreFacts
    from zerovar.inference.task import Task
    from zerovar.output import Selection

    sample = zv.Sample(found.x, found.s, found.log_weights)
    task = Task.of(sample, found.f.reshape(len(sample), -1))
    plain = plain_answer(task)
    controlled = np.ones(len(found.names), dtype=bool)
    with np.load(job.path) as kept:
        answers = [
            Answer(value, influences, plain.stats, controlled, residuals=residuals, outer=outer)
            for value, influences, residuals, outer in zip(
                *(kept[key] for key in ("values", "influences", "residuals", "outer")), strict=True
            )
        ]
        labels, simple = tuple(map(str, kept["labels"])), kept["simple"]
    candidates = zip(labels, map(bool, simple), [plain, *answers[1:]], strict=True)
    contenders = [Contender(*each) for each in candidates]
    cautions = Cautions()
    verdict = zv.check(sample)
    cautions.add_check(verdict)
    told = TARGETS[job.target].score_error if job.target in TARGETS else 0.0
    combined = stack(task, contenders, Policy())
    selection = Selection(
        found.names, labels, combined.errors, combined.weights, tuple(combined.reasons), ()
    )
    events = np.all((task.values == 0) | (task.values == 1), axis=0)
    scores = ScoreFacts.of(sample, verdict, task.values, told)
    facts = Facts.in_memory(task, found.names, events, scores)
    how = {"split": "in sample", "settings": {}, "selection": selection}
    return conclude(combined.answer, facts, rules.STACK, cautions, **how)


def by_one_family(job: Job, found: Draws) -> Any:
    """A quadratic and a kernel that nearly interpolates."""
    import zerovar as zv

    family = zv.Polynomial(2) + zv.Kernel(zv.kernels.InverseMultiquadric(2.0), weight=4.0)
    ridge, values = (
        zv.LeastSquares(zv.Ridge(1e-6)),
        dict(zip(found.names, found.f[0].T, strict=True)),
    )
    return zv.estimate(found.x, found.s, values, family=family, objective=ridge)


def from_disk(job: Job, found: Draws) -> Any:
    """The default call on chunked arrays."""
    import dask
    import dask.array as da

    import zerovar as zv

    arrays = [da.from_array(each, chunks=(1, 200, -1)) for each in (found.x, found.s, found.f)]
    with dask.config.set(scheduler="synchronous"):
        return zv.estimate(*arrays, names=found.names)


def by_integrate(job: Job, found: Draws) -> Any:
    """Points of `integrate`, from a log density of the same target."""
    import jax.numpy as jnp

    import zerovar as zv

    y = np.array([4.9, 1.2, 3.8, 0.4, 5.1])

    def gamma_density(x):
        return 0.3 * x[0] - jnp.exp(x[0])

    def log_scale(x):
        return -5 * x[1] - jnp.sum((y - x[0]) ** 2) / 2 * jnp.exp(-2 * x[1])

    def two_modes(x):
        return jnp.logaddexp(-((x[0] - 2) ** 2) / 2, -((x[0] + 2) ** 2) / 2)

    cases = {
        "integrate: log Gamma(0.3)": (
            gamma_density,
            1,
            {
                "τ^−0.2": lambda x: jnp.exp(-0.2 * x[0]),
                "τ": lambda x: jnp.exp(x[0]),
                "log τ": lambda x: x[0],
            },
        ),
        "integrate: normal sample of 5": (
            log_scale,
            2,
            {
                "σ": lambda x: jnp.exp(x[1]),
                "μ": lambda x: x[0],
                "σ²": lambda x: jnp.exp(2 * x[1]),
            },
        ),
        "integrate: two modes": (
            two_modes,
            1,
            {"x": lambda x: x[0], "x²": lambda x: x[0] ** 2, "e^x/2": lambda x: jnp.exp(x[0] / 2)},
        ),
    }
    density, d, values = cases[job.target]
    return zv.integrate(density, d, values, seed=job.replicate, gradients=2000, progress=False)


HEAD = (
    *("answers", "within 1.96", "rms z", "reported", "realised", "mean square"),
    *("named", "missed", "unsaid", "accused"),
)


def row(some: Judged) -> list[str]:
    """Of arrays (replicate, q).

    `reported` is the median of the gains as reported, `realised` that over integrands of the ratio
    of mean squares; `mean square` that of all integrands over the plain means', each in units of
    its plain error; `missed` the share that is more than three errors off, and `unsaid` that of
    them which no warning names.
    """
    z = np.abs(some.z)
    squares = ((off / some.plain_error) ** 2 for off in (some.off, some.plain_off))
    worse = np.divide(*(np.mean(each) for each in squares))
    numbers = np.mean(z < 1.96), np.sqrt(np.mean(z**2)), *gains(some), worse
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


def gains(some: Judged) -> tuple[float, float]:
    """The median of the gains as reported, and as realised."""
    reported = np.median((some.plain_error / some.error) ** 2)
    squares = np.mean(some.plain_off**2, axis=0), np.mean(some.off**2, axis=0)
    return float(reported), float(np.median(squares[0] / squares[1]))


def run(
    folder: Path,
    draws: int,
    replicates: int,
    chains: int = 1,
    data: Path | None = None,
    only: Sequence[str] = ("",),
    without: Sequence[str] = (),
) -> dict[str, list[str]]:
    """Print the table and return its rows: constructed targets of so many draws, so many chains of
    the posteriors in `data`; and a table for each rule that is left out."""
    unknown = [name for name in without if name not in ("each", *rule_names())]
    if unknown:
        raise ValueError(f"no rule is called {', '.join(unknown)}: {', '.join(rule_names())}")
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {name: (draws, -(-replicates // target.slow)) for name, target in TARGETS.items()}
    for truth in sorted(data.glob("*/truth.json")) if data is not None else ():
        known = json.loads(truth.read_text(encoding="utf-8"))
        sizes |= dict.fromkeys(known, (1000 * chains, 10))
    jobs = {
        target: [
            Job(folder / f"{target}-{n}-{k}.npz".replace("/", "_"), target, n, k, data)
            for k in range(count)
        ]
        for target, (n, count) in sizes.items()
        if target.startswith(tuple(only))
    }
    every = sorted((job for some in jobs.values() for job in some), key=lambda job: job.replicate)
    with workers() as pool:
        for _ in pool.imap_unordered(record, every):
            pass

        def judge_all(rule: str = "") -> dict[str, Judged]:
            some = [job for job in every if not rule or has_rule(job.route, rule)]
            found = pool.map(judge, [job._replace(without=rule) for job in some], chunksize=1)
            by_target: dict[str, list[Judged]] = {}
            for job, one in zip(some, found, strict=True):
                by_target.setdefault(job.target, []).append(one)
            return {
                target: Judged(*map(np.array, zip(*ones, strict=True)))
                for target, ones in by_target.items()
            }

        with_all = judge_all()
        print(f"{'target':38s}" + "".join(f"{word:>12s}" for word in HEAD))
        rows = {}
        for target in jobs:
            found = with_all[target]
            pooled = target not in TARGETS or TARGETS[target].pooled
            names = ("all",) if pooled else draws_of(target, *jobs[target][0][2:5]).names
            for j, name in enumerate(names):
                label = f"{target}: {name}"
                part = Judged(*(each[:, j : j + 1] for each in found))
                rows[label] = row(found if len(names) == 1 else part)
                print(f"{label:38s}" + "".join(f"{cell:>12s}" for cell in rows[label]), flush=True)
        for rule in rule_names() if "each" in without else without:
            rows |= show_ablation(rule, with_all, judge_all(rule))
    return rows


def show_ablation(
    rule: str, with_all: dict[str, Judged], without: dict[str, Judged]
) -> dict[str, list[str]]:
    """Print what a rule does for each target that it moves; ratios are of gains as reported and
    realised."""
    print(f"\nwithout {rule}\n{'target':38s}{'half':>10s}" + "".join(f"{w:>24s}" for w in ABLATED))
    rows = {}
    for target, other in without.items():
        found = with_all[target]
        if np.array_equal(found.error, other.error) and np.array_equal(found.off, other.off):
            continue
        cells = []
        for measure in (_within, _rms, _ratio):
            cells.append(f"{measure(found):.3g} → {measure(other):.3g}")
        half = "decides" if target in DECIDES else "reports"
        moved = np.mean(np.any([found.error != other.error, found.off != other.off], axis=0))
        rows[f"without {rule}: {target}"] = [half, *cells, f"{moved:.0%}"]
        print(f"{target:38s}{half:>10s}" + "".join(f"{c:>24s}" for c in (*cells, f"{moved:.0%}")))
    return rows


ABLATED = ("within 1.96", "rms z", "reported / realised", "answers that it moves")


def _within(some: Judged) -> float:
    return float(np.mean(np.abs(some.z) < 1.96))


def _rms(some: Judged) -> float:
    return float(np.sqrt(np.mean(some.z**2)))


def _ratio(some: Judged) -> float:
    reported, realised = gains(some)
    return reported / realised


def add_options(parser: argparse._ActionsContainer) -> None:
    """The options that `python -m benchmarks calibration` has too."""
    parser.add_argument("--draws", type=int, help="of each replicate of the constructed targets")
    parser.add_argument("--replicates", type=int)
    parser.add_argument("--chains", type=int, help="of a posterior, for each replicate")
    parser.add_argument("--only", nargs="+", default=[""], help="targets whose names begin so")
    parser.add_argument(
        "--without", nargs="+", default=[], metavar="RULE", help="rules to leave out; or: each"
    )


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Standard errors against known means, with and without rules; what the candidates answer is
    kept, and a run that is stopped goes on."""
    folder, data = options.out / "calibration", options.data
    if options.quick:
        rules = options.without or ["single_scores"]
        return {"calibration": run(folder, 60, 1, only=("t3", "few"), without=rules)}
    asked = options.draws is not None
    sizes = ((options.draws, options.replicates or 30),) if asked else ((400, 100), (2000, 40))
    found = {}
    for n, count in sizes:
        chains = options.chains or n // 500 or 1
        found[f"{n} draws"] = run(folder, n, count, chains, data, options.only, options.without)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--data", type=Path, help="a folder with */truth.json; ten chains of each posterior"
    )
    add_options(parser)
    parser.set_defaults(draws=400, replicates=30, chains=1)
    run(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
