"""Processor seconds of quantiles by lines against those of NUTS for as many draws, side by side.

python -m benchmarks.costs --data ../shared/data [--models garch11 ...]

For each model one chain of NUTS, 1000 draws after as many of warm-up; then the 5, 50 and 95 % of up
to ten of its values by 1000 reference draws: lines alone, with polynomials for control variates,
and with kernels tuned as by default. All once to compile, and again to be timed. Where there are
fewer than ten values, seconds are those of as many times more.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .harness import print_table, workers
from .integrate import load_model
from .intervals import MODELS

_DRAWS, _QUANTITIES = 1000, 10
PROBS = (0.05, 0.5, 0.95)


class Cost(NamedTuple):
    """Processor seconds of the second run, and what the first took more; of quantiles for ten
    quantities."""

    model: str
    quantities: int
    nuts: float
    lines: float
    low: float
    normal: float
    nuts_compiles: float
    lines_compile: float


def twice(run: Callable[[], Any]) -> tuple[float, float]:
    """Processor seconds of the second run, and how many more the first took."""
    seconds = []
    for _ in range(2):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return seconds[1], max(seconds[0] - seconds[1], 0.0)


def cost(job: tuple[str, Path]) -> Cost:
    """Of one model."""
    import jax
    from numpyro.infer import MCMC, NUTS

    import zerovar as zv
    from zerovar.distributions.marginals import Marginals
    from zerovar.session import Session

    name, data = job
    log_density, values, folder = load_model(name, data)
    with np.load(folder / f"{name}.npz") as stored:
        draws = stored["x"][0][:_DRAWS]
    with jax.enable_x64(True):
        kernel = NUTS(potential_fn=lambda x: -log_density(x))
        chain = MCMC(kernel, num_warmup=_DRAWS, num_samples=_DRAWS, progress_bar=False)
        start = 0.1 * np.random.default_rng(0).standard_normal(draws.shape[1])

        def sample() -> None:
            chain.run(jax.random.key(0), init_params=start)
            jax.block_until_ready(chain.get_samples())

        nuts = twice(sample)
    posterior = zv.from_log_density(log_density, draws, transform=lambda x: {"x": values(x)})
    names = list(posterior.values)[:_QUANTITIES]

    def lay() -> None:
        marginals = Marginals.of(Session.of(posterior), names)
        marginals.at(np.quantile(marginals.values, PROBS, axis=0).T, np.array(PROBS))

    def ask(effort: str) -> Callable[[], Any]:
        choice = zv.Automatic(effort=effort, progress=False)
        return lambda: zv.quantile(posterior, PROBS, var_names=names, family=choice)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lines, low, normal = (twice(run) for run in (lay, ask("low"), ask("normal")))
    times = _QUANTITIES / len(names)
    ours = [times * one[0] for one in (lines, low, normal)]
    return Cost(name, len(names), nuts[0], *ours, nuts[1], lines[1])


def run(data: Path, models: tuple[str, ...] = MODELS, processes: int = 1) -> list[dict[str, Any]]:
    """One model after the other: together they would wait for each other."""
    with workers(processes) as pool:
        found = list(pool.imap(cost, [(name, data) for name in models]))
    print_table(
        f"Processor seconds for {_QUANTITIES} quantities of {_DRAWS} draws, and of NUTS for these",
        ("model", "values", "NUTS", "lines", "low effort", "default", "NUTS compiles", "lines do"),
        [(one.model, one.quantities, *(f"{each:.2g}" for each in one[2:])) for one in found],
    )
    return [one._asdict() for one in found]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder with models/ and draws")
    parser.add_argument("--models", nargs="+", default=MODELS)
    options = parser.parse_args()
    run(options.data, tuple(options.models))
