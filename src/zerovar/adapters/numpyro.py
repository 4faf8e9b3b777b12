"""NumPyro: the MCMC object after its run."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from ..arguments import MORE_VALUES, instance, show, takes
from ..errors import ScoreWarning, list_names, missing_package, warn
from ..inputs.coordinates import CLOSE
from ..inputs.density import Constants
from ..inputs.sample import Posterior
from ..spaces import SPACE, Space
from .base import (
    MAPS,
    base_distribution,
    build_posterior,
    copy_arrays,
    density_of,
    discrete_error,
    extra_values,
    label_entries,
    map_chains,
    merge_values,
)
from .hierarchies import HierarchicalCoordinates
from .numpyro_spaces import posterior_in_space, unwrapped_sites
from .numpyro_terms import describe_subsample, numpyro_terms


@takes(
    args=instance((tuple, list), "a tuple, the model's arguments"),
    kwargs=instance(Mapping, "a dict, the model's arguments by name"),
    values=MORE_VALUES,
    coordinates=MAPS,
    space=SPACE,
)
def from_numpyro(
    mcmc: Any,
    *,
    args: tuple[object, ...] | None = None,
    kwargs: Mapping[str, object] | None = None,
    values: Mapping[str, object] | None = None,
    coordinates: Mapping[str, object] | None = None,
    space: Space | None = None,
) -> Posterior:
    """Return draws, scores and all sites of a finished NumPyro run.

    mcmc: after `mcmc.run(key, …)`. With `extra_fields=("z_grad",)` in that call the scores cost
        nothing: the sampler has computed them. Otherwise the model's gradient is compiled and taken
        once at every draw.
    args, kwargs: the model's own, as given to `run`; by default those of the last run.
    values: more quantities, name → function of one draw (a dict of all sites, deterministic ones
        too), or array (chain, draw).
    coordinates: name → other coordinates to try, as in `zv.from_log_density`; a function takes a
        dict of the latent sites on the unconstrained scale. By default those that are recognised:
        "centred", in which latent sites are replaced by the deterministic ones that are affine
        functions of them given the others (as `LocScaleReparam` leaves them), and "non-centred", in
        which sites with a location and scale from other sites are measured in these.
    space: where all latent sites live, if they are to be taken there: `Torus()` for angles (von
        Mises), as such or under `CircularReparam`, `Simplex()` for one Dirichlet site, `Box(low,
        high)` for bounded ones. The scores are then computed there. On a `Torus` values are cosines
        and sines in place of angles.

    Draws and scores are on the unconstrained scale of the latent sites, if there is no `space`;
    values are on the natural one.
    """
    try:
        from numpyro import handlers
        from numpyro.infer.util import constrain_fn, initialize_model, potential_energy
    except ImportError as error:
        raise missing_package("numpyro", "numpyro") from error

    state = getattr(mcmc, "last_state", None)
    latent = getattr(state, "z", None)
    model = getattr(getattr(mcmc, "sampler", None), "model", None)
    if state is None:
        raise ValueError(
            f"mcmc must be a numpyro.infer.MCMC after run(); got {type(mcmc).__name__} without a "
            "last_state"
        )
    if model is None or not isinstance(latent, dict):
        raise ValueError(
            f"{type(mcmc.sampler).__name__} without a model, or with a state that is not a dict of "
            "sites, has no known unconstrained scale. Use zv.from_log_density(lambda z: "
            "-potential(z), mcmc.get_samples(group_by_chain=True), chain_axis=0)"
        )
    # NumPyro keeps the arguments of the last run; they are not public, so explicit ones win.
    args = tuple(getattr(mcmc, "_args", ()) if args is None else args)
    kwargs = getattr(mcmc, "_kwargs", {}) if kwargs is None else dict(kwargs)
    sites = mcmc.get_samples(group_by_chain=True)
    # at a draw: what has an improper prior cannot be sampled from it
    first = {name: sites[name][0, 0] for name in latent if name in sites}
    try:
        discrete = _discrete_sites(handlers.substitute(model, data=first), args, kwargs)
    except Exception as error:
        raise ValueError(
            f"the model does not run with its args and kwargs, {show(args)} and {show(kwargs)}: "
            f"{error!r}"
        ) from error
    if sampled := [name for name in discrete if name in latent]:
        raise discrete_error("sites", sampled)
    absent = sorted(set(latent) - set(sites))
    if absent:
        raise ValueError(
            f"the latent sites {absent} were not kept by the run; run MCMC without removing sites"
        )
    # as NUTS does, for models with random parts of their own
    unseeded, model = model, handlers.seed(model, rng_seed=0)
    if space is not None:
        if discrete or coordinates:
            what = f"the sites {discrete} are summed out" if discrete else "there are coordinates"
            raise ValueError(f"{what}, which is for draws on the unconstrained scale: no space")
        there = {name: sites[name] for name in latent}
        posterior = posterior_in_space(model, (args, kwargs), there, sites, values, space)
        return dataclasses.replace(posterior, divergences=_divergences(mcmc))
    if unwrapped := unwrapped_sites(latent, sites):
        warn(
            f"{list_names(unwrapped)}: on all of the line, as CircularReparam has it, the density "
            "of an angle repeats itself and does not vanish far out, so that control variates do "
            "not have mean zero. If all latent sites are angles, give space=zv.spaces.Torus(); "
            "else run without CircularReparam",
            ScoreWarning,
        )
    # In the precision of the run: the score is then that of the model as it was sampled.
    draws = _unconstrain(model, args, kwargs, {name: sites[name] for name in latent})

    def make_potential(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Any], Any]:
        if not discrete:
            return partial(potential_energy, model, args, kwargs)

        @functools.cache
        def enumerate_sites() -> Any:
            # summed out by enumeration, which the kernel sets up when it is given such a model
            return initialize_model(
                jax.random.key(0), mcmc.sampler.model, model_args=args, model_kwargs=kwargs
            ).potential_fn

        return lambda z: enumerate_sites()(z)

    extra = mcmc.get_extra_fields(group_by_chain=True)
    gradients = extra.get("z_grad")
    shortened = _shortened_sites(latent, draws)
    if shortened and gradients is not None:
        gradients = gradients | {
            name: _kept_entries(name, gradients[name], draws[name], latent[name])
            for name in shortened
        }
    elif shortened:
        raise _lost_entries(shortened[0], draws, latent)
    if gradients is None:
        gradients = map_chains(jax.grad(make_potential(args, kwargs)), draws)
    # z_grad is that of the potential, −log π
    scores = {name: -np.asarray(gradients[name]) for name in latent}
    draws = {name: draws[name] for name in latent}
    own = copy_arrays((args, kwargs))
    potential = make_potential(*own)
    density = density_of(
        draws,
        lambda z: -potential(z),
        partial(constrain_fn, model, *own, return_deterministic=True),
        values,
        constants=partial(_constants, handlers.substitute(model, data=first), args, kwargs),
        terms=partial(numpyro_terms, model, own, discrete),
    )
    posterior = build_posterior(
        draws,
        scores,
        merge_values(label_entries(sites), extra_values(values, dict(sites))),
        coordinates,
        density=None if shortened else density,  # a model needs all entries of its sites
    )
    posterior = dataclasses.replace(posterior, divergences=_divergences(mcmc))
    if coordinates is None and not shortened:
        found = HierarchicalCoordinates(unseeded, args, kwargs, draws, dict(sites))
        posterior = dataclasses.replace(posterior, coordinates=found)
    return posterior


def _divergences(mcmc: Any) -> int:
    return int(np.sum(mcmc.get_extra_fields(group_by_chain=True).get("diverging", 0)))


def _shortened_sites(latent: dict[str, Any], draws: dict[str, Any]) -> list[str]:
    """Return the latent sites of which the run has kept fewer entries than the sampler moves. In an
    enumerated scan NumPyro leaves those of the first steps out of the samples."""
    return [
        name
        for name, last in latent.items()
        if last is not None and math.prod(draws[name].shape[2:]) < np.size(last) // len(draws[name])
    ]


def _kept_entries(name: str, gradient: Any, draws: np.ndarray, last: Any) -> np.ndarray:
    """Return the gradient along the entries that were kept, those of the last steps: Stein's
    identity holds along some coordinates as along all. The sampler's last state tells them."""
    steps = draws.shape[2] if draws.ndim > 2 else 0
    state = np.reshape(last, (len(draws), *np.shape(gradient)[2:]))[:, -steps:]
    if state.shape != draws[:, -1].shape or not np.allclose(state, draws[:, -1], atol=CLOSE):
        raise _lost_entries(name, {name: draws}, {name: last})
    return np.asarray(gradient)[:, :, -steps:]


