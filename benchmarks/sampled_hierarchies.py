"""Hierarchies with other likelihoods than normal ones, sampled, for `benchmarks.effects`.

python -m benchmarks.sampled_hierarchies FOLDER [--chains 20] [--draws 1000]

NUTS moves in the non-centred form z = (θ − μ)/τ; draws are mapped, and scores are those of the
centred log density. Means are those of a run a few hundred times as long. FOLDER/hierarchies gets a
file of chains for each model and truth.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats

from zerovar.io.atomic import atomic

from .hierarchies import Groups


def sample_centred(model: Groups, draws: int, key: int) -> Any:
    """NUTS of a model with two effects, as a NumPyro user writes it: 4 chains, `draws` in all."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    centre, width = model.prior

    def cafes(design: jax.Array, observed: jax.Array) -> None:
        mu = [numpyro.sample("ab"[k], dist.Normal(centre[k], width[k])) for k in range(2)]
        scales = numpyro.sample("scales", dist.Exponential(1).expand([2]))
        sigma = numpyro.sample("sigma", dist.Exponential(1))
        covariance = jnp.outer(scales, scales) * numpyro.sample("Rho", dist.LKJ(2, 2))
        prior = dist.MultivariateNormal(jnp.stack(mu), covariance).expand([model.groups])
        effects = numpyro.sample("effects", prior)
        numpyro.sample("y", dist.Normal(effects @ design.T, sigma).to_event(2), obs=observed)

    mcmc = MCMC(
        NUTS(cafes, target_accept_prob=0.9),
        num_warmup=1000,
        num_samples=draws // 4,
        num_chains=4,
        chain_method="sequential",
        progress_bar=False,
    )
    data = jnp.asarray(model.design), jnp.asarray(model.observed)
    mcmc.run(jax.random.key(key), *data, extra_fields=("z_grad",))
    return mcmc


_EFFECTS = 10  # that are integrands, besides μ, τ and the slope
# of the effects (groups,) and the slope
LogLikelihood = Callable[[jax.Array, jax.Array], jax.Array]


def normal(groups: int, rng: np.random.Generator) -> LogLikelihood:
    """Five observations a group, of known error, and a covariate."""
    covariate = rng.normal(size=(groups, 5))
    data = (
        (1 + 0.5 * rng.normal(size=groups))[:, None]
        + 0.3 * covariate
        + 2 * rng.normal(size=(groups, 5))
    )
    return lambda effects, slope: stats.norm.logpdf(
        data, effects[:, None] + slope * covariate, 2.0
    ).sum()


def poisson(groups: int, rng: np.random.Generator) -> LogLikelihood:
    covariate = rng.normal(size=(groups, 3))
    data = rng.poisson(np.exp((0.5 + 0.2 * rng.normal(size=groups))[:, None] + 0.3 * covariate))
    return lambda effects, slope: stats.poisson.logpmf(
        data, jnp.exp(effects[:, None] + slope * covariate)
    ).sum()


def logistic(groups: int, rng: np.random.Generator) -> LogLikelihood:
    covariate = rng.normal(size=(groups, 8))
    odds = (-0.5 + 0.4 * rng.normal(size=groups))[:, None] + 0.7 * covariate
    data = rng.random(odds.shape) < 1 / (1 + np.exp(-odds))

    def log_likelihood(effects, slope):
        at = effects[:, None] + slope * covariate
        return jnp.where(data, jax.nn.log_sigmoid(at), jax.nn.log_sigmoid(-at)).sum()

    return log_likelihood


MODELS = {
    "normal, 10 groups": (normal, 10),
    "Poisson, 40 groups": (poisson, 40),
    "logistic, 100 groups": (logistic, 100),
}


def centred(log_likelihood: LogLikelihood) -> Callable[[jax.Array], jax.Array]:
    """The log density of (μ, log τ, slope, θ₁ …), with a half-normal prior of τ."""

    def log_density(y: jax.Array) -> jax.Array:
        mu, log_tau, slope, effects = y[0], y[1], y[2], y[3:]
        tau = jnp.exp(log_tau)
        prior = (
            stats.norm.logpdf(mu, 0, 5)
            + stats.norm.logpdf(slope, 0, 2)
            + stats.norm.logpdf(tau)
            + log_tau
        )
        return prior + stats.norm.logpdf(effects, mu, tau).sum() + log_likelihood(effects, slope)

    return log_density


def mapped(z: jax.Array) -> jax.Array:
    """From non-centred coordinates (μ, log τ, slope, z₁ …) to centred ones."""
    return jnp.concatenate([z[:3], z[0] + jnp.exp(z[1]) * z[3:]])


def chain(job: tuple[str, int, int]) -> np.ndarray:
    """Draws (draw, d) of one chain, in centred coordinates."""
    from numpyro.infer import MCMC, NUTS

    name, length, key = job
    jax.config.update("jax_enable_x64", True)
    log_density, groups = of(name)

    def potential(z: jax.Array) -> jax.Array:
        return -log_density(mapped(z)) - groups * z[1]

    mcmc = MCMC(
        NUTS(potential_fn=potential, target_accept_prob=0.9),
        num_warmup=1000,
        num_samples=length,
        progress_bar=False,
    )
    mcmc.run(
        jax.random.key(key),
        init_params=0.1 * jax.random.normal(jax.random.key(1000 + key), (groups + 3,)),
    )
    return np.asarray(jax.vmap(mapped)(mcmc.get_samples()))


def of(name: str) -> tuple[Callable[[jax.Array], jax.Array], int]:
    """Log density and number of groups."""
    model, groups = MODELS[name]
    return centred(model(groups, np.random.default_rng(groups))), groups


def made(name: str, every: np.ndarray, draws: int) -> dict[str, np.ndarray]:
    """Chains (chain, draw, …): the first `draws` of each. The rest give the means and the errors of
    these."""
    log_density, _ = of(name)
    values = np.concatenate(
        [every[:, :, :1], np.exp(every[:, :, 1:2]), every[:, :, 2 : 3 + _EFFECTS]], axis=2
    )
    means = values[:, draws:].mean(axis=1)
    return {
        "x": every[:, :draws],
        "score": np.asarray(jax.vmap(jax.vmap(jax.grad(log_density)))(every[:, :draws])),
        "f": values[:, :draws],
        "names": np.array(["mu", "tau", "slope", *(f"theta[{j}]" for j in range(_EFFECTS))]),
        "truth": means.mean(axis=0),
        "se": means.std(axis=0, ddof=1) / np.sqrt(len(means)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chains", type=int, default=20)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--times", type=int, default=200, help="draws behind the means, in chains")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    folder = options.folder / "hierarchies"
    folder.mkdir(parents=True, exist_ok=True)
    length = options.draws * (1 + options.times // options.chains)
    with get_context("spawn").Pool() as pool:
        found_chains = pool.map(
            chain,
            [(name, length, key) for name in MODELS for key in range(options.chains)],
            chunksize=1,
        )
    truths = {}
    for k, name in enumerate(MODELS):
        found = made(
            name,
            np.array(found_chains[k * options.chains : (k + 1) * options.chains]),
            options.draws,
        )
        with atomic(folder / f"{name}.npz") as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, **{key: found[key] for key in ("x", "score", "f")})
        truths[name] = {key: found[key].tolist() for key in ("names", "truth", "se")}
    with atomic(folder / "truth.json") as temporary:
        Path(temporary).write_text(json.dumps(truths, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
