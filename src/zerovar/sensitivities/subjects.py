"""The values of which sensitivities are asked: means, events and quantiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..choice import Request
from ..distributions.marginals import Marginals
from ..distributions.quantiles import estimate_quantiles
from ..errors import list_names
from ..events.lines import Lines
from ..events.quantities import Event, Marginal, Quantity
from ..inference.rules import KNOWN
from ..inputs.integrands import as_values
from ..inputs.points import Matrix, Vector
from ..probabilities import MOST_LINES, Asked, estimate_with_events
from ..session import Session
from .covariances import Smoother, Subject


class Subjects(NamedTuple):
    """Values with what they are, plain and controlled, their errors, and the deviations that their
    sensitivities are compared with."""

    each: list[Subject]
    value: Vector
    error: Vector
    deviation: Vector

    def join(self, other: Subjects) -> Subjects:
        """Return these and others."""
        arrays = (np.concatenate(pair) for pair in zip(self[1:], other[1:], strict=True))
        return Subjects([*self.each, *other.each], *arrays)


def means_and_events(session: Session, values: Any, request: Request) -> Subjects:
    """Return means of values, events among them: comparisons, booleans, functions of one draw."""
    means, happen = estimate_with_events(session, values, None, request)
    asked = Asked.of(session, values, "values")
    array, names, _ = as_values(asked.columns, session.sample, None)
    p, each = session.sample.probabilities, []
    for k, name in enumerate(names):
        event, smooth, again = asked.events.get(name), None, None
        if event is not None and happen[k]:
            smooth = _along_lines(event, session.marginal(event.quantity), means.value[k])
        elif not happen[k]:
            quantity = asked.quantities.get(name, session.find(name))
            if quantity is not None and np.array_equal(quantity.values, array[:, k]):
                again = _mean_along_lines(session, quantity, means.value[k])
        value, error = float(means.value[k]), float(means.std_error[k])
        plain = float(means.plain_value[k]), float(means.plain_std_error[k])
        unseen = [_unseen(*one) if happen[k] else 0.0 for one in ((value, error), plain)]
        each.append(
            Subject(
                name,
                array[:, k] - value,
                error,
                plain[1],
                smooth=smooth,
                again=again,
                unseen=(unseen[0], unseen[1]),
            )
        )
    deviation = np.sqrt(p @ (array - p @ array) ** 2)
    return Subjects(each, means.value, means.std_error, deviation)


def _unseen(probability: float, error: float) -> float:
    """How much of an event the draws may not have seen: its error, if few of them carry it."""
    return error if KNOWN * error > min(probability, 1 - probability) else 0.0


def quantiles(
    session: Session, names: Sequence[str], probs: np.ndarray, request: Request
) -> Subjects:
    """Return quantiles of named values: as α moves, the level q goes with −∂P(g < q) / density."""
    found = estimate_quantiles(session, names, probs, request)
    marginals, shape = Marginals.of(session, names), (len(names), len(probs))
    levels = found.value.reshape(shape)
    height, height_off = _density(session, marginals, levels, found.names, request)
    if (flat := ~(height.ravel() > 0)).any():
        bad = list_names([name for name, so in zip(found.names, flat, strict=True) if so])
        raise ValueError(
            f"{bad}: no density is known there, as of whole numbers, and a quantile moves as the "
            "probability below it does, over the density. Ask for the probability of an event, "
            "such as 'x > 3', in its place"
        )
    p, each = session.sample.probabilities, []
    for j, quantity in enumerate(marginals.quantities):
        for i, share in enumerate(probs):
            k = j * len(probs) + i
            event = Event(quantity, (float(levels[j, i]),), (1.0,), 0.0)
            factor = -1 / height[j, i]
            smooth = _along_lines(event, marginals.smooth[j], float(share))
            centred = event.seen - share
            # the level is known as well as it is; what is below it, by as much times the density
            error, plain_error = (
                float(each[k] * height[j, i]) for each in (found.std_error, found.plain_std_error)
            )
            each.append(
                Subject(
                    found.names[k],
                    centred,
                    error,
                    plain_error,
                    factor,
                    smooth,
                    factor_off=float(height_off[j, i]),
                )
            )
    spread = marginals.values - p @ marginals.values
    deviation = np.repeat(np.sqrt(p @ spread**2), len(probs))
    return Subjects(each, found.value, found.std_error, deviation)


def _along_lines(event: Event, marginal: Marginal | None, probability: float) -> Smoother | None:
    """What has the mean of (1 − P(event)) h, conditional means along lines in it: h moves along the
    line as well as the event does."""
    if not isinstance(marginal, Lines):
        return None
    levels, signs = np.array(event.levels), np.array(event.signs)

    def smooth(function: Callable[[Matrix], Matrix], at_draws: Matrix) -> Matrix:
        inside = np.tensordot(marginal.below_times(levels, function), signs, axes=(1, 0))
        return inside + (event.offset - probability) * at_draws

    return smooth


def _mean_along_lines(session: Session, quantity: Quantity, mean: float) -> Smoother | None:
    """What has the mean of (f − mean) h, as conditional means along lines on which f moves."""
    if quantity.at is None or len(session.sample) > MOST_LINES:
        return None
    known, at = quantity, quantity.at

    def smooth(function: Callable[[Matrix], Matrix], at_draws: Matrix) -> Matrix:
        marginal = session.marginal(known)
        if not isinstance(marginal, Lines):
            return (known.values - mean)[:, None] * at_draws
        return marginal.mean_of(lambda points: (at(points) - mean)[:, None] * function(points))

    return smooth


def _density(
    session: Session,
    marginals: Marginals,
    levels: np.ndarray,
    names: Sequence[str],
    request: Request,
) -> tuple[np.ndarray, np.ndarray]:
    """The densities at levels, by control variates where what has them for its mean is known, and
    what they may be off by, of themselves."""
    at = marginals.at(levels, np.full(levels.shape[1], 0.5))
    known = np.isfinite(at.density).all(axis=0) & (at.slope > 0)
    height, off = at.slope.copy(), np.zeros(levels.shape)
    if known.any():
        labels = [f"density at {name}" for name in np.array(names).reshape(levels.shape)[known]]
        means = session.estimate(at.density[:, known], labels, request)
        height[known], off[known] = means.value, means.std_error / np.abs(means.value)
    return height, off