def _lost_entries(name: str, draws: dict[str, Any], latent: dict[str, Any]) -> ValueError:
    kept, moved = (
        math.prod(draws[name].shape[2:]),
        np.size(latent[name]) // len(draws[name]),
    )
    return ValueError(
        f"the run kept {kept} numbers a draw of the site {name}, and the sampler moves {moved}: "
        "NumPyro leaves the first steps of an enumerated scan out. Run with "
        'extra_fields=("z_grad",) and without thinning, or draw the site in a plate before the '
        "scan and give it to the scan as xs"
    )


def _discrete_sites(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """Return the names of the sites that are sampled from discrete distributions."""
    from numpyro import handlers

    found: list[str] = []

    def look() -> None:
        trace = handlers.trace(handlers.seed(model, rng_seed=0)).get_trace(*args, **kwargs)
        for name, site in trace.items():
            hidden = site["type"] == "sample" and not site["is_observed"]
            if hidden and site["fn"].support.is_discrete:
                found.append(name)

    jax.eval_shape(look)  # traced, as NUTS does it too: run, every sampled site would be compiled
    return found


def _constants(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Constants:
    from numpyro import handlers

    traced = handlers.trace(handlers.seed(model, rng_seed=0))
    return numpyro_constants(traced.get_trace(*args, **kwargs))


def numpyro_constants(trace: Mapping[str, Any]) -> Constants:
    """Return what of a model's log density is no normalised prior or likelihood, by its trace."""
    from numpyro import distributions

    relative, meaningless = [], []
    for name, site in trace.items():
        if part := describe_subsample(name, site):
            meaningless.append(part)
        if site["type"] != "sample":
            continue
        base = base_distribution(site["fn"])
        if isinstance(base, distributions.Unit):
            relative.append(f"the factor {name} is no normalised density")
        elif isinstance(base, distributions.ImproperUniform) and not site["is_observed"]:
            relative.append(f"the prior of {name} is improper")
        elif site["scale"] is not None and not meaningless:
            relative.append(f"the density of {name} is scaled")
    return Constants(tuple(relative), tuple(meaningless))


def _unconstrain(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], natural: dict[str, Any]
) -> dict[str, Any]:
    """Return the latent sites on their unconstrained scale, (chain, draw, …)."""
    from numpyro.infer.util import get_transforms, transform_fn, unconstrain_fn

    ends = [{name: site[place] for name, site in natural.items()} for place in ((0, 0), (-1, -1))]
    first, last = (get_transforms(model, args, kwargs, end) for end in ends)
    if first == last:  # supports that are the same at every draw: nothing to compile
        return jax.tree.map(np.asarray, transform_fn(first, natural, invert=True))
    return map_chains(lambda site: unconstrain_fn(model, args, kwargs, site), natural)
