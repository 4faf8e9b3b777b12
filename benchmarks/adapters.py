"""What an adapter adds to its sampler: eight schools, 4 chains of 1000 draws after 1000 of warm-up.

Both are run again with what they have compiled kept by JAX's compilation cache: the sampler's time
is that of its second run, the adapter's that of a later call. First calls, which compile, are given
too.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import zerovar as zv

from .chains import SCHOOLS, eight_schools, nuts_chain
from .harness import Row, best, show


def rows(draws: int = 1000) -> list[Row]:
    """Later calls of adapters against a second run of their samplers. It leaves JAX's compilation
    cache on: run it last."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        return [*_numpyro(draws), *_blackjax(draws), *_pymc(draws)]


def _row(
    case: str,
    sampler: Callable[[], Any],
    adapter: Callable[[], Any],
    bound: float | None = None,
    compiled: float | None = None,  # the sampler's first run, if it is timed elsewhere
) -> Row:
    compiled = best(sampler, 1) if compiled is None else compiled
    again, first = best(sampler, 1), best(adapter, 1)
    return Row(
        case,
        again,
        best(adapter, 3),
        bound,
        f"first: {first:.1f} s, after {compiled:.0f} s of the sampler's",
    )


def _numpyro(draws: int) -> list[Row]:
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS
    from numpyro.infer.reparam import LocScaleReparam

    def model(sigma, y):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with (
            numpyro.plate("school", 8),
            numpyro.handlers.reparam(config={"theta": LocScaleReparam(0.0)}),
        ):
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
        with numpyro.plate("observed", 8):
            numpyro.sample("y", dist.Normal(theta, sigma), obs=y)

    y, sigma = map(jnp.asarray, SCHOOLS)
    out = []
    for label, fields, bound in (
        ("NumPyro, z_grad kept", ("z_grad",), 0.02),
        ("NumPyro, gradients computed", (), 0.2),
    ):
        options = {"num_warmup": draws, "num_samples": draws, "num_chains": 4}
        mcmc = MCMC(NUTS(model), chain_method="sequential", progress_bar=False, **options)

        def run(mcmc: Any = mcmc, fields: Any = fields) -> Any:
            mcmc.run(jax.random.key(0), sigma, y=y, extra_fields=fields)
            return jax.block_until_ready(mcmc.get_samples())

        out.append(_row(label, run, lambda mcmc=mcmc: zv.from_numpyro(mcmc), bound))
    return out


def _blackjax(draws: int) -> list[Row]:
    program = jax.jit(jax.vmap(nuts_chain(eight_schools, 10, draws, draws)))
    keys = jax.random.split(jax.random.key(0), 4)

    def sample() -> Any:
        return jax.block_until_ready(program(keys))

    started = time.perf_counter()
    states = sample()
    compiled = time.perf_counter() - started
    positions = np.asarray(states.position)
    return [
        _row(
            "BlackJAX, gradients of the states",
            sample,
            lambda: zv.from_blackjax(states, chain_axis=0),
            0.02,
            compiled,
        ),
        _row(
            "the same draws, a log density",
            sample,
            lambda: zv.from_log_density(eight_schools, positions, chain_axis=0),
            None,
            compiled,
        ),
    ]


def _pymc(draws: int) -> list[Row]:
    """Sampled by nutpie through JAX, which keeps gradients; without them the model is
    differentiated anew."""
    import nutpie
    import pymc as pm

    y, sigma = SCHOOLS
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        theta = pm.Deterministic("theta", mu + tau * pm.Normal("z", 0, 1, shape=8))
        pm.Normal("y", theta, sigma, observed=y)
    started = time.perf_counter()
    program = nutpie.compile_pymc_model(model, backend="jax", gradient_backend="jax")
    kept = {"store_gradient": True, "store_unconstrained": True, "progress_bar": False}

    def sample() -> Any:
        return nutpie.sample(program, draws=draws, tune=draws, chains=4, seed=1, **kept)

    trace = sample()
    compiled = time.perf_counter() - started
    return [
        _row(
            "PyMC by nutpie, gradients kept", sample, lambda: zv.from_arviz(trace), 0.02, compiled
        ),
        _row(
            "the same draws, the model's gradient",
            sample,
            lambda: zv.from_pymc(model, trace),
            0.2,
            compiled,
        ),
    ]


def measure(options: Namespace) -> dict[str, Any]:
    """Nothing to make smaller: compiling the samplers is what takes time."""
    if options.quick:
        return {}
    found = rows()
    show("Adapters against their samplers: eight schools, 4 × 1000 draws", found, "sampler")
    return {"adapters": found}
