"""The models of `example_models.py`, run from their sampler to the table.

python -m benchmarks.examples [--only NAME …] [--runs 4] [--long 4000] [--out FILE.csv]

`tests/test_examples.py` runs them through `zv.summary` and, where they are small, `zv.integrate`.
The command compares `zv.summary` of short runs (2 × 500 draws) with long runs of the same sampler,
4 chains of `--long` draws, one for each: how often a controlled mean is within 1.96 errors of the
long one, both errors joined, and the same for plain means.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import logging
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .example_models import EXAMPLES, Example
from .harness import print_table


def sample(
    example: Example, seed: int, warmup: int = 500, draws: int = 500, chains: int = 2
) -> Any:
    """What a user has after the sampler's run, as `zv.summary` takes it."""
    model, args = example.build()
    if type(model).__module__.split(".")[0] == "pymc":
        return _sample_pymc(model, seed, warmup, draws, chains)
    import jax
    from numpyro.infer import MCMC, NUTS

    mcmc = MCMC(
        NUTS(model, target_accept_prob=0.9),
        num_warmup=warmup,
        num_samples=draws,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    with warnings.catch_warnings():  # on enumeration, and on chains and devices
        warnings.simplefilter("ignore")
        mcmc.run(jax.random.key(seed), *args, extra_fields=("z_grad", "diverging"))
    return mcmc


def _sample_pymc(model: Any, seed: int, warmup: int, draws: int, chains: int) -> Any:
    import pymc as pm

    import zerovar as zv

    logging.getLogger("pymc").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = pm.sample(
            draws,
            tune=warmup,
            chains=chains,
            cores=1,
            random_seed=seed,
            target_accept=0.9,
            progressbar=False,
            compute_convergence_checks=False,
            model=model,
        )
        return zv.from_pymc(model, trace)


class Row(NamedTuple):
    """One model: quantities, shares of controlled and of plain means within 1.96 errors of the long
    run, the median gain, and seconds of one summary."""

    model: str
    quantities: int
    covered: float
    plain: float
    gain: float
    seconds: float


def compare(name: str, runs: int, long: int) -> Row:
    """Hold summaries of short runs against long ones, each against its own: where control variates
    gain much, the errors of the long run are all that is seen."""
    import zerovar as zv

    example = EXAMPLES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        within, plain, gains, seconds = [], [], [], []
        for seed in range(runs):
            truth = zv.summary(_values(sample(example, 1000 + seed, 1000, long, 4)), round_to=None)
            ran = sample(example, seed)
            start = time.perf_counter()
            found = zv.summary(ran, round_to=None)
            seconds.append(time.perf_counter() - start)
            moving = (found["sd"] > 0).to_numpy()
            found, true = found[moving], truth.loc[found.index[moving]]
            for record, value, error in (
                (within, "cv_mean", "cv_mcse_mean"),
                (plain, "mean", "mcse_mean"),
            ):
                joint = np.hypot(found[error], true["mcse_mean"])
                record.append((np.abs(found[value] - true["mean"]) <= 1.96 * joint).to_numpy())
            gains.append(found["gain"].to_numpy())
    return Row(
        name,
        len(within[0]),
        float(np.mean(within)),
        float(np.mean(plain)),
        float(np.nanmedian(gains)),
        float(np.median(seconds)),
    )


def _values(ran: Any) -> Any:
    """The draws alone, for plain columns: a long run needs no control variates."""
    import zerovar as zv

    posterior = ran if isinstance(ran, zv.Posterior) else zv.from_numpyro(ran)
    return dataclasses.replace(posterior, scores=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=EXAMPLES, default=list(EXAMPLES))
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--long", type=int, default=4000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.only:
        rows.append(compare(name, options.runs, options.long))
        print(*rows[-1], flush=True)
    if options.out:
        with open(options.out, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([Row._fields, *rows])
    print_table(
        "Short runs of examples against long ones",
        ["model", "quantities", "covered", "plain", "gain", "seconds"],
        [
            [
                r.model,
                str(r.quantities),
                f"{r.covered:.0%}",
                f"{r.plain:.0%}",
                f"{r.gain:.3g}",
                f"{r.seconds:.1f}",
            ]
            for r in rows
        ],
    )


if __name__ == "__main__":
    main()
