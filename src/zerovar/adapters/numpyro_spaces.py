"""NumPyro models of which all latent sites live in one space: draws and scores there."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..inputs.sample import Posterior
from ..spaces import Box, Simplex, Space, Torus
from .base import (
    build_posterior,
    extra_values,
    label_entries,
    map_chains,
    merge_values,
    named_entries,
    ravel,
)

UNWRAPPED = "_unwrapped"  # what `CircularReparam` appends to the name of a site
_ELSE = "Leave space out, and draws are on the unconstrained scale, as for every model"


def posterior_in_space(
    model: Any,
    own: tuple[tuple[Any, ...], dict[str, Any]],
    latent: dict[str, Any],
    sites: dict[str, Any],
    values: Mapping[str, object] | None,
    space: Space,
) -> Posterior:
    """Return the latent sites (chain, draw, …) of a seeded model as draws in a space, with the
    scores of the density there: that of NumPyro on the natural scale, without a Jacobian."""
    from numpyro.infer.util import log_density

    _check_supports(model, own, latent, space)
    is_simplex, is_torus = isinstance(space, Simplex), isinstance(space, Torus)
    # an unwrapped angle may be thousands of turns away: the site itself has all of its digits
    draws = {name: sites.get(name.removesuffix(UNWRAPPED), site) for name, site in latent.items()}
    draws = {name.removesuffix(UNWRAPPED): site for name, site in draws.items()}
    if is_simplex:
        draws = {name: site[..., :-1] for name, site in draws.items()}

    def log_density_of(draw: dict[str, Any]) -> Any:
        own_names = {name: draw[name.removesuffix(UNWRAPPED)] for name in latent}
        if is_simplex:  # the last share is what the others leave
            own_names = {name: jnp.append(x, 1 - x.sum()) for name, x in own_names.items()}
        return log_density(model, *own, own_names)[0]

    scores = map_chains(jax.grad(log_density_of), draws)
    kept = {name: site for name, site in sites.items() if not name.endswith(UNWRAPPED)}
    entries = label_entries({n: x for n, x in kept.items() if not (is_torus and n in draws)})
    if is_torus:  # an angle has no mean
        entries = space.values(ravel(draws), tuple(named_entries(draws))) | entries
    given = merge_values(entries, extra_values(values, dict(sites)))
    return build_posterior(draws, scores, given, space=space)


def unwrapped_sites(latent: Iterable[str], sites: Mapping[str, Any]) -> list[str]:
    """Return the latent sites that are angles on all of the line, as `CircularReparam` makes
    them."""
    return [
        name
        for name in latent
        if name.endswith(UNWRAPPED) and name.removesuffix(UNWRAPPED) in sites
    ]


def _check_supports(
    model: Any, own: tuple[tuple[Any, ...], dict[str, Any]], latent: dict[str, Any], space: Space
) -> None:
    """Raise a ValueError unless the supports of all latent sites, at the first draw and at the
    last, are those of the space."""
    from numpyro import handlers

    fits, other = _requirement(space), {}
    for place in ((0, 0), (-1, -1)):
        data = {name: site[place] for name, site in sorted(latent.items())}
        trace = handlers.trace(handlers.substitute(model, data=data)).get_trace(*own[0], **own[1])
        start = 0
        for name, value in data.items():
            stop = start + np.size(value)
            support = trace[name]["fn"].support
            support = getattr(support, "base_constraint", support)
            angle = isinstance(space, Torus) and f"{name.removesuffix(UNWRAPPED)}_factor" in trace
            if not (fits(support, slice(start, stop)) or (angle and name.endswith(UNWRAPPED))):
                other[name] = support
            start = stop
        if isinstance(space, Simplex) and [np.ndim(value) for value in data.values()] != [1]:
            raise ValueError(
                "a Simplex is of one site with one simplex; got shapes "
                f"{[np.shape(value) for value in data.values()]}. {_ELSE}"
            )
    if other:
        found = ", ".join(f"{name} in {support}" for name, support in other.items())
        raise ValueError(
            f"space must be where all latent sites live, {space.describe()}; got {found}. {_ELSE}"
        )


def _requirement(space: Space) -> Callable[[Any, slice], bool]:
    """Return what a support must be, for the coordinates in a slice."""
    from numpyro.distributions import constraints

    if isinstance(space, Torus):
        return lambda support, _: support is constraints.circular and space.period == 2 * np.pi
    if isinstance(space, Simplex):
        return lambda support, _: support is constraints.simplex
    if not isinstance(space, Box):
        raise ValueError(
            f"NumPyro samples no sites on a {space.describe()}; space must be Torus(), Simplex() "
            f"or Box(). {_ELSE}"
        )
    ends = {"lower_bound": (-np.inf, space.low), "upper_bound": (np.inf, space.high)}

    def is_between(support: Any, where: slice) -> bool:
        return all(
            np.allclose(getattr(support, end, none), bound if len(bound) == 1 else bound[where])
            for end, (none, bound) in ends.items()
        )

    return is_between
