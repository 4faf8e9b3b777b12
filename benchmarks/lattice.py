"""Fields on a lattice: scalar field theory with a φ⁴ interaction, sampled here, against published
neural control variates.

    python -m benchmarks.lattice                                     # 16 × 16, forty replicates
    python -m benchmarks.lattice --shape 32 32 --mass 0.01 --coupling 0.1 --replicates 20
    python -m benchmarks.lattice --shape 8 8 8 8 --mass 0.01 --coupling 0.1 --only slices smeared
    python -m benchmarks.lattice --network                           # trained networks
    python -m benchmarks.lattice --quick                             # 6 × 4, a few replicates

The action is S = Σ_x [½ Σ_μ (φ_{x+μ} − φ_x)² + ½ m² φ_x² + λ φ_x⁴/24], periodic, and the score −∇S.
Each replicate is `--draws` configurations of eight chains; a standard error is held against how
estimates scatter over replicates, and against all replicates together. JAX, Equinox, jaxtyping,
SciPy and threadpoolctl are enough for it.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import zerovar as zv
from zerovar.families import Family

CHAINS = 8  # of a replicate: parallel, and enough to see whether they agree
# Ratios of errors that neural control variates reach, trained for ten minutes on 10 000
# configurations: of the two-point function at half the lattice, at the same mass and coupling
PUBLISHED = {(16, 16): 34.0, (32, 32): 8.2, (32, 8, 8): 4.5}


def dispersion(shape: tuple[int, ...]) -> np.ndarray:
    """The eigenvalues of minus the Laplacian of the lattice, (*shape)."""
    waves = [2 - 2 * np.cos(2 * np.pi * np.arange(k) / k) for k in shape]
    return sum(np.meshgrid(*waves, indexing="ij"))


def action(phi: Any, mass: float, coupling: float) -> Any:
    """S of one configuration; `mass` is m²."""
    steps = sum(jnp.sum((jnp.roll(phi, -1, axis) - phi) ** 2) for axis in range(phi.ndim))
    return 0.5 * steps + jnp.sum(0.5 * mass * phi**2 + coupling / 24 * phi**4)


class Configurations(NamedTuple):
    """Chains of configurations, sites in C order, with their scores."""

    draws: np.ndarray  # (chain, draw, V)
    scores: np.ndarray  # (chain, draw, V)
    accepted: float


def sampled(
    shape: tuple[int, ...],
    mass: float,
    coupling: float,
    chains: int,
    draws: int,
    warm_up: int = 100,
    leaps: int = 12,
    seed: int = 0,
) -> Configurations:
    """Hamiltonian Monte Carlo, in which waves of all lengths move alike: their masses are those of
    the free theory. A trajectory is a quarter of a period, give or take 30 %; it starts from a draw
    of the free theory, and `warm_up` of them are dropped."""
    with jax.enable_x64(True):
        start = time.perf_counter()
        stiffness = dispersion(shape) + mass + 0.15 * coupling  # φ² is about 0.3: λφ²/2
        half = np.s_[..., : shape[-1] // 2 + 1]
        slope = jax.value_and_grad(functools.partial(action, mass=mass, coupling=coupling))

        def scale(field, factors):
            return jnp.fft.irfftn(jnp.fft.rfftn(field) * factors[half], shape)

        def energy(value, momentum):
            return value + 0.5 * jnp.sum(momentum * scale(momentum, 1 / stiffness))

        def move(phi, key):
            kick, length, chance = jax.random.split(key, 3)
            momentum = scale(jax.random.normal(kick, shape), np.sqrt(stiffness))
            step = jax.random.uniform(length, minval=0.7, maxval=1.3) * math.pi / 2 / leaps

            def leap(state, _):
                at, momentum, (_, force) = state
                momentum = momentum - 0.5 * step * force
                at = at + step * scale(momentum, 1 / stiffness)
                found = slope(at)
                return (at, momentum - 0.5 * step * found[1], found), None

            first = slope(phi)
            (at, last, found), _ = jax.lax.scan(leap, (phi, momentum, first), None, length=leaps)
            drop = energy(first[0], momentum) - energy(found[0], last)
            taken = jnp.log(jax.random.uniform(chance)) < drop
            phi, force = jnp.where(taken, at, phi), jnp.where(taken, found[1], first[1])
            return phi, (phi, -force, taken)

        def chain(key):
            first, later = jax.random.split(key)
            phi = scale(jax.random.normal(first, shape), 1 / np.sqrt(stiffness))
            phi, _ = jax.lax.scan(
                lambda phi, key: (move(phi, key)[0], None), phi, jax.random.split(first, warm_up)
            )
            return jax.lax.scan(move, phi, jax.random.split(later, draws))[1]

        keys = jax.random.split(jax.random.key(seed), chains)
        phi, scores, taken = jax.block_until_ready(jax.jit(jax.vmap(chain))(keys))
        seconds = time.perf_counter() - start
        print(f"{chains} chains of {draws} configurations: {seconds:.0f} s", flush=True)
        flat = (chains, draws, math.prod(shape))
        return Configurations(
            np.asarray(phi).reshape(flat), np.asarray(scores).reshape(flat), float(np.mean(taken))
        )


def correlators(draws: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """(…, 1 + L/2): the correlator of slices, at no momentum, at each distance t along the first
    axis: Σ_y φ_{0,0} φ_{t,y}, averaged over all translations."""
    slices = draws.reshape(*draws.shape[:-1], shape[0], -1).mean(axis=-1)
    waves = np.abs(np.fft.rfft(slices, axis=-1)) ** 2 / shape[0]
    return np.fft.irfft(waves, shape[0], axis=-1)[..., : shape[0] // 2 + 1] * math.prod(shape[1:])


def observables(draws: np.ndarray, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """What is averaged, at each draw (chain, draw): all of it the same after any translation and
    reflection."""
    found = correlators(draws, shape)
    fields = draws.reshape(*draws.shape[:-1], *shape)
    half = tuple(k // 2 for k in shape)
    away = np.roll(fields, half, tuple(range(2, fields.ndim))).reshape(draws.shape)
    return {
        "slices at half the lattice": found[..., -1],
        "slices next to each other": found[..., 1],
        "sites at half the lattice": (draws * away).mean(axis=-1),
        "φ²": (draws**2).mean(axis=-1),
        "|M|": np.abs(draws.mean(axis=-1)),
    }


def slices(shape: tuple[int, ...]) -> np.ndarray:
    """The distance along the first axis, for each shift: (L, 1, …)."""
    steps = np.arange(shape[0])
    return np.minimum(steps, shape[0] - steps).reshape(-1, *[1] * (len(shape) - 1))


def near(shape: tuple[int, ...], reach: int = 5) -> np.ndarray:
    """A number for each class of shifts no longer than √reach, and −1 for others."""
    steps = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"))
    size = np.array(shape).reshape(-1, *[1] * len(shape))
    squares = np.sum(np.minimum(steps, size - steps) ** 2, axis=0)
    return np.where(squares <= reach, squares, -1)


RICH: dict[str, Any] = {"powers": (1, 3, (2, 1), 5, (4, 1)), "smearing": (0, 0.3, 1, 3, 10)}


def families(shape: tuple[int, ...]) -> dict[str, Family]:
    """From the plainest to the richest: of φ and φ³ with one coefficient for each distance between
    slices, or for each shift up to reflections; and with smeared fields of degree five."""
    between = slices(shape)
    rich = zv.LatticeField(shape, shifts=between, **RICH)
    return {
        "slices": zv.LatticeField(shape, shifts=between),
        "shifts": zv.LatticeField(shape),
        "smeared": rich,
        "smeared, near": rich + zv.LatticeField(shape, (1, 3, (2, 1)), (0, 1), near(shape)),
    }


OBJECTIVE = zv.LeastSquares(zv.Ridge(1e-8))  # holds fields that nearly coincide


class Ratios(NamedTuple):
    """Of one family and observable, over replicates."""

    reported: float  # plain errors over controlled ones, the median
    realised: float  # the same of their scatter over replicates
    covered: float  # how often value ± 1.96 errors has the mean of all replicates
    seconds: float  # of a replicate


def measured(
    found: Configurations, shape: tuple[int, ...], family: Family, replicates: int
) -> dict[str, Ratios]:
    """Ratios of errors and coverage, for each observable. The truth is the controlled mean over all
    replicates, and must agree with the plain one."""
    values = observables(found.draws, shape)
    whole = zv.estimate(found.draws, found.scores, values, family=family, objective=OBJECTIVE)
    off = np.abs(whole.value - whole.plain_value) / whole.plain_std_error
    print(f"  all together: off the plain means by {off.max():.1f} of their errors at most")
    start, parts = time.perf_counter(), []
    for k in range(replicates):
        rows = slice(CHAINS * k, CHAINS * (k + 1))
        part = {name: value[rows] for name, value in values.items()}
        parts.append(
            zv.estimate(
                found.draws[rows], found.scores[rows], part, family=family, objective=OBJECTIVE
            )
        )
    seconds = (time.perf_counter() - start) / replicates
    value, error, plain, plain_error = (
        np.stack([getattr(part, name) for part in parts])
        for name in ("value", "std_error", "plain_value", "plain_std_error")
    )
    reported = np.median(plain_error / error, axis=0)
    realised = np.sqrt(
        np.mean((plain - whole.value) ** 2, axis=0) / np.mean((value - whole.value) ** 2, axis=0)
    )
    covered = np.mean(np.abs(value - whole.value) < 1.96 * error, axis=0)
    return {
        name: Ratios(*map(float, row), seconds)
        for name, *row in zip(values, reported, realised, covered, strict=True)
    }


def trained(found: Configurations, shape: tuple[int, ...], epochs: int) -> None:
    """Networks by SGD on the configurations of one replicate, and on all: the slices at half the
    lattice."""
    name = "slices at half the lattice"
    network = zv.Network(zv.LatticeMLP(shape, 32, 2, jnp.tanh))
    field = zv.LatticeField(shape, shifts=slices(shape))
    for family in (network, field + network):
        for count in (CHAINS, len(found.draws)):
            start = time.perf_counter()
            est = zv.estimate(
                found.draws[:count],
                found.scores[:count],
                {name: observables(found.draws[:count], shape)[name]},
                family=family,
                solver=zv.SGD(epochs=epochs, progress=False),
            )
            size, ratio = found.draws[:count].shape[0] * found.draws.shape[1], est.gain[0] ** 0.5
            seconds = time.perf_counter() - start
            print(f"  {family.describe()}, {size} draws: {ratio:.1f}, {seconds:.0f} s", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--shape", type=int, nargs="+", default=[16, 16])
    parser.add_argument("--mass", type=float, default=0.1, help="m²")
    parser.add_argument("--coupling", type=float, default=0.5, help="λ")
    parser.add_argument("--draws", type=int, default=1000, help="configurations of a replicate")
    parser.add_argument("--replicates", type=int, default=40)
    parser.add_argument(
        "--only", nargs="*", help="families by their names: slices shifts smeared 'smeared, near'"
    )
    parser.add_argument("--network", action="store_true", help="train networks instead")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args(arguments)
    shape = tuple(asked.shape)
    if asked.quick:
        shape, asked.draws, asked.replicates = (6, 4), 400, 5
    found = sampled(
        shape, asked.mass, asked.coupling, CHAINS * asked.replicates, asked.draws // CHAINS
    )
    sizes = "×".join(map(str, shape))
    print(f"{sizes}, m² = {asked.mass}, λ = {asked.coupling}: {found.accepted:.0%} accepted")
    if asked.network:
        trained(found, shape, asked.epochs)
        return
    for name, family in families(shape).items():
        if asked.only and name not in asked.only:
            continue
        print(f"{name}: {family.describe()}, {family.num_features(math.prod(shape))} unknowns")
        for observable, row in measured(found, shape, family, asked.replicates).items():
            print(
                f"  {observable:30s} error ratio reported {row.reported:6.1f}, realised "
                f"{row.realised:6.1f}, ± 1.96 covers {row.covered:4.0%}, {row.seconds:.1f} s"
            )
    if shape in PUBLISHED:
        print(f"published, at half the lattice, of 10 000 configurations: {PUBLISHED[shape]}")


if __name__ == "__main__":
    main()
