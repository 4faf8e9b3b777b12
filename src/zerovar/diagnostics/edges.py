"""Densities that end with a jump: draws stop where their scores say that they should go on.

Of k independent draws beyond some point of a direction, none lies beyond the outermost, M, with
probability (1 + R)^−k, where R is the mass beyond M over the mass up to M. Scores know R: along
y = v·x the marginal density has the slope E[w·s | y], for any w with w·v = 1, and the best such w
is that of a regression of x on y. So its logarithm is what scores add up to, up to M, and beyond M
it falls on as it did.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from ..inputs.points import DRAWS_PER_DIMENSION, find_distinct
from ..inputs.sample import Sample
from ..statistics.series import INDEPENDENT

# Outermost draws of which slopes are read, a tenth of all at most. Of a thousand draws of N(0, 1)
# cut at 2.5, six are missing. With 100 four in five such samples are found, with 50 three in five.
_OUTERMOST = 100
# Standard errors of the outermost slope that count against a find. With 2 noise alone makes one of
# five samples of a banana look cut, and where scores do not scatter 4 costs nothing.
_SURE = 4.0


class Edge(NamedTuple):
    """Where a density ends with a jump: at the low or the high end of a coordinate, or, if `mixed`,
    of a principal direction in which this coordinate counts most; how many draws are missing beyond
    the outermost, which is `at`; and the p-value, times the number of all ends."""

    coordinate: int
    mixed: bool
    high: bool
    at: float
    missing: float
    p_value: float


class _Ends(NamedTuple):
    """Of m directions: the outermost draws, logarithms of p-values, and how many draws are missing
    beyond."""

    at: np.ndarray
    log_p: np.ndarray
    missing: np.ndarray


def find_edge(
    sample: Sample, autocorrelation: float, level: float, trusted: bool = True
) -> Edge | None:
    """Return the end that is least likely one of a density that goes on; None if all may be so at
    this level, or if there are too few draws to tell.

    Draws of a slow chain count by its autocorrelation time. Importance weights are of other draws,
    and tell nothing. Scores that are not `trusted` are shifted and scaled first.
    """
    first, _ = find_distinct(sample.draws)
    if sample.weights is not None or len(first) < 2 * _OUTERMOST:
        return None
    count = max(autocorrelation, 1.0) if autocorrelation >= INDEPENDENT else 1.0
    x, s = sample.draws[first], sample.scores[first]
    ends = []
    for loadings, y, slope in _directions(x, s, trusted):
        for high in (False, True):
            sign = 1.0 if high else -1.0
            found = _beyond(sign * y, sign * slope)
            j = int(found.log_p.argmin())
            log_p, missing = found.log_p[j] / count, found.missing[j] / count
            coordinate, at = int(np.abs(loadings[:, j]).argmax()), sign * found.at[j]
            mixed = bool(np.count_nonzero(loadings[:, j]) > 1)
            ends.append(Edge(coordinate, mixed, high, float(at), float(missing), float(log_p)))
    worst = min(ends, key=lambda end: end.p_value)
    p = sample.dim * len(ends) * np.exp(worst.p_value)
    return worst._replace(p_value=float(min(p, 1.0))) if p < level else None


def _directions(
    x: Float64[np.ndarray, "n d"], s: Float64[np.ndarray, "n d"], trusted: bool
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield directions (d, m) by their columns, draws along them (n, m) and their slopes (n, m):
    coordinates, and principal ones where there are draws enough to know them."""
    d, centred, deviation = x.shape[1], x - x.mean(axis=0), x.std(axis=0)
    unit, slope = centred / deviation, s * deviation
    correlation = unit.T @ unit / len(x)
    along = slope @ correlation
    yield np.eye(d), x, (along if trusted else _mend(unit, along)) / deviation
    if d > 1 and len(x) >= DRAWS_PER_DIMENSION * d:
        vectors = np.linalg.eigh(correlation)[1]
        yield vectors, unit @ vectors, _mend(unit @ vectors, slope @ vectors)


