"""Centred and non-centred forms of a NumPyro model, as other coordinates for the draws of the one
that was sampled.

Two things are recognised, each at a few draws and not by name. A deterministic site that is an
affine function of a latent one of its shape, given the other sites, is the centred form of it:
`LocScaleReparam` leaves such pairs, and so does `theta = mu + tau * z`. A latent site whose
distribution has a location and a scale from other sites is the centred form itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import NumericalWarning, warn
from ..inputs.coordinates import Coordinates, Coupling
from ..inputs.integrands import entry_name, run_in_double
from .base import Tree, unraveller

_DRAWS = 3  # that recognition looks at
_AGREE = 1e-4  # single precision, times sizes that vary
_MOST = 200  # entries up to which a site may be mixed by a matrix

Sites = dict[str, Any]


class HierarchicalCoordinates(Mapping[str, Coordinates]):
    """By name, "centred" and "non-centred" where there are such; recognised when they are first
    asked for, as that compiles the model once or twice. `draws` are the latent sites on the
    unconstrained scale, (chain, draw, …)."""

    def __init__(
        self, model: Any, args: tuple[Any, ...], kwargs: Sites, draws: Sites, sites: Sites
    ):
        self._given = (model, args, kwargs, draws, sites)

    @functools.cached_property
    def _found(self) -> dict[str, Coordinates]:
        return _recognised(*self._given)

    def __getitem__(self, name: str) -> Coordinates:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _recognised(
    model: Any, args: tuple[Any, ...], kwargs: Sites, draws: Sites, sites: Sites
) -> dict[str, Coordinates]:
    from numpyro import handlers
    from numpyro.infer.util import constrain_fn

    unravel, places = unraveller(draws), _places(draws)
    seeded = handlers.seed(model, rng_seed=0)

    def natural(x: Any) -> Sites:
        """All sites at a flat draw, deterministic ones too."""
        return constrain_fn(seeded, args, kwargs, unravel(x), return_deterministic=True)

    def affine_priors(x: Any) -> Sites:
        """Location and scale of every latent site that has such."""
        found = natural(x)
        substituted = handlers.substitute(seeded, data={name: found[name] for name in draws})
        trace = handlers.trace(substituted).get_trace(*args, **kwargs)
        priors = {name: _location_and_scale(trace[name]) for name in draws if name in trace}
        return {name: pair for name, pair in priors.items() if pair is not None}

    flat = np.concatenate(
        [np.reshape(draws[name], (*np.shape(draws[name])[:2], -1)) for name in sorted(draws)],
        axis=2,
    )
    some = flat.reshape(-1, flat.shape[2])[
        np.linspace(0, flat[..., 0].size - 1, _DRAWS).astype(int)
    ].astype(np.float64)
    try:
        centred = run_in_double(
            "model", lambda: _centred(natural, places, some, sorted(set(sites) - set(draws)))
        )
        spread = run_in_double("model", lambda: _non_centred(affine_priors, places, some))
    # such a model is still estimated, in the coordinates that it was sampled in
    except Exception as error:
        warn(
            f"the model was not searched for centred and non-centred forms: {error}",
            NumericalWarning,
        )
        return {}
    found: dict[str, Coordinates] = {}
    if centred:
        found["centred"] = _coupling(
            centred, places, {name: site for name, (site, _) in centred.items()}
        )
    if spread:
        functions = {name: (name, function) for name, function in spread.items()}
        found["non-centred"] = _coupling(
            functions, places, {name: f"{name}_decentered" for name in spread}, backwards=True
        )
    return found


def _centred(
    natural: Callable[[Any], Sites],
    places: dict[str, np.ndarray],
    some: np.ndarray,
    others: list[str],
) -> Sites:
    """For each latent site that has one, the deterministic site that is its centred form, and what
    the affine map is."""
    found: Sites = {}
    shapes = jax.eval_shape(natural, some[0])
    for site in others:
        for name, block in places.items():
            if (
                site not in shapes
                or name in found
                or np.prod(shapes[site].shape, dtype=int) != len(block)
            ):
                continue

            def target(x: Any, site: str = site) -> Any:
                return jnp.ravel(natural(x)[site])

            if (function := _affine(target, block, some)) is not None:
                found[name] = (site, function)
    return found


def _affine(
    target: Callable[[Any], Any], block: np.ndarray, some: np.ndarray
) -> Callable[[Any], Any] | None:
    """(location, scale) given a draw whose block is zero, if the target is such a function of the
    block; else None."""

    def at(x: Any, values: Any) -> Any:
        return target(x.at[block].set(values))

    def by_entry(x: Any) -> Any:
        location = at(x, 0.0)
        return location, at(x, 1.0) - location

    def by_matrix(x: Any) -> Any:
        return at(x, 0.0), jax.jacfwd(lambda values: at(x, values))(jnp.zeros(len(block), x.dtype))

    def told(function: Callable[[Any], Any]) -> bool:
        def check(x: Any) -> Any:
            location, scale = function(x)
            varied = x[block] + jnp.arange(1, len(block) + 1) % 3 - 1.0
            guess = [
                location + (scale @ v if scale.ndim == 2 else scale * v) for v in (x[block], varied)
            ]
            least = (
                jnp.linalg.svd(scale, compute_uv=False).min()
                if scale.ndim == 2
                else jnp.abs(scale).min()
            )
            return (
                jnp.stack([at(x, x[block]), at(x, varied)]),
                jnp.stack(guess),
                least,
                jnp.append(scale.ravel(), location),
            )

        true, guess, least, shape = (np.asarray(part) for part in jax.jit(jax.vmap(check))(some))
        fits = np.abs(true - guess).max() <= _AGREE * max(np.abs(true).max(), 1.0)
        # on other sites; a fixed affine map would change nothing
        depends = np.ptp(shape, axis=0).max() > _AGREE
        return bool(fits and least.min() > _AGREE * np.abs(true).max() * 1e-3 and depends)

    if told(by_entry):
        return by_entry
    return by_matrix if 1 < len(block) <= _MOST and told(by_matrix) else None


def _non_centred(
    priors: Callable[[Any], Sites], places: dict[str, np.ndarray], some: np.ndarray
) -> Sites:
    """For each latent site whose location or scale come from other sites, what they are."""
    found: Sites = {}
    at = jax.jit(jax.vmap(priors))(some)
    for name, pair in at.items():
        scale = np.asarray(pair[1]).reshape(len(some), -1)
        if np.ptp(scale, axis=0).max() > _AGREE and (scale > 0).all():
            size = len(places[name])

            def function(x: Any, name: str = name, size: int = size) -> Any:
                location, scale = priors(x)[name]
                return tuple(
                    jnp.broadcast_to(jnp.ravel(part), (size,)) for part in (location, scale)
                )

            found[name] = function
    return found


def _location_and_scale(site: Any) -> tuple[Any, Any] | None:
    """Of a site whose distribution is a family of these over the real line, broadcast to the site's
    shape."""
    from numpyro.distributions import constraints

    base = site["fn"]
    while hasattr(base, "base_dist"):
        base = base.base_dist
    known = hasattr(base, "loc") and hasattr(base, "scale") and base.support is constraints.real
    if site["is_observed"] or not known:
        return None
    shape = jnp.shape(site["value"])
    return jnp.broadcast_to(base.loc, shape), jnp.broadcast_to(base.scale, shape)


def _coupling(
    functions: Sites, places: dict[str, np.ndarray], named: dict[str, str], backwards: bool = False
) -> Coordinates:
    """One map of all these sites; names are those of the sites that they become."""
    names: list[str] = []
    for name, block in places.items():
        called = named.get(name, name)
        names += (
            [entry_name(called, (k,)) for k in range(len(block))] if len(block) > 1 else [called]
        )
    return Coupling(
        [(places[name].tolist(), function) for name, (_, function) in functions.items()],
        backwards,
        names,
    )


def _places(draws: Tree) -> dict[str, np.ndarray]:
    """Where each site is in a flat draw, dicts in the order of their sorted keys."""
    sizes = {name: int(np.prod(np.shape(draws[name])[2:], dtype=int)) for name in sorted(draws)}
    ends = np.cumsum([0, *sizes.values()])
    return {
        name: np.arange(first, last)
        for name, first, last in zip(sizes, ends[:-1], ends[1:], strict=True)
    }
