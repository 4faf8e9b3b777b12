"""Are the errors of standard deviations right? Every chain of every posterior is a replicate.

python -m benchmarks.deviations --data ../shared/data [--chains 10] [--only arK …]

Deviations are those of `zv.summary`: the square root of the mean of (f − controlled mean)². True
variances are in deviations.json, with their errors: by importance sampling from a t distribution, 8
to 40 million points, with the residuals of a cubic that was fitted to all draws; by quadrature for
dogs_log; by the default call on all ten chains for diamonds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .harness import workers

TRUTH = Path(__file__).with_suffix(".json")


class Job(NamedTuple):
    """One chain of a posterior."""

    path: Path
    chain: int


def deviations(job: Job) -> np.ndarray:
    """The deviations by control variates, their errors, and the plain ones with theirs (4, q)."""
    import zerovar as zv

    with np.load(job.path) as kept:
        x, s, f = (np.asarray(kept[key][job.chain], dtype=float) for key in ("x", "score", "f"))
    values = {f"f{j}": column[None] for j, column in enumerate(f.T)}
    posterior = zv.Posterior(x[None], s[None], values)
    table = zv.summary(posterior, round_to=None, intervals=False)
    return table[["cv_sd", "cv_mcse_sd", "sd", "mcse_sd"]].to_numpy().T


def run(data: Path, chains: int, only: list[str]) -> None:
    """Print a row for each posterior."""
    truth = json.loads(TRUTH.read_text(encoding="utf-8"))
    paths = {path.stem: path for path in sorted(data.glob("*/*.npz")) if path.stem in truth}
    paths = {name: path for name, path in paths.items() if not only or name in only}
    jobs = [Job(path, chain) for path in paths.values() for chain in range(chains)]
    with workers() as pool:
        found = np.split(np.arange(len(jobs)), len(paths))
        answers = pool.map(deviations, jobs, chunksize=1)
    print(
        f"{'posterior':28s}{'realised':>10s}{'reported / realised':>21s}{'within':>8s}{'rms z':>7s}"
    )
    for name, rows in zip(paths, found, strict=True):
        value, error, plain, plain_error = np.swapaxes([answers[k] for k in rows], 0, 1)
        true = np.sqrt(truth[name]["variance"])
        z = (value - true) / np.hypot(error, np.array(truth[name]["error"]) / (2 * true))
        realised = np.mean((plain - true) ** 2, axis=0) / np.mean((value - true) ** 2, axis=0)
        ratio = np.median(np.median((plain_error / error) ** 2, axis=0) / realised)
        within, rms = np.mean(np.abs(z) < 1.96), np.sqrt(np.mean(z**2))
        print(f"{name:28s}{np.median(realised):10.2g}{ratio:21.2f}{within:8.0%}{rms:7.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="a folder with */*.npz")
    parser.add_argument("--chains", type=int, default=10)
    parser.add_argument("--only", nargs="+", default=[], help="names of posteriors")
    run(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
