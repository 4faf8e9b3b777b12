"""log Z and its error. From a ladder of temperatures: van der Pol's oscillator, one parameter, 31
temperatures of 500 draws each by Oates, Papamarkou and Girolami."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zerovar.evidences.combination import evidence_of_ladder
from zerovar.evidences.ladders import Ladder

from .harness import print_table

# By the trapezium on the 7766 distinct draws, cubic between them by values and scores; half of the
# draws change it by 2e-5. The stored log-likelihood is rough, by 0.005 between neighbours, and the
# scores are not quite its gradients: control variates are off by 1e-3 to 2e-3 however many draws
# there are.
EXACT = 25.57305


class Spread(NamedTuple):
    """Of one estimate with so many draws a temperature, over replicates: mean and spread of its
    error, the error reported (root mean square), and how often ± 1.96 of it holds the truth."""

    name: str
    draws: int
    bias: float
    spread: float
    reported: float
    covered: float


def mbar(ladder: Ladder, rounds: int = 2000, still: float = 1e-9) -> float:
    """log Z(1) − log Z(0) by the multistate acceptance ratio (Shirts and Chodera 2008), plain: its
    own self-consistent iteration, in place of pymbar, and without an error."""
    t, values = ladder.inverse_temperatures, ladder.log_likelihood.ravel()
    n, powers = ladder.log_likelihood.shape[1], np.multiply.outer(t, values)
    free = np.zeros(len(t))  # log Z of every temperature
    for _ in range(rounds):
        terms = powers - free[:, None]
        top = terms.max(axis=0)
        mixture = top + np.log(n * np.exp(terms - top).sum(axis=0))
        logs = powers - mixture
        peak = logs.max(axis=1)
        new = peak + np.log(np.exp(logs - peak[:, None]).sum(axis=1))
        new -= new[0]
        free, before = new, free
        if np.abs(free - before).max() < still:
            break
    return float(free[-1])


def van_der_pol(folder: Path) -> Ladder:
    """The ladder in the folder of shared data."""
    with np.load(folder / "data" / "vdp_ladder.npz") as file:
        return Ladder(
            file["inverse_temperatures"], file["x"], file["log_likelihood"], file["score"]
        )


def estimates(ladder: Ladder) -> dict[str, tuple[float, float]]:
    """log Z and its error by the combination, every route, the same of plain means, and MBAR."""
    found, plain = evidence_of_ladder(ladder), evidence_of_ladder(ladder, order=0)
    rows = {"combination": (found.log_z, found.std_error)}
    rows |= {route.name: (route.value, route.std_error) for route in found.routes}
    rows |= {f"{route.name}, plain": (route.value, route.std_error) for route in plain.routes}
    rows["combination, plain"] = (plain.log_z, plain.std_error)
    rows["MBAR, own iteration"] = (mbar(ladder), np.nan)
    return rows


def ladder_rows(
    folder: Path, sizes: tuple[int, ...] = (20, 40, 60, 80), replicates: int = 40, seed: int = 0
) -> list[Spread]:
    """Van der Pol's ladder with a few of the 500 draws of every temperature, chosen at random anew
    in every replicate."""
    ladder, rng = van_der_pol(folder), np.random.default_rng(seed)
    rows = []
    for size in sizes:
        found = []
        for _ in range(replicates):
            chosen = np.array([rng.permutation(500)[:size] for _ in range(len(ladder))])
            found.append(estimates(ladder.take(chosen)))
        for name in found[0]:
            value, error = np.transpose([one[name] for one in found])
            off = value - EXACT
            rows.append(
                Spread(
                    name,
                    size,
                    float(off.mean()),
                    float(off.std(ddof=1)),
                    float(np.sqrt(np.mean(error**2))),
                    float(np.mean(np.abs(off) < 1.96 * error)),
                )
            )
    return rows


class Drawn(NamedTuple):
    """Of ladders that `zv.ladder` draws at one overlap: temperatures, gradients, root mean squares
    of the error and of the reported one, and how often ± 1.96 of it holds the truth."""

    overlap: float
    samples: int
    temperatures: float
    gradients: float
    error: float
    reported: float
    covered: float


def drawn_rows(
    overlaps: tuple[float, ...] = (0.2, 0.5, 0.8), samples: int = 20, draws: int = 500
) -> list[Drawn]:
    """Crescents in four dimensions, from a normal fitted to 1000 exact draws; log Z is 0."""
    import jax.numpy as jnp

    import zerovar as zv

    def log_density(x: Any) -> Any:
        away = x[1::2] - 2 * (x[::2] ** 2 - 1)
        return -jnp.sum(x[::2] ** 2 + away**2) / 2 - 2 * jnp.log(2 * jnp.pi)

    rows = []
    for overlap in overlaps:
        found = []
        for seed in range(samples):
            x = np.random.default_rng(seed).normal(size=(1000, 4))
            x[:, 1::2] += 2 * (x[:, ::2] ** 2 - 1)
            drawn = zv.ladder(
                x, log_density, overlap=overlap, draws=draws, seed=seed, progress=False
            )
            one = evidence_of_ladder(drawn)
            found.append((len(drawn), drawn.evaluations, one.log_z, one.std_error))
        count, gradients, off, error = np.transpose(found)
        rows.append(
            Drawn(
                overlap,
                samples,
                float(count.mean()),
                float(gradients.mean()),
                float(np.sqrt(np.mean(off**2))),
                float(np.sqrt(np.mean(error**2))),
                float(np.mean(np.abs(off) < 1.96 * error)),
            )
        )
    columns = ("overlap", "samples", "temperatures", "gradients", "error", "reported", "covered")
    cells = [
        (row.overlap, row.samples, *(f"{number:.2g}" for number in row[2:6]), f"{row.covered:.0%}")
        for row in rows
    ]
    print_table("log Z of crescents by zv.ladder, 4 dimensions", columns, cells)
    return rows


def show_ladder(rows: list[Spread]) -> None:
    """Print a table of `ladder_rows`."""
    columns = ("log Z of van der Pol's ladder", "draws", "bias", "spread", "reported", "covered")
    cells = [
        (
            row.name,
            row.draws,
            f"{row.bias:.4f}",
            f"{row.spread:.4f}",
            "" if np.isnan(row.reported) else f"{row.reported:.4f}",
            "" if np.isnan(row.reported) else f"{row.covered:.0%}",
        )
        for row in rows
    ]
    print_table("31 temperatures, random parts of 500 draws each; exact 25.5730", columns, cells)
