"""What a ladder begins from: a normal that is fitted to draws, or about a start, or a prior."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from ..adapters.models import flat_density
from ..adapters.recognition import draws_in_chains, recognise
from ..inputs.integrands import DrawFunction
from ..inputs.points import Matrix, Vector
from ..inputs.sample import as_float
from ..mixtures import Frame
from .opening import open_density
from .tempering import Factors, fit_frame


class Foot(NamedTuple):
    """π_0: the factors of all π_t, coordinates in which it is about standard, and draws of it
    (n, d), or points where its chains may begin (s, d); `given` are draws of the posterior
    (chain, draw, d), if there are some; `relative` says why the posterior's integral is known up to
    a constant alone, if it is."""

    factors: Factors
    frame: Frame
    draws: Matrix | None
    points: Matrix
    reference: str
    given: np.ndarray | None = None
    relative: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class NormalDensity:
    """The log density of a normal distribution, normalised, in JAX."""

    frame: Frame

    def __call__(self, x: Any) -> Any:
        centre, root = jnp.asarray(self.frame.centre), jnp.asarray(self.frame.root)
        z = solve_triangular(root, x - centre, lower=True)
        return -0.5 * jnp.sum(z**2) - len(centre) / 2 * np.log(2 * np.pi) - self.frame.log_volume


def make_foot(
    data: Any,
    log_density: DrawFunction | None,
    log_prior: DrawFunction | None,
    prior_draws: Any,
    start: Any,
    args: Sequence[object] | None,
    kwargs: Mapping[str, object] | None,
) -> Foot:
    """What the ladder begins from, by what was given."""
    if prior_draws is not None and log_prior is None:
        raise ValueError("ladder: prior_draws belong to a log_prior, and there is none")
    if log_prior is not None:
        if log_density is not None or not callable(data):
            raise ValueError(
                "ladder: with log_prior, data is the log-likelihood, a JAX function of one draw, "
                f"and there is no log_density; got {type(data).__name__}"
            )
        return _from_prior(data, log_prior, prior_draws, start)
    if log_density is None and is_model(data):
        if callable(data) and all(one is None for one in (start, args, kwargs)):
            raise ValueError(
                "ladder: data is a function, and neither start, how a draw looks, nor args and "
                "kwargs, the data of a NumPyro model, are there"
            )
        flat = flat_density(data, start, args, kwargs)
        foot = _from_normal(flat.log_density, flat.starts, "normal about the start")
        return foot._replace(relative=flat.constants.relative)
    if start is not None or args is not None or kwargs is not None:
        raise ValueError(
            "ladder: start, args and kwargs belong to a model, as data; from draws the ladder "
            "begins at a normal that is fitted to them"
        )
    weights: Vector | None = None
    relative: tuple[str, ...] = ()
    if log_density is not None and recognise(data) is None:
        given, density = draws_in_chains(data), log_density  # no scores are needed
    else:
        posterior, known = open_density(data, log_density)
        sample, density = posterior.sample, known.log_density
        relative = known.constants().relative
        given, weights = sample.by_chain(sample.draws), sample.weights
    flat_draws = given.reshape(-1, given.shape[-1])
    foot = _from_normal(density, flat_draws, "normal fitted to the draws", weights)
    return foot._replace(given=given if weights is None else None, relative=relative)


def is_model(data: Any) -> bool:
    """Whether this is a model, or a function: no draws."""
    return type(data).__module__.split(".")[0] == "pymc" or (
        callable(data) and not hasattr(data, "shape")
    )


def _from_normal(
    log_density: DrawFunction, points: Matrix, reference: str, weights: Vector | None = None
) -> Foot:
    d = points.shape[1]
    frame = Frame(points[0], np.eye(d))
    if len(points) > 1:
        probabilities = np.full(len(points), 1 / len(points)) if weights is None else weights
        scale = np.sqrt(probabilities @ (points - probabilities @ points) ** 2)
        if not scale.all():
            raise ValueError(
                f"draws: coordinate {np.argmin(scale)} is the same number at every draw: a normal "
                "cannot be fitted"
            )
        frame = fit_frame(points, probabilities, Frame(points[0], np.diag(scale)))
    normal = NormalDensity(frame)

    def rest(x: Any) -> Any:
        return jnp.reshape(log_density(x), ()) - normal(x)

    return Foot(Factors(normal, rest), frame, None, points, reference)


def _from_prior(
    log_likelihood: DrawFunction, log_prior: DrawFunction, prior_draws: Any, start: Any
) -> Foot:
    own = None
    if prior_draws is not None:
        own = as_float("prior_draws", prior_draws, power=4)
        if own.ndim != 2 or len(own) < 2:
            raise ValueError(f"prior_draws must be (n, d); got shape {own.shape}")
        start = own[0]
    likelihood = flat_density(log_likelihood, start, None, None)
    prior = flat_density(log_prior, start, None, None)
    foot = _from_normal(prior.log_density, prior.starts if own is None else own, "prior")
    factors = Factors(prior.log_density, likelihood.log_density)
    return foot._replace(factors=factors, draws=own)
