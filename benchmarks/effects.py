"""Hierarchies in the manner of NumPyro's examples: what other coordinates bring to the default
call.

python -m benchmarks.effects [--draws 1000] [--processes 2]

Three models are sampled non-centred and read by `zv.from_numpyro`, which finds their centred form.
Three are given with draws and scores in centred coordinates (`benchmarks.hierarchies`), and the
non-centred form as `coordinates=`. Data have the sizes of the published ones and are made with a
fixed seed. Gains are reported ones, medians over all sites.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .harness import print_table, workers


class Row(NamedTuple):
    """One model: gains without and with other coordinates, those that were taken, and the seconds
    of that call."""

    model: str
    d: int
    alone: float
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

    from .hierarchies import chain, of

    log_density, groups = of(name)
    back = zv.Coupling([(range(3, 3 + groups), lambda x: (x[0], jnp.exp(x[1])))], backwards=True)
    every = np.array([chain((name, draws, key)) for key in range(4)])
    return zv.from_log_density(log_density, every, chain_axis=0, coordinates={"non-centred": back})


def row(job: tuple[str, int]) -> Row:
    import jax

    import zerovar as zv

    from .hierarchies import MODELS

    name, draws = job
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = given(name, draws) if name in MODELS else sampled(name, draws)
        alone = zv.estimate(
            dataclasses.replace(posterior, coordinates={}), family=zv.Automatic(progress=False)
        )
        started = time.perf_counter()
        answer = zv.estimate(posterior, family=zv.Automatic(progress=False))
        seconds = time.perf_counter() - started
    assert answer.selection is not None
    taken = Counter(answer.selection.describe(j) for j in range(len(answer.value))).most_common(2)
    words = "; ".join(f"{what} ({count})" for what, count in taken)
    return Row(
        name,
        posterior.draws.shape[-1],
        *(float(np.nanmedian(one.gain)) for one in (alone, answer)),
        words,
        seconds,
    )


def main() -> None:
    from .hierarchies import MODELS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--processes", type=int, help="default: one a core")
    parser.add_argument("--only", nargs="+", default=[""], help="models whose names begin so")
    options = parser.parse_args()
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
            "with other coordinates",
            "taken (integrands)",
            "seconds",
        ),
        [
            (
                one.model,
                str(one.d),
                f"{one.alone:.3g}",
                f"{one.gain:.3g}",
                one.taken,
                f"{one.seconds:.0f}",
            )
            for one in rows
        ],
    )


if __name__ == "__main__":
    main()
