"""Make the demonstration data shipped with zerovar: draws and scores for the eight schools model.

The model is Rubin's (1981) eight schools, non-centred:

    mu ~ N(0, 5),  tau ~ HalfCauchy(5),  z_j ~ N(0, 1),  theta_j = mu + tau z_j,  y_j ~ N(theta_j,
    sigma_j).

NUTS runs on the ten unconstrained parameters x = (z_1, ..., z_8, mu, log tau), in float64. The file
holds

    draws   (chains, draws, 10)  x
    scores  (chains, draws, 10)  gradient of the log density of x (Jacobian of log tau included)
    values  (chains, draws, 10)  mu, tau, theta[1], ..., theta[8]
    names   (10,)                the names of the columns of `values`

To run (NumPyro is needed here only, the library does not depend on it):

    pip install numpyro
    python scripts/make_demo_data.py

Nothing is written unless the sample passes the checks at the end of the run. The seed is fixed, but
other versions of JAX or another processor round differently, and NUTS then gives different (equally
good) draws.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS

# Before any array is made: JAX would otherwise round everything to float32.
jax.config.update("jax_enable_x64", True)

Y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SIGMA = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
SCALE = 5.0  # of both hyperpriors

SCHOOLS = len(Y)
DIM = SCHOOLS + 2
NAMES = ["mu", "tau", *(f"theta[{j + 1}]" for j in range(SCHOOLS))]

CHAINS = 4
WARMUP = 2000
TARGET_ACCEPT = 0.95  # small steps, so that the narrow region of small tau gives no divergences
SEED = 1981

MAX_RHAT = 1.01
MAX_Z = 4.0  # ten means are tested against zero
MAX_Z_OUTER = 5.0  # a hundred entries are tested, so the largest is expected to be larger
MAX_BYTES = 1_000_000  # the file is part of the wheel

DEFAULT_OUT = Path(__file__).resolve().parents[1] / "src" / "zerovar" / "data" / "eight_schools.npz"


def constrain(x: jax.Array) -> jax.Array:
    """The parameters people report, in the order of `NAMES`, at one unconstrained point."""
    z, mu, tau = x[:SCHOOLS], x[SCHOOLS], jnp.exp(x[SCHOOLS + 1])
    return jnp.concatenate([jnp.stack([mu, tau]), mu + tau * z])


def log_density(x: jax.Array) -> jax.Array:
    """Log posterior density of the unconstrained parameters, up to a constant."""
    z, log_tau = x[:SCHOOLS], x[SCHOOLS + 1]
    value = constrain(x)
    mu, tau, theta = value[0], value[1], value[2:]
    prior = -0.5 * (mu / SCALE) ** 2 - jnp.log1p((tau / SCALE) ** 2) - 0.5 * jnp.sum(z**2)
    likelihood = -0.5 * jnp.sum(((Y - theta) / SIGMA) ** 2)
    # The prior above is a density of tau; d tau / d log tau = tau makes it one of log tau.
    log_jacobian = log_tau
    return prior + likelihood + log_jacobian


def potential(x: jax.Array) -> jax.Array:
    return -log_density(x)


def sample(draws: int) -> tuple[np.ndarray, int]:
    """Run NUTS; the draws, shape (chains, draws, DIM), and the number of divergences."""
    init_key, run_key = jax.random.split(jax.random.key(SEED))
    # Chains begin at different points, without which r-hat would say little.
    start = jax.random.uniform(init_key, (CHAINS, DIM), minval=-2.0, maxval=2.0)
    kernel = NUTS(potential_fn=potential, target_accept_prob=TARGET_ACCEPT)
    mcmc = MCMC(
        kernel,
        num_warmup=WARMUP,
        num_samples=draws,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(run_key, init_params=start, extra_fields=("diverging",))
    diverging = mcmc.get_extra_fields(group_by_chain=True)["diverging"]
    return np.asarray(mcmc.get_samples(group_by_chain=True)), int(np.sum(diverging))


def standard_errors(a: np.ndarray) -> np.ndarray:
    """Standard errors of the means over chains and draws, allowing for autocorrelation."""
    return a.std(axis=(0, 1)) / np.sqrt(effective_sample_size(a))


def check(draws: np.ndarray, scores: np.ndarray, values: np.ndarray, divergences: int) -> None:
    """Print what a reader would ask about the sample, and stop if it is not good enough to ship."""
    both = np.concatenate([draws, values], axis=-1)
    rhat, ess = split_gelman_rubin(both), effective_sample_size(both)

    # For a sample from the posterior E s = 0 and E (x - m) s^T = -I (integration by parts). These
    # two fail when draws and scores do not belong together, for one when the Jacobian is missing,
    # which r-hat cannot see.
    z_score = np.abs(scores.mean(axis=(0, 1))) / standard_errors(scores)
    outer = (draws - draws.mean(axis=(0, 1)))[..., :, None] * scores[..., None, :]
    outer_error = np.abs(outer.mean(axis=(0, 1)) + np.eye(DIM))
    z_outer = outer_error / standard_errors(outer.reshape(*outer.shape[:2], -1)).reshape(DIM, DIM)

    print(f"draws             {draws.shape}, {divergences} divergences")
    print(f"r-hat             at most {rhat.max():.4f}")
    print(f"ess               {ess.min():.0f} to {ess.max():.0f}")
    print(f"mean score        at most {z_score.max():.2f} standard errors from 0")
    print(
        f"mean (x - m) s^T  at most {outer_error.max():.3f} and {z_outer.max():.2f} standard "
        "errors from -I"
    )
    for name, mean, se in zip(
        NAMES, values.mean(axis=(0, 1)), standard_errors(values), strict=True
    ):
        print(f"{name:<10}{mean:8.3f} ± {se:.3f}")

    problems = []
    if not all(np.isfinite(a).all() for a in (draws, scores, values)):
        problems.append("there are values that are not finite")
    if divergences > 0:
        problems.append(f"there are {divergences} divergences")
    # Written so that NaN counts as a failure.
    if not rhat.max() < MAX_RHAT:
        problems.append(f"r-hat is not below {MAX_RHAT}")
    if not z_score.max() < MAX_Z:
        problems.append("the mean of the scores is not near 0")
    if not z_outer.max() < MAX_Z_OUTER:
        problems.append("the mean of (x - m) s^T is not near -I")
    if problems:
        raise SystemExit("nothing written: " + "; ".join(problems))


def write(out: Path, draws: np.ndarray, scores: np.ndarray, values: np.ndarray) -> int:
    """Write the arrays so that `out` is always either the old file or the whole new one; the size
    in bytes."""
    out.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, since os.replace is atomic only within a file system.
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        # An open file, because given a name NumPy would append ".npz" to it.
        with open(temporary, "wb") as f:
            np.savez_compressed(f, draws=draws, scores=scores, values=values, names=np.array(NAMES))
        size = temporary.stat().st_size
        if size > MAX_BYTES:
            raise SystemExit(
                f"nothing written: {size} bytes is more than {MAX_BYTES}; try fewer --draws"
            )
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the eight schools demonstration data.")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="the .npz file to write")
    parser.add_argument(
        "--draws", type=int, default=1000, help="draws per chain, after warm-up (default: 1000)"
    )
    args = parser.parse_args()
    # Split r-hat halves each chain and needs two draws in each half.
    if args.draws < 4:
        parser.error("--draws must be at least 4")

    draws, divergences = sample(args.draws)
    points = jnp.asarray(draws)
    scores = np.asarray(jax.vmap(jax.vmap(jax.grad(log_density)))(points))
    values = np.asarray(jax.vmap(jax.vmap(constrain))(points))
    check(draws, scores, values, divergences)
    size = write(args.out, draws, scores, values)
    print(f"{size} bytes written to {args.out.name}")


if __name__ == "__main__":
    main()
