"""Hierarchies in the manner of NumPyro's examples: what other coordinates bring to the default
call.

python -m benchmarks.effects [--draws 1000] [--processes 2]
python -m benchmarks.effects --arrays 8 [--data ../shared/data]

Three models are sampled non-centred and read by `zv.from_numpyro`, which finds their centred form.
Three are given with draws and scores in centred coordinates (`benchmarks.sampled_hierarchies`), and
the non-centred form as `coordinates=`. Data have the sizes of the published ones and are made with
a fixed seed. Gains are reported ones, medians over all sites.

With `--arrays` so many chains of each of these three, of 300 groups with exact draws (four times as
many) and, where there is `data`, of the eight schools are given as arrays in centred coordinates,
nothing else. Gains are realised ones: mean squared errors of plain means over those of the answers,
or where no truth is known variances between chains, medians over integrands.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .harness import print_table, workers


class Row(NamedTuple):
    """One model: gains without other coordinates, with those that are found, and with those that
    are known too; what was taken then, and the seconds of that call."""

    model: str
    d: int
    alone: float
    found: float
    gain: float
    taken: str
    seconds: float


def admissions(rng: np.random.Generator) -> Callable[[], None]:
    """Applicants of two kinds to six departments: a binomial regression with correlated intercepts
    and slopes, d = 17."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    kind, department = np.tile([0.0, 1.0], 6), np.repeat(np.arange(6), 2)
    intercepts, slopes = rng.normal(-0.5, 1.2, 6), rng.normal(-0.1, 0.5, 6)
    applied = rng.integers(25, 825, 12)
    admitted = rng.binomial(
        applied, 1 / (1 + np.exp(-intercepts[department] - slopes[department] * kind))
    )

    def model() -> None:
        mean = numpyro.sample("mean", dist.Normal(0, 1).expand([2]).to_event(1))
        scale = numpyro.sample("scale", dist.HalfNormal(1).expand([2]).to_event(1))
        root = numpyro.sample("root", dist.LKJCholesky(2, concentration=2.0))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([6, 2]).to_event(2))
        effects = numpyro.deterministic("effects", mean + z @ (scale[:, None] * root).T)
        odds = effects[department, 0] + effects[department, 1] * jnp.asarray(kind)
        numpyro.sample(
            "admitted", dist.Binomial(jnp.asarray(applied), logits=odds), obs=jnp.asarray(admitted)
        )

    return model


def batting(rng: np.random.Generator) -> Callable[[], None]:
    """Hits of 18 players at 45 times at bat: partial pooling of logarithms of odds, d = 20."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    hits = rng.binomial(45, 1 / (1 + np.exp(-rng.normal(-1.0, 0.3, 18))))

    def model() -> None:
        location = numpyro.sample("location", dist.Normal(-1, 1))
        scale = numpyro.sample("scale", dist.HalfCauchy(1))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([18]).to_event(1))
        odds = numpyro.deterministic("odds", location + scale * z)
        numpyro.sample("hits", dist.Binomial(45, logits=odds), obs=jnp.asarray(hits))

    return model


def counties(rng: np.random.Generator) -> Callable[[], None]:
    """919 measurements in 85 counties, of a few to a hundred each: intercepts that vary, and one
    slope, d = 89."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    county = np.concatenate(
        [np.arange(85), rng.choice(85, 919 - 85, p=rng.dirichlet(0.7 * np.ones(85)))]
    )
    floor = (rng.random(919) < 0.17).astype(float)
    measured = rng.normal(1.5, 0.33, 85)[county] - 0.7 * floor + 0.75 * rng.normal(size=919)

    def model() -> None:
        mean = numpyro.sample("mean", dist.Normal(0, 5))
        scale = numpyro.sample("scale", dist.HalfNormal(1))
        slope = numpyro.sample("slope", dist.Normal(0, 5))
        error = numpyro.sample("error", dist.HalfNormal(2))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([85]).to_event(1))
        intercepts = numpyro.deterministic("intercepts", mean + scale * z)
        numpyro.sample(
            "y",
            dist.Normal(intercepts[county] + slope * jnp.asarray(floor), error),
            obs=jnp.asarray(measured),
        )

    return model