def _mend(y: Float64[np.ndarray, "n m"], slope: Float64[np.ndarray, "n m"]) -> np.ndarray:
    """Shift and scale slopes so that E[slope] = 0 and E[y slope] = −1, of centred y: scores that
    are wrong in that way are another matter, and principal directions are those in which the draws
    happen to be narrow. Slopes whose scale is noise, as where one mode is far narrower than others,
    tell nothing and are zero."""
    slope = slope - slope.mean(axis=0)
    product = -y * slope
    scale, error = product.mean(axis=0), product.std(axis=0) / np.sqrt(len(y))
    return slope / np.where(scale > _SURE * error, scale, np.inf)


def _beyond(y: Float64[np.ndarray, "n m"], slope: Float64[np.ndarray, "n m"]) -> _Ends:
    """Of the high end of every column. a = y − median, t = log(a / a of the outermost), and γ =
    −slope · a are the coordinates in which power laws (γ constant), exponentials (γ grows as a) and
    normals (as a²) all are smooth."""
    count = min(_OUTERMOST, len(y) // 10)
    rows = np.argpartition(-y, count, axis=0)[: count + 1]
    order = np.argsort(-np.take_along_axis(y, rows, axis=0), axis=0)
    rows = np.take_along_axis(rows, order, axis=0)
    at = np.take_along_axis(y, rows[:1], axis=0)[0]
    a = np.take_along_axis(y, rows, axis=0) - np.median(y, axis=0)
    falls = -np.take_along_axis(slope, rows, axis=0)
    told = (a[count] > 0) & (a[count] < a[0]) & np.any(falls != 0, axis=0)
    a = np.where(told, a, np.linspace(2, 1, count + 1)[:, None])
    t = np.log(a / a[0])
    # the noise of slopes is alike in a long tail, or that of γ: whichever tells less
    log_p = np.maximum(*(_log_share(t, falls * a, noise) for noise in (np.ones_like(a), a / a[0])))
    log_p = np.where(told, count * log_p, 0.0)
    return _Ends(at, log_p, count * np.expm1(-log_p / count))


def _log_share(
    t: Float64[np.ndarray, "k m"], gamma: Float64[np.ndarray, "k m"], noise: np.ndarray
) -> Float64[np.ndarray, " m"]:
    """The logarithm of the share of the mass beyond the last of the draws that lies up to the
    outermost: −log(1 + R).

    γ is a parabola in t, fitted with this noise, and at the outermost draw as much larger as its
    leave-one-out residuals allow. Beyond, it grows on in proportion to itself, or not at all.
    """
    powers = np.stack([np.ones_like(t), t, t**2], axis=2)
    basis = powers / noise[..., None]
    inverse = np.linalg.pinv(np.einsum("kma,kmb->mab", basis, basis), hermitian=True)
    dual = np.einsum("mab,kmb->kma", inverse, basis)
    level, slope, bend = fit = np.einsum("kma,km->am", dual, gamma / noise)
    left = np.maximum(1 - np.einsum("kma,kma->km", dual, basis), np.finfo(float).eps)
    residual = (gamma - np.einsum("kma,am->km", powers, fit)) / noise / left
    level = level + _SURE * np.sqrt(np.sum((dual[:, :, 0] * residual) ** 2, axis=0))
    v = np.linspace(0, 1, 201)[:, None]
    inner = v * t[-1]
    log_inside = inner - level * inner - slope * inner**2 / 2 - bend * inner**3 / 3
    inside = np.trapezoid(np.exp(np.clip(log_inside, -600, 600)), -inner, axis=0)
    grows = np.clip(slope / np.maximum(level, 1e-9), 1e-9, 10)
    outer = 60 * v**3  # dense where most of the mass is
    log_beyond = outer - level * np.expm1(np.minimum(grows * outer, 300)) / grows
    beyond = np.trapezoid(np.exp(np.minimum(log_beyond, 600)), outer, axis=0)
    return -np.log1p(beyond / inside)
