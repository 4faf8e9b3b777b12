"""The eight schools posterior that ships with zerovar: draws of NUTS, and the log density that they
were taken from. `scripts/make_demo_data.py` makes the file."""

from importlib.resources import as_file, files

import jax
import jax.numpy as jnp
import numpy as np

from .adapters import from_log_density
from .adapters.files import read
from .inputs.sample import Posterior


def eight_schools() -> Posterior:
    """Return four chains of 1000 draws with their scores, and mu, tau and theta[1] to theta[8]."""
    with as_file(files("zerovar") / "data" / "eight_schools.npz") as path:
        given = read([path])
    return from_log_density(_log_density, given.draws, chain_axis=0, transform=_natural)


def _natural(x: jax.Array) -> dict[str, jax.Array]:
    """What people report, at x: eight standardised effects, mu, and the logarithm of tau."""
    mu, tau = x[8], jnp.exp(x[9])
    effects = {f"theta[{school}]": mu + tau * x[school - 1] for school in range(1, 9)}
    return {"mu": mu, "tau": tau} | effects


def _log_density(x: jax.Array) -> jax.Array:
    seen, errors = np.array([[28, 8, -3, 7, -1, 1, 18, 12], [15, 10, 16, 11, 9, 11, 10, 18]])
    z, mu, tau = x[:8], x[8], jnp.exp(x[9])
    prior = -((mu / 5) ** 2) / 2 - jnp.log1p((tau / 5) ** 2) - jnp.sum(z**2) / 2
    jacobian = x[9]  # of tau, which has the prior, in its logarithm
    return prior + jacobian - jnp.sum(((seen - mu - tau * z) / errors) ** 2) / 2