SAMPLED = {"admissions": admissions, "batting averages": batting, "counties": counties}


def sampled(name: str, draws: int) -> Any:
    """The posterior of a NumPyro model, sampled as it is written, 4 chains."""
    import jax
    from numpyro.infer import MCMC, NUTS

    import zerovar as zv

    options = {
        "num_warmup": 1000,
        "num_chains": 4,
        "chain_method": "sequential",
        "progress_bar": False,
    }
    mcmc = MCMC(
        NUTS(SAMPLED[name](np.random.default_rng(0)), target_accept_prob=0.9),
        num_samples=draws,
        **options,
    )
    mcmc.run(jax.random.key(0), extra_fields=("z_grad",))
    return zv.from_numpyro(mcmc)


def given(name: str, draws: int) -> Any:
    """The posterior of a model whose draws and scores are centred, 4 chains, with its non-centred
    form."""
    import jax.numpy as jnp

    import zerovar as zv

    from .sampled_hierarchies import chain, of

    log_density, groups = of(name)
    back = zv.Coupling([(range(3, 3 + groups), lambda x: (x[0], jnp.exp(x[1])))], backwards=True)
    every = np.array([chain((name, draws, key)) for key in range(4)])
    return zv.from_log_density(log_density, every, chain_axis=0, coordinates={"non-centred": back})


@contextlib.contextmanager
def nothing_found() -> Iterator[None]:
    """As if no draws had a hierarchy."""
    from zerovar import session

    finds = session.find_hierarchy
    session.find_hierarchy = lambda *_: None
    try:
        yield
    finally:
        session.find_hierarchy = finds


def row(job: tuple[str, int]) -> Row:
    import jax

    import zerovar as zv

    from .sampled_hierarchies import MODELS

    name, draws = job
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = given(name, draws) if name in MODELS else sampled(name, draws)
        arrays = dataclasses.replace(posterior, coordinates={})
        with nothing_found():
            alone = zv.estimate(arrays, family=zv.Automatic(progress=False))
        found = zv.estimate(arrays, family=zv.Automatic(progress=False))
        started = time.perf_counter()
        answer = zv.estimate(posterior, family=zv.Automatic(progress=False))
        seconds = time.perf_counter() - started
    assert answer.selection is not None
    taken = Counter(answer.selection.describe(j) for j in range(len(answer.value))).most_common(2)
    words = "; ".join(f"{what} ({count})" for what, count in taken)
    return Row(
        name,
        posterior.draws.shape[-1],
        *(float(np.nanmedian(one.gain)) for one in (alone, found, answer)),
        words,
        seconds,
    )


class Replicate(NamedTuple):
    """One chain of a centred hierarchy: the draws, what is asked of them, and what is known."""

    model: str
    x: np.ndarray
    s: np.ndarray
    f: np.ndarray
    truth: np.ndarray | None
    known: Any


GROUPS, SCHOOLS = "normal, 300 groups", "eight schools"


