"""The models of `example_models.py`, run from their sampler to the table.

python -m benchmarks.examples [--only NAME …] [--runs 4] [--long 4000] [--out FILE.csv]
python -m benchmarks.examples --keep

`tests/test_examples.py` runs them through `zv.summary` and, where they are small, `zv.integrate`.
With `--keep` a short run of each is kept in `example_runs.npz`, for tests without the sampler: to
compile NUTS takes longer than all the rest.
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
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from zerovar.io.atomic import atomic

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
    import zerovar as zv

    return zv.from_pymc(model, _trace_pymc(model, seed, warmup, draws, chains))


def _trace_pymc(model: Any, seed: int, warmup: int, draws: int, chains: int) -> Any:
    import pymc as pm

    logging.getLogger("pymc").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pm.sample(
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


KEPT = Path(__file__).with_name("example_runs.npz")
_DRAWS = 100  # a chain, of kept runs


def keep_runs(path: Path = KEPT) -> None:
    """Write a short run of every example: its sites, with NumPyro's last state and gradients."""
    arrays = {}
    for name, example in EXAMPLES.items():
        model, _ = example.build()
        if type(model).__module__.split(".")[0] == "pymc":
            trace = _trace_pymc(model, 0, 500, _DRAWS, 2)["posterior"]
            parts = {"site": {each: trace[each] for each in trace.data_vars}}
        else:
            mcmc = sample(example, 0, draws=_DRAWS)
            gradients = mcmc.get_extra_fields(group_by_chain=True)["z_grad"]
            sites = mcmc.get_samples(group_by_chain=True)
            parts = {"site": sites, "gradient": gradients, "last": mcmc.last_state.z}
        for part, found in parts.items():
            for each, array in found.items():
                arrays[f"{name}/{part}/{each}"] = np.asarray(array, dtype=np.float32)
    with atomic(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)


def read_run(name: str, path: Path = KEPT) -> Any:
    """A kept run as a posterior."""
    import zerovar as zv

    parts: dict[str, dict[str, np.ndarray]] = {"site": {}, "gradient": {}, "last": {}}
    with np.load(path) as arrays:
        for key in arrays.files:
            example, part, each = key.split("/")
            if example == name:
                parts[part][each] = arrays[key]
    model, args = EXAMPLES[name].build()
    if not parts["last"]:
        import xarray as xr

        def dims(array: xr.DataArray, each: str) -> tuple[str, ...]:
            named = model.named_vars_to_dims.get(each) or ()
            return ("chain", "draw", *named)[: array.ndim]

        sites = {each: (dims(array, each), array) for each, array in parts["site"].items()}
        coords = {each: list(labels) for each, labels in model.coords.items()}
        return zv.from_pymc(model, xr.DataTree.from_dict({"posterior": xr.Dataset(sites, coords)}))
    import jax
    from numpyro.infer import NUTS

    run = SimpleNamespace(
        sampler=NUTS(model),
        last_state=SimpleNamespace(z=parts["last"]),
        get_samples=lambda group_by_chain: jax.tree.map(jax.numpy.asarray, parts["site"]),
        get_extra_fields=lambda group_by_chain: {"z_grad": parts["gradient"]},
        _args=args,
        _kwargs={},
    )
    return zv.from_numpyro(run)


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
    parser.add_argument("--keep", action="store_true", help="write example_runs.npz")
    options = parser.parse_args()
    if options.keep:
        keep_runs()
        return
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
