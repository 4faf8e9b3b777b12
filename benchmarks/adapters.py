"""What an adapter adds to its sampler: eight schools, 4 chains of 1000 draws after 1000 of warm-up.

Both are run again with what they have compiled kept by JAX's compilation cache: the sampler's time is that of its second run,
the adapter's that of a later call. First calls, which compile, are given too.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import zerovar as zv

from .harness import Row, best

Y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
SIGMA = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def rows(draws: int = 1000) -> list[Row]:
    """Later calls of adapters against a second run of their samplers. It leaves JAX's compilation cache on: run it last."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        return [*_numpyro(draws), *_blackjax(draws)]


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    out = jax.block_until_ready(call())
    return time.perf_counter() - started, out


def _row(case: str, sampler: Callable[[], Any], adapter: Callable[[], Any], bound: float | None) -> Row:
    compiled, again = _timed(sampler)[0], _timed(sampler)[0]
    first = _timed(adapter)[0]
    return Row(case, again, best(adapter, 3), bound, f"first: {first:.1f} s, after {compiled:.0f} s of the sampler's")


def _numpyro(draws: int) -> list[Row]:
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS
    from numpyro.infer.reparam import LocScaleReparam

    def model(sigma, y):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("school", 8), numpyro.handlers.reparam(config={"theta": LocScaleReparam(0.0)}):
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
        with numpyro.plate("observed", 8):
            numpyro.sample("y", dist.Normal(theta, sigma), obs=y)

    out = []
    for label, fields, bound in (("NumPyro, z_grad kept", ("z_grad",), 0.02), ("NumPyro, gradients computed", (), 0.2)):
        options = {"num_warmup": draws, "num_samples": draws, "num_chains": 4}
        mcmc = MCMC(NUTS(model), chain_method="sequential", progress_bar=False, **options)

        def run(mcmc: Any = mcmc, fields: Any = fields) -> Any:
            mcmc.run(jax.random.key(0), jnp.asarray(SIGMA), y=jnp.asarray(Y), extra_fields=fields)
            return mcmc.get_samples()

        out.append(_row(label, run, lambda mcmc=mcmc: zv.from_numpyro(mcmc), bound))
    return out


def _blackjax(draws: int) -> list[Row]:
    import blackjax

    def log_density(x: Any) -> Any:
        theta = x["mu"] + jnp.exp(x["log_tau"]) * x["z"]
        prior = -0.5 * (x["mu"] / 5) ** 2 - 0.5 * jnp.sum(x["z"] ** 2)
        prior += -jnp.log1p((jnp.exp(x["log_tau"]) / 5) ** 2) + x["log_tau"]
        return prior - 0.5 * jnp.sum(((jnp.asarray(Y) - theta) / jnp.asarray(SIGMA)) ** 2)

    start = {"mu": jnp.zeros(()), "log_tau": jnp.zeros(()), "z": jnp.zeros(8)}
    warmup = blackjax.window_adaptation(blackjax.nuts, log_density)

    def chain(key: Any) -> Any:
        first, second = jax.random.split(key)
        (state, parameters), _ = warmup.run(first, start, num_steps=draws)
        step = blackjax.nuts(log_density, **parameters).step
        return jax.lax.scan(lambda state, key: (step(key, state)[0],) * 2, state, jax.random.split(second, draws))[1]

    program = jax.jit(jax.vmap(chain))
    keys = jax.random.split(jax.random.key(0), 4)
    states = program(keys)
    positions = jax.tree.map(np.asarray, states.position)

    def sample() -> Any:
        return program(keys)

    return [
        _row("BlackJAX, gradients of the states", sample, lambda: zv.from_blackjax(states, chain_axis=0), 0.02),
        _row("the same draws, a log density", sample, lambda: zv.from_log_density(log_density, positions, chain_axis=0), None),
    ]