def replicate(name: str, draws: int, key: int, data: Path | None) -> Replicate:
    import jax
    import jax.numpy as jnp

    import zerovar as zv

    from .hierarchies import Groups
    from .sampled_hierarchies import chain, of

    def form(first: int, groups: int, mu: int, log_tau: int) -> Any:
        pair = lambda x: (x[mu], jnp.exp(x[log_tau]))  # noqa: E731
        return zv.Coupling([(range(first, first + groups), pair)], backwards=True)

    def gradient(log_density: Callable[..., Any], x: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(jax.jit(jax.vmap(jax.grad(log_density)))(x))

    if name == SCHOOLS:
        assert data is not None
        folder = data / "posteriors"
        stored = np.load(folder / "eight_schools_noncentered.npz")
        x, s, f = (np.asarray(stored[one][key], float) for one in ("x", "score", "f"))
        pair = lambda x: (x[8], jnp.exp(x[9]))  # noqa: E731
        there = zv.Coupling([(range(8), pair)])(zv.Sample(x, s))
        truth = json.loads((folder / "truth.json").read_text())["eight_schools_noncentered"]
        return Replicate(
            name, there.draws, there.scores, f, np.array(truth["truth"]), form(0, 8, 8, 9)
        )
    if name == GROUPS:
        model = Groups(300, 2, 2.0, (0.7,))
        x, f = model.draw(np.random.default_rng(key), 4 * draws)
        s = gradient(model.log_density, x)
        return Replicate(name, x, s, f, model.means[0], model.form("non-centred"))
    log_density, groups = of(name)
    x = chain((name, draws, key))
    f = np.concatenate([x[:, :1], np.exp(x[:, 1:2]), x[:, 2:13]], axis=1)
    return Replicate(name, x, gradient(log_density, x), f, None, form(3, groups, 0, 1))


def answers(job: tuple[str, int, int, Path | None]) -> tuple[Replicate, dict[str, Any], float]:
    """Of one chain, without other coordinates, with found and with known ones; and the seconds of
    the call that finds."""
    import zerovar as zv

    one, found = replicate(*job), {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for label, forms in (("none", {}), ("known", {"non-centred": one.known})):
            posterior = zv.Posterior(one.x, one.s, one.f, coordinates=forms)
            with nothing_found():
                found[label] = zv.estimate(posterior, family=zv.Automatic(progress=False))
        started = time.perf_counter()
        found["found"] = zv.estimate(one.x, one.s, one.f, family=zv.Automatic(progress=False))
    return one._replace(x=one.x[:1], s=one.s[:1], known=None), found, time.perf_counter() - started


def show_arrays(options: argparse.Namespace) -> None:
    from .sampled_hierarchies import MODELS

    models = [*MODELS, GROUPS, *([SCHOOLS] if options.data else [])]
    models = [name for name in models if name.startswith(tuple(options.only))]
    jobs = [
        (name, options.draws, k, options.data) for name in models for k in range(options.arrays)
    ]
    with workers(options.processes) as pool:
        every = pool.map(answers, jobs, chunksize=1)
    rows = []
    for name in models:
        ours = [one for one in every if one[0].model == name]
        gains, within = {}, ""
        for label in ("none", "found", "known"):
            value, plain, error = (
                np.array([getattr(found[label], key) for _, found, _ in ours])
                for key in ("value", "plain_value", "std_error")
            )
            truth = ours[0][0].truth
            away = [one - (one.mean(axis=0) if truth is None else truth) for one in (plain, value)]
            squares = [np.mean(one**2, axis=0) for one in away]
            gains[label] = f"{np.median(squares[0] / squares[1]):.3g}"
            if label == "found":
                lost = len(ours) / (len(ours) - 1) if truth is None else 1.0
                z = away[1] / error * np.sqrt(lost)
                within = f"{np.mean(np.abs(z) < 1.96):.0%}, {np.sqrt(np.mean(z**2)):.2f}"
        seconds = np.median([one[2] for one in ours])
        d = str(ours[0][0].x.shape[1])
        rows.append((name, d, str(len(ours)), *gains.values(), within, f"{seconds:.0f}"))
    print_table(
        "Centred hierarchies given as arrays: realised gains",
        ("model", "d", "chains", "none", "found", "known", "within 1.96, rms z", "seconds"),
        rows,
    )


def main() -> None:
    from .sampled_hierarchies import MODELS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--processes", type=int, help="default: one a core")
    parser.add_argument("--only", nargs="+", default=[""], help="models whose names begin so")
    parser.add_argument("--arrays", type=int, default=0, help="chains of each centred model")
    parser.add_argument("--data", type=Path, help="a folder with posteriors/truth.json")
    options = parser.parse_args()
    if options.arrays:
        show_arrays(options)
        return
    jobs = [
        (name, options.draws)
        for name in (*SAMPLED, *MODELS)
        if name.startswith(tuple(options.only))
    ]
    with workers(options.processes) as pool:
        rows = pool.map(row, jobs, chunksize=1)
    print_table(
        f"Hierarchies by the default call, 4 × {options.draws} draws",
        (
            "model",
            "d",
            "gain as sampled",
            "with coordinates found",
            "with those known too",
            "taken (integrands)",
            "seconds",
        ),
        [
            (
                one.model,
                str(one.d),
                f"{one.alone:.3g}",
                f"{one.found:.3g}",
                f"{one.gain:.3g}",
                one.taken,
                f"{one.seconds:.0f}",
            )
            for one in rows
        ],
    )


if __name__ == "__main__":
    main()
