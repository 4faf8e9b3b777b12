"""Centred and non-centred forms of a NumPyro model, as other coordinates for the draws of the one
that was sampled.

Two things are recognised, each at a few draws and not by name. A deterministic site that is an
affine function of a latent one of its shape, given the other sites, is the centred form of it:
`LocScaleReparam` leaves such pairs, and so does `theta = mu + tau * z`. A latent site whose
distribution has a location and a scale from other sites, which may be a matrix, is the centred form
itself.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import NumericalWarning, warn
from ..inputs.coordinates import CLOSE, MOST_JACOBIAN, Coordinates, Coupling
from ..inputs.integrands import DrawFunction, Returned, entry_name, run_in_double
from .base import base_distribution, ravel, unraveller

Sites = dict[str, Any]
Places = dict[str, np.ndarray]  # where each latent site is in a flat draw
# By latent site, what it becomes, and (location, scale) given a flat draw in which it is zero
SiteForms = dict[str, tuple[str, DrawFunction]]


def _run_as_it_is(name: str, run: Callable[[], Returned]) -> Returned:
    return run()


class CouplingInSingle(Coupling):
    """A coupling by functions of a model that was sampled in single precision: the model's code
    then sees the types that it was written for, and JAX those that it remembers."""

    _run = staticmethod(_run_as_it_is)


class HierarchicalCoordinates(Mapping[str, Coordinates]):
    """By name, "centred" and "non-centred" where there are such; recognised when they are first
    asked for, as that compiles the model once or twice. `draws` are the latent sites on the
    unconstrained scale, (chain, draw, …)."""

    def __init__(
        self, model: Any, args: tuple[object, ...], kwargs: Sites, draws: Sites, sites: Sites
    ):
        self._given = (model, args, kwargs, draws, sites)

    @functools.cached_property
    def _found(self) -> dict[str, Coordinates]:
        return _find_forms(*self._given)

    def __getitem__(self, name: str) -> Coordinates:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _find_forms(
    model: Any, args: tuple[object, ...], kwargs: Sites, draws: Sites, sites: Sites
) -> dict[str, Coordinates]:
    from numpyro import handlers
    from numpyro.infer.util import constrain_fn

    unravel = unraveller(draws)
    seeded = handlers.seed(model, rng_seed=0)

    def natural(x: jax.Array) -> Sites:
        """Return all sites at a flat draw, deterministic ones too."""
        return constrain_fn(seeded, args, kwargs, unravel(x), return_deterministic=True)

    def affine_priors(x: jax.Array) -> Sites:
        """Return location and scale of every latent site that has such."""
        found = natural(x)
        substituted = handlers.substitute(seeded, data={name: found[name] for name in draws})
        trace = handlers.trace(substituted).get_trace(*args, **kwargs)
        priors = {name: _location_and_scale(trace[name]) for name in draws if name in trace}
        return {name: pair for name, pair in priors.items() if pair is not None}

    sizes = {name: math.prod(np.shape(draws[name])[2:]) for name in sorted(draws)}
    ends = np.cumsum([0, *sizes.values()])
    places = {name: np.arange(ends[k], ends[k + 1]) for k, name in enumerate(sizes)}
    # two draws of every chain tell what depends on what
    some = ravel(draws)[:, [0, -1]].reshape(-1, ends[-1])
    others = sorted(set(sites) - set(draws))
    # in the precision of the run: another one would change the types that the model's code sees
    in_double = np.result_type(*draws.values()) == np.float64
    run, kind = (run_in_double, Coupling) if in_double else (_run_as_it_is, CouplingInSingle)
    try:
        centred = run("model", lambda: _find_centred(natural, places, some, others))
        spread = run("model", lambda: _find_non_centred(affine_priors, places, some))
    # such a model is still estimated, in the coordinates that it was sampled in
    except Exception as error:
        warn(
            f"the model was not searched for centred and non-centred forms: {error}",
            NumericalWarning,
        )
        return {}
    found = {"centred": (centred, False), "non-centred": (spread, True)}
    return {
        name: _coupling(kind, forms, places, backwards)
        for name, (forms, backwards) in found.items()
        if forms
    }


def _find_centred(
    natural: Callable[[jax.Array], Sites], places: Places, some: np.ndarray, others: list[str]
) -> SiteForms:
    """Return, for each latent site that has one, the deterministic site that is its centred form,
    and what the affine map is."""
    found: SiteForms = {}
    shapes = jax.eval_shape(natural, some[0])
    for site in others:
        size = math.prod(shapes[site].shape) if site in shapes else 0
        for name, block in places.items():
            if name in found or size != len(block):
                continue

            def target(x: jax.Array, site: str = site) -> jax.Array:
                return jnp.ravel(natural(x)[site])

            if (function := _affine(target, block, some)) is not None:
                found[name] = (site, function)
    return found


def _affine(target: DrawFunction, block: np.ndarray, some: np.ndarray) -> DrawFunction | None:
    """Return (location, scale) given a draw whose block is zero, if the target is such a function
    of the block; else None."""

    def at(x: jax.Array, values: Any) -> jax.Array:
        return target(x.at[block].set(values))

    def by_entry(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        zeros = jnp.zeros(len(block), x.dtype)
        return jax.jvp(lambda values: at(x, values), (zeros,), (jnp.ones_like(zeros),))

    def by_matrix(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return at(x, 0.0), jax.jacfwd(lambda values: at(x, values))(jnp.zeros(len(block), x.dtype))

    def fits(function: DrawFunction) -> bool:
        def compare(x: jax.Array) -> tuple[jax.Array, ...]:
            location, scale = function(x)
            varied = x[block] + jnp.arange(1, len(block) + 1) % 3 - 1.0
            both = jnp.stack([x[block], varied])
            true = jnp.stack([at(x, values) for values in both])
            mixes = scale.ndim == 2
            guess = location + (both @ scale.T if mixes else both * scale)
            sizes = jnp.linalg.svd(scale, compute_uv=False) if mixes else jnp.abs(scale)
            return true, true - guess, sizes.min(), jnp.append(scale.ravel(), location)

        true, away, least, shape = map(np.asarray, jax.jit(jax.vmap(compare))(some))
        size = max(np.abs(true).max(), 1.0)
        # a map that depends on no other site would change nothing
        depends = np.ptp(shape, axis=0).max() > CLOSE
        return bool(
            np.abs(away).max() <= CLOSE * size and least.min() > CLOSE**2 * size and depends
        )

    if fits(by_entry):
        return by_entry
    return by_matrix if 1 < len(block) <= MOST_JACOBIAN and fits(by_matrix) else None


def _find_non_centred(
    priors: Callable[[jax.Array], Sites], places: Places, some: np.ndarray
) -> SiteForms:
    """Return, for each latent site whose scale comes from other sites, its location and scale."""
    found: SiteForms = {}
    for name, (_, scale) in jax.jit(jax.vmap(priors))(some).items():
        if np.ptp(scale, axis=0).max() > CLOSE and (_diagonal(scale) > 0).all():

            def function(x: jax.Array, name: str = name) -> tuple[jax.Array, jax.Array]:
                return priors(x)[name]

            found[name] = (f"{name}_decentered", function)
    return found


def _diagonal(scale: jax.Array) -> jax.Array:
    """Return the entries of scales (draw, entry), or the diagonals of matrices (draw, m, k, k)."""
    return scale if scale.ndim == 2 else jnp.diagonal(scale, axis1=-2, axis2=-1)


def _location_and_scale(site: Any) -> tuple[jax.Array, jax.Array] | None:
    """Return those of a site whose distribution is a family of these over all reals: for every
    entry of the site, or as scale a triangular matrix for each vector in it."""
    from numpyro.distributions import constraints

    base = base_distribution(site["fn"])
    if site["is_observed"] or not hasattr(base, "loc"):
        return None
    shape = jnp.shape(site["value"])
    location = jnp.broadcast_to(base.loc, shape).ravel()
    if hasattr(base, "scale_tril") and base.support is constraints.real_vector:
        matrices = jnp.broadcast_to(base.scale_tril, (*shape, shape[-1]))
        return location, matrices.reshape(-1, shape[-1], shape[-1])
    if hasattr(base, "scale") and base.support is constraints.real:
        return location, jnp.broadcast_to(base.scale, shape).ravel()
    return None


def _coupling(kind: type[Coupling], forms: SiteForms, places: Places, backwards: bool) -> Coupling:
    """Return one map of all these sites; names are those of the sites that they become."""
    called = {name: forms[name][0] if name in forms else name for name in places}
    names = [
        entry_name(called[name], (k,) if len(block) > 1 else ())
        for name, block in places.items()
        for k in range(len(block))
    ]
    blocks = [(places[name].tolist(), function) for name, (_, function) in forms.items()]
    return kind(blocks, backwards, names)
