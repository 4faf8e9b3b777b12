"""BlackJAX: stacked states have positions and, for most samplers, the gradients there."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from ..arguments import MORE_VALUES, OF_A_DRAW, takes
from ..inputs.integrands import DrawFunction
from ..inputs.sample import Posterior
from .base import CHAIN_AXIS, build_posterior, density_of, put_chains_first
from .log_density import from_log_density, natural_values


@takes(log_density=OF_A_DRAW, chain_axis=CHAIN_AXIS, transform=OF_A_DRAW, values=MORE_VALUES)
def from_blackjax(
    states: Any,
    log_density: DrawFunction | None = None,
    *,
    chain_axis: int | None = None,
    transform: DrawFunction | None = None,
    values: Mapping[str, object] | None = None,
) -> Posterior:
    """Return draws and free scores of BlackJAX's stacked states (nuts, hmc, mala, mclmc, …).

    states: as `jax.lax.scan` stacks them, one chain; for several say which axis is the chain's:
        `chain_axis=1` for a scan over vmapped steps, (draw, chain), 0 for vmapped scans, (chain,
        draw). A pair (states, info) tells of divergences too.
    log_density: needed for samplers without gradients (rmh, slice); with it probabilities and
        quantiles gain most.
    transform: from one position to the quantities on their natural scale; BlackJAX knows only the
        unconstrained one.
    values: more of them, name → function of one (transformed) position, or array (chain, draw).
    """
    pair = type(states) is tuple and len(states) == 2
    states, info = states if pair else (states, getattr(states, "info", None))
    diverged = int(np.sum(getattr(info, "is_divergent", 0)))
    states = getattr(states, "state", states)  # a stack of (state, info) pairs that has names
    position = getattr(states, "position", None)
    if position is None:
        raise ValueError(
            "states must be BlackJAX's stacked states, with a field position; got "
            f"{type(states).__name__}. From a scan over steps, keep the state: lax.scan(lambda s, "
            "k: (kernel(k, s)[0],) * 2, …)"
        )
    density = getattr(states, "logdensity", None)
    axes = 1 if chain_axis is None else 2
    if density is not None and np.ndim(density) != axes:
        raise ValueError(
            f"states have {np.ndim(density)} leading axes, {np.shape(density)}, and "
            f"chain_axis={chain_axis} means {axes}. One chain: (draw,), chain_axis=None. Several: "
            "chain_axis=0 for (chain, draw), 1 for (draw, chain)"
        )
    gradient = getattr(states, "logdensity_grad", None)
    if gradient is None:
        if log_density is None:
            raise ValueError(
                f"{type(states).__name__} has no logdensity_grad: this sampler computes no "
                "gradients. Give its log density: zv.from_blackjax(states, log_density)"
            )
        posterior = from_log_density(
            log_density, position, chain_axis=chain_axis, transform=transform, values=values
        )
        return dataclasses.replace(posterior, divergences=diverged)
    draws, scores = (
        jax.tree.map(partial(put_chains_first, name, chain_axis=chain_axis), tree)
        for name, tree in (("draws", position), ("scores", gradient))
    )
    known = None if log_density is None else density_of(draws, log_density, transform, values)
    posterior = build_posterior(
        draws, scores, natural_values(draws, transform, values), density=known
    )
    return dataclasses.replace(posterior, divergences=diverged)
