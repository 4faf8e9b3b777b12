"""Covariances of values and slopes, by control variates for their products.

d/dα E[f] = Cov(f, h) with h = ∂ log π / ∂α. The first step is the controlled means a of f and b of
h. About them, the mean of (f − a)(h − b) is the covariance up to the product of two errors: nothing
in it is of the first order in a or b. So the influences of the product's mean are those of the
covariance, and constants that are this precise do not fit the product to the draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from ..choice import Request
from ..errors import hold_warnings, repeat_warnings
from ..inputs.points import Matrix, Vector
from ..session import Session
from ..statistics.series import covariance, influences_on_mean, standard_error
from .slopes import MOST_PRODUCTS, SlopeBasis, Slopes

# Products that are estimated at once: some thirty arrays of them and the draws are held, 1 GB with
# 4000 draws
_AT_ONCE = 1000
# Gains below which products are tried as conditional means along lines, too. On the eight schools
# products gain 1 to 60, and 3 to 10 times as much so; on normal posteriors they are exact already
_POOR = 100.0
# How many times as large as a normal error its square is, nineteen times in twenty: of the product
# of two errors that are one and the same
_SQUARED = 1.96


Smoother = Callable[[Callable[[Matrix], Matrix], Matrix], Matrix]


class Subject(NamedTuple):
    """A value of which the sensitivity is asked: its name, what it is at the draws less its
    controlled mean, that mean's error and the plain one's, and what a covariance with it is to be
    multiplied by, which may be off by `factor_off` of itself. `unseen` is how much of its
    probability the draws may not have seen, controlled and plain, if few carry it: that may come
    with slopes of any size.

    Values that jump have `smooth`: from a function of points to r numbers, and from what these are
    at the draws, (n, r), to what has the same means as the products with them. Of values that do
    not jump there may be `again`, the same for those products that control variates alone follow
    badly.
    """

    name: str
    centred: Vector
    error: float
    plain_error: float
    factor: float = 1.0
    smooth: Smoother | None = None
    again: Smoother | None = None
    factor_off: float = 0.0
    unseen: tuple[float, float] = (0.0, 0.0)


class Estimates(NamedTuple):
    """Covariances of q values and r components, with the covariance of their errors."""

    value: Float64[np.ndarray, "q r"]
    covariance: Float64[np.ndarray, "q r q r"]

    def along(
        self, mixing: Float64[np.ndarray, "k r"]
    ) -> tuple[Float64[np.ndarray, "q k"], Float64[np.ndarray, "q k"]]:
        """Return covariances with combinations of the components, and their errors."""
        own = np.einsum("arac->arc", self.covariance)
        squares = np.einsum("kr,arc,kc->ak", mixing, own, mixing, optimize=True)
        return self.value @ mixing.T, np.sqrt(np.maximum(squares, 0.0))


class Covariances(NamedTuple):
    """Covariances of q values and k slopes: with control variates and plain, by their r components,
    and what the rest of the slopes adds, (q, k), with its errors."""

    basis: SlopeBasis
    controlled: Estimates
    plain: Estimates
    rest: Float64[np.ndarray, "q k"]
    rest_error: Float64[np.ndarray, "q k"]

    def table(
        self, estimates: Estimates
    ) -> tuple[Float64[np.ndarray, "q k"], Float64[np.ndarray, "q k"]]:
        """Return covariances and their errors, by one of both."""
        value, error = estimates.along(self.basis.mixing)
        return value + self.rest, np.hypot(error, self.rest_error)


def estimate_covariances(
    session: Session, subjects: Sequence[Subject], slopes: Slopes, request: Request
) -> Covariances:
    """Estimate covariances of all values with all slopes: control variates start where the means'
    were tuned, and serve all products."""
    sample = session.sample
    q, p = len(subjects), sample.probabilities
    basis = SlopeBasis.of(slopes.values, p, max(MOST_PRODUCTS // q, 1))
    r = basis.components.shape[1]
    labels = _names(slopes, basis)
    if r == 0:
        nothing = Estimates(np.zeros((q, 0)), np.zeros((q, 0, q, 0)))
        zero = np.zeros((q, len(slopes.names)))
        return Covariances(basis, nothing, nothing, zero, zero)
    with hold_warnings() as caught:
        means = session.estimate(basis.components, labels, request)
    if basis.rest is None:  # which have names that the user knows
        repeat_warnings(caught)
    centred = basis.components - means.value

    def components_at(points: Matrix) -> np.ndarray:
        assert slopes.at is not None
        return basis.at(slopes.at(points)) - means.value

    products = np.empty((len(sample), q, r))
    for a, subject in enumerate(subjects):
        smooth = subject.smooth if slopes.at is not None else None
        product = subject.centred[:, None] * centred
        products[:, a] = subject.factor * (
            product if smooth is None else smooth(components_at, centred)
        )
    flat = products.reshape(len(sample), -1)
    names = [f"{subject.name} with {label}" for subject in subjects for label in labels]
    value, error, influences = _estimate(session, flat, names, request)
    size = np.sqrt(p @ centred**2)

    def leave(plain: bool, of_slopes: np.ndarray) -> np.ndarray:
        """What centring leaves of the second order, and what no draw has seen."""
        each = []
        for one in subjects:
            own = one.plain_error if plain else one.error
            both = _SQUARED * own * of_slopes, one.unseen[int(plain)] * size
            each.append(abs(one.factor) * np.hypot(*both))
        return np.concatenate(each)

    left = leave(False, means.std_error)
    error = np.hypot(error, left)
    columns = np.stack(
        [subject.factor * (subject.centred - p @ subject.centred) for subject in subjects], axis=1
    )
    own = basis.components - p @ basis.components
    plain = (columns[:, :, None] * own[:, None, :]).reshape(len(sample), -1)
    plain_value, plain_influences = influences_on_mean(sample.by_chain(plain), p)
    scale = np.sqrt(p @ plain**2)
    plain_error = standard_error(plain_influences, scale)
    plain_error = np.hypot(plain_error, leave(True, means.plain_std_error))
    if slopes.at is not None:
        poor = (_POOR * error**2 > plain_error**2).reshape(q, r)
        value, error, influences = _along_lines(
            session,
            subjects,
            poor,
            components_at,
            centred,
            names,
            request,
            (value, error, influences),
            left,
        )
    worse = ~(error < plain_error)
    value, error = (np.where(worse, *pair) for pair in ((plain_value, value), (plain_error, error)))
    influences = np.where(worse, plain_influences, influences)
    rest, rest_error = _rest(session, columns, basis)
    return Covariances(
        basis,
        _estimates(value, error, influences, q),
        _estimates(plain_value, plain_error, plain_influences, q),
        rest,
        rest_error,
    )


def _names(slopes: Slopes, basis: SlopeBasis) -> list[str]:
    """What components are called in warnings."""
    if basis.rest is None:
        return [slopes.names[k] for k in np.argmax(basis.mixing != 0, axis=0)]
    return [f"slope {k + 1}" for k in range(basis.components.shape[1])]


def _estimate(
    session: Session, columns: Matrix, names: Sequence[str], request: Request
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means of many columns, their errors, and influences (chain, draw, columns).

    What is to be said of draws, values and slopes has been; tails of a product are longer than
    those of its factors, and what is worse than plain is not taken.
    """
    values, errors, influences = [], [], []
    for first in range(0, columns.shape[1], _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        with hold_warnings():
            found = session.estimate(columns[:, some], names[some], request)
        assert found.traces is not None
        values.append(found.value)
        errors.append(found.std_error)
        influences.append(found.traces.residuals)
    return np.concatenate(values), np.concatenate(errors), np.concatenate(influences, axis=2)


def _along_lines(
    session: Session,
    subjects: Sequence[Subject],
    poor: Bool[np.ndarray, "q r"],
    components_at: Callable[[Matrix], Matrix],
    centred: Matrix,
    names: Sequence[str],
    request: Request,
    found: tuple[np.ndarray, np.ndarray, np.ndarray],
    left: Float64[np.ndarray, " p"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What was found, with conditional means along lines in place of those products whose error
    that makes less; `left` is what centring leaves of the second order."""
    columns, places = list[Vector](), list[int]()
    for a, subject in enumerate(subjects):
        if subject.again is None or not poor[a].any():
            continue
        smooth = subject.factor * subject.again(components_at, centred)
        own = np.flatnonzero(poor[a])
        columns += list(smooth[:, own].T)
        places += [a * poor.shape[1] + int(k) for k in own]
    if not places:
        return found
    value, error, influences = (one.copy() for one in found)
    other = _estimate(session, np.stack(columns, axis=1), [names[k] for k in places], request)
    own_error = np.hypot(other[1], left[places])
    less = own_error < error[places]
    into = np.array(places)[less]
    value[into], error[into] = other[0][less], own_error[less]
    influences[..., into] = other[2][..., less]
    return value, error, influences


def _estimates(value: np.ndarray, error: np.ndarray, influences: np.ndarray, q: int) -> Estimates:
    joint = covariance(influences, error)
    r = len(value) // q
    return Estimates(value.reshape(q, r), joint.reshape(q, r, q, r))


def _rest(session: Session, columns: Matrix, basis: SlopeBasis) -> tuple[np.ndarray, np.ndarray]:
    """Plain covariances with what components leave of the slopes, and their errors."""
    q, k, sample = columns.shape[1], basis.mixing.shape[0], session.sample
    value, error = np.zeros((q, k)), np.zeros((q, k))
    if basis.rest is None:
        return value, error
    p = sample.probabilities
    for a in range(q):
        series = sample.by_chain(columns[:, a, None] * basis.rest)
        value[a], influences = influences_on_mean(series, p)
        error[a] = standard_error(influences, np.zeros(k))
    return value, error
