"""Angles on plaquettes: U(1) gauge theory in two dimensions with open boundaries, where truth is
known.

    python -m benchmarks.gauge            # areas 1, 4 and 16 at β = 5.55, 40 replicates
    python -m benchmarks.gauge --replicates 16  # as in the table of benchmarks/README.md
    python -m benchmarks.gauge --quick

With open boundaries the angles of plaquettes are independent, each with the density exp(β cos θ),
and a Wilson loop of area A is the cosine of the sum of A of them, with mean (I₁(β)/I₀(β))ᴬ. Draws
here are independent ones of these angles, 1000 a replicate. At β = 5.55 none of them comes near π,
where fields are then free: standard errors rest on fits without the draws next to that gap.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.special

import zerovar as zv
from zerovar import spaces
from zerovar.families import BasisFamily, Family
from zerovar.inputs.points import Keeps
from zerovar.operators import Operator

# Any larger ridge costs precision
OBJECTIVE = zv.LeastSquares(zv.Ridge(1e-10))
# Ratios of errors of published neural control variates, by area, at β = 5.55
PUBLISHED = {4: 25.0, 16: 6.9}


class Loops(BasisFamily):
    """Fields that treat all plaquettes alike, and ask for circles that are: along θ_p the imaginary
    part of z_pʲ e_k, with z = exp(iθ) and e_k the elementary symmetric polynomial of degree k in z
    of the other plaquettes."""

    frequencies: int
    operator: Operator

    def __init__(self, frequencies: int = 8):
        self.frequencies, self.operator = frequencies, zv.Langevin()

    def basis(self, x):
        z = x[::2] + 1j * x[1::2]
        whole = jnp.ones(1, dtype=z.dtype)  # Π (1 + z_p y), by powers of y
        for each in z:
            whole = jnp.append(whole, 0) + each * jnp.append(0, whole)
        others = [jnp.ones_like(z)]
        for k in range(1, len(z)):
            others.append(whole[k] - z * others[-1])
        up = [z**j for j in range(self.frequencies + 1)]
        powers = jnp.stack([*up, *map(jnp.conj, up[1:])])
        slopes = jnp.imag(jnp.stack(others)[:, None] * powers)  # (k, j, p)
        along = jnp.stack([-x[1::2], x[::2]], axis=1)  # the circle
        fields = slopes[..., None] * along
        return fields.reshape(-1, len(x)) / jnp.sqrt(len(z))

    def num_features(self, d):
        return d // 2 * (2 * self.frequencies + 1)

    def unweighted(self):
        return self

    def describe(self):
        return f"Loops({self.frequencies})"

    @property
    def keeps(self):
        return Keeps.SYMMETRY


def families(area: int, quick: bool) -> dict[str, Family]:
    """That of one's own, and the polynomials that ship, where they are few enough."""
    found: dict[str, Family] = {"symmetric fields": Loops()}
    if area <= 4 and not quick:
        found["Polynomial(4)"] = zv.Polynomial(4)
    return found


def measured(
    family: Family, area: int, beta: float, replicates: int, draws: int
) -> tuple[float, ...]:
    """Ratio of errors as reported and as realised, coverage, and seconds of a replicate."""
    rng = np.random.default_rng(area)
    truth = float(scipy.special.ive(1, beta) / scipy.special.ive(0, beta)) ** area
    ratios, errors, plains, covered, start = [], [], [], [], time.perf_counter()
    for _ in range(replicates):
        angles = rng.vonmises(0, beta, size=(draws, area))
        loop = np.cos(angles.sum(axis=1))
        with warnings.catch_warnings():  # polynomials have few draws a term
            warnings.simplefilter("ignore", zv.SampleWarning)
            est: Any = zv.estimate(
                angles,
                -beta * np.sin(angles),
                {"loop": loop},
                family=family,
                objective=OBJECTIVE,
                space=spaces.Torus(),
            )
        ratios.append(est.plain_std_error[0] / est.std_error[0])
        errors.append(est.value[0] - truth)
        plains.append(est.plain_value[0] - truth)
        covered.append(abs(errors[-1]) < 1.96 * est.std_error[0])
    seconds = (time.perf_counter() - start) / replicates
    realised = np.sqrt(np.mean(np.square(plains)) / np.mean(np.square(errors)))
    return float(np.median(ratios)), float(realised), float(np.mean(covered)), seconds


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beta", type=float, default=5.55)
    parser.add_argument("--replicates", type=int, default=40)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args(arguments)
    areas, replicates = ((4,), 3) if asked.quick else ((1, 4, 16), asked.replicates)
    for area in areas:
        for name, family in families(area, asked.quick).items():
            reported, realised, covered, seconds = measured(
                family, area, asked.beta, replicates, asked.draws
            )
            print(
                f"area {area:2d}, {name:16s}: error ratio reported {reported:8.1f}, realised "
                f"{realised:8.1f}, ± 1.96 covers {covered:4.0%}, {seconds:.1f} s",
                flush=True,
            )
        if area in PUBLISHED:
            print(f"area {area:2d}, published: {PUBLISHED[area]}")


if __name__ == "__main__":
    main()
