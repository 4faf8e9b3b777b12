"""check(): are these the scores of these draws?

For scores s of draws x with mean m, E[s] = 0 and E[(x − m)sᵀ] = −I: Stein's identity for linear vector fields, which holds
every polynomial potential up to degree 2. Each entry is tested by batch means (so autocorrelation counts) in raw coordinates,
where a wrong coordinate can be named, and in standardised ones, where tests are sharp although parameters are correlated.
Bonferroni's bound over all entries keeps false alarms near `level`, a little above it where batch means are not yet normal:
the default of 0.001 gives fewer than one in a hundred on all that we measured (`tests/test_checks.py`). What fails decides
what is said.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from ..errors import listed
from ..points import Points, Standardisation
from ..sample import Posterior, Sample, coordinate
from ..std_errors import autocorrelation_time, some_columns
from ..tails import heavy_scores

_BATCHES = 30
_WEIGHTED_BATCHES = 12  # unequal weights leave fewer draws a batch that count, and means further from normal
_ENOUGH_BATCHES = 8


@dataclasses.dataclass(frozen=True)
class Check:
    """What `check` found. `ok` is the verdict, `diagnosis` the probable cause in words, `details` the entries that failed.

    `untested` are coordinates whose scores have tails so heavy that their means may not exist, whatever the scores are of.
    """

    ok: bool
    diagnosis: str
    details: tuple[str, ...]
    p_value: float
    untested: tuple[str, ...] = ()

    def __str__(self) -> str:
        verdict = "The scores agree with the draws" if self.ok else "The scores do not agree with the draws"
        return "\n".join(
            [
                f"{verdict} (smallest p-value {self.p_value:.2g}).",
                *([self.diagnosis] if self.diagnosis else []),
                *self.details,
                *(
                    [f"Not tested, for the heavy tails of their scores: {listed(list(self.untested))}."]
                    if self.untested
                    else []
                ),
            ]
        )


def check(sample: Sample | Posterior, level: float = 0.001) -> Check:
    """Test Stein's identities on `sample`; `level` is the nominal probability that a right sample fails."""
    sample = sample.sample if isinstance(sample, Posterior) else sample
    if not isinstance(sample, Sample):
        raise ValueError(f"sample must be a zv.Sample(draws, scores) or a Posterior; got {type(sample).__name__}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1; got {level!r}")
    heavy = heavy_scores(sample.by_chain(sample.scores))
    if not heavy.any():
        return _tested(sample, level)
    untested = tuple(coordinate(sample.names, j) for j in np.flatnonzero(heavy))
    if heavy.all():
        return Check(True, "Nothing can be said of these scores.", (), 1.0, untested)
    return dataclasses.replace(_tested(sample.along(~heavy), level), untested=untested)


def _tested(sample: Sample, level: float) -> Check:
    data = _Data.of(sample)
    found, early = _identities(data), _beginning(data)
    smallest = min(1.0, 2 * min(found.adjusted, early))
    if smallest >= level:
        few = data.x.shape[0] * (data.x.shape[1] // data.batch) < _ENOUGH_BATCHES
        return Check(True, "There are too few effective draws to tell much." if few else "", (), smallest)
    failing = [j for j in range(sample.dim) if min(found.mean_p[j], found.diagonal_p[j]) * found.tests < level]
    return Check(False, _diagnosis(sample, data, found, early, failing, level), _details(sample, found, failing), smallest)


class _Data(NamedTuple):
    """Chains of raw and standardised points (chain, draw, d), weights n·p (chain, draw), and the batch length to use."""

    x: np.ndarray
    s: np.ndarray
    z: np.ndarray
    t: np.ndarray
    weights: np.ndarray
    batch: int

    @staticmethod
    def of(sample: Sample) -> _Data:
        points = sample.points()
        z, t = _standardised(sample, points)
        mean = points.probabilities @ points.x
        shape = sample.by_chain
        draws = len(sample) // sample.num_chains
        # measured on the second half of each chain: a burn-in looks like autocorrelation, and would hide itself
        late = shape(np.concatenate([some_columns(z), some_columns(t)], axis=1))[:, draws // 2 :]
        slowest = autocorrelation_time(late)
        # batches of at least five autocorrelation times, so that their means are nearly independent; never fewer than four
        batches = _BATCHES if sample.weights is None else _WEIGHTED_BATCHES
        batch = int(max(len(sample) // batches, np.ceil(5 * slowest)))
        batch = min(batch, draws, max(len(sample) // 4, 1))
        return _Data(
            shape(points.x - mean),
            shape(points.s),
            shape(z),
            shape(t),
            shape(len(sample) * points.probabilities),
            max(batch, 1),
        )

    def from_draw(self, start: int) -> _Data:
        x, s, z, t, weights = (array[:, start:] for array in (self.x, self.s, self.z, self.t, self.weights))
        return _Data(x, s, z, t, weights, min(self.batch, x.shape[1]))


def _standardised(sample: Sample, points: Points) -> tuple[np.ndarray, np.ndarray]:
    """Draws and scores in standardised coordinates, (n, d).

    Standardising draws by their own covariance moves the diagonal of mean ztᵀ by up to d / n, which n draws can see where d is
    more than a fraction of √n. There every other tenth of a chain is standardised by the tenths between them: long enough to be
    nearly independent, and short enough that a chain which is stuck for a while moves in both.
    """
    whole = Standardisation.of(points)  # refuses draws without a density, however they are standardised
    if 16 * sample.dim**2 < len(sample):
        return whole(points.x, points.s)
    draws = len(sample) // sample.num_chains
    odd = np.tile(min(10, draws) * np.arange(draws) // draws % 2 == 1, sample.num_chains)
    z, t = np.empty_like(points.x), np.empty_like(points.s)
    for part in (odd, ~odd):
        others = Standardisation.of(sample.points(np.flatnonzero(~part)))
        z[part], t[part] = others(points.x[part], points.s[part])
    return z, t


class _Found(NamedTuple):
    """Estimates and p-values of E[s] (d,) and diag E[(x − m)sᵀ] (d,) in raw coordinates, and the smallest p-value of all."""

    mean: np.ndarray
    mean_p: np.ndarray
    diagonal: np.ndarray
    diagonal_p: np.ndarray
    trace: float  # of E[ztᵀ]/d in standardised coordinates: −1 if all is well
    trace_error: float
    trace_p: float
    smallest: float
    tests: int

    @property
    def adjusted(self) -> float:
        """Half of the level goes to the trace, the sharpest single test of a wrong sign, scale or order; half to all others."""
        return min(1.0, 2 * min(self.trace_p, self.smallest * self.tests))


def _identities(data: _Data) -> _Found:
    d = data.x.shape[-1]
    eye = np.eye(d)
    # one array (b, d, d) at a time, in place: in d = 2000 each has more than a gigabyte
    raw_mean, products = _batch_means(data.x, data.s, data.weights, data.batch)
    diagonal = np.diagonal(products, axis1=1, axis2=2).mean(axis=0)
    products += eye
    mean_p, product_p = _p_values(raw_mean), _p_values(products)
    del products
    std_mean, products = _batch_means(data.z, data.t, data.weights, data.batch)
    traces = np.trace(products, axis1=1, axis2=2) / d
    products += eye
    every = [mean_p, product_p, _p_values(std_mean), _p_values(products)]
    del products
    trace_p = _p_values(traces[:, None] + 1.0)
    return _Found(
        raw_mean.mean(axis=0),
        mean_p,
        diagonal,
        np.diagonal(product_p),
        float(traces.mean()),
        float(traces.std(ddof=1) / np.sqrt(len(traces))),
        float(trace_p[0]),
        float(min(p.min() for p in every)),
        sum(p.size for p in every),
    )


def _batch_means(x: np.ndarray, s: np.ndarray, weights: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Means of s (b, d) and of x sᵀ (b, d, d) over contiguous batches within chains."""
    chains, draws, d = x.shape
    count = draws // length
    skip = draws - count * length  # a remainder at the start, where a chain is least to be trusted anyway
    x, s = (array[:, skip:].reshape(chains * count, length, d) for array in (x, s * weights[..., None]))
    products = np.matmul(x.transpose(0, 2, 1), s)
    products /= length
    return s.mean(axis=1), products


def _p_values(batches: Float64[np.ndarray, "b ..."]) -> np.ndarray:
    """Two-sided p-values that the mean over batches is zero."""
    count = len(batches)
    if count < 2:
        return np.ones(batches.shape[1:])
    error = batches.std(axis=0, ddof=1) / np.sqrt(count)
    mean = batches.mean(axis=0)
    statistic = np.divide(np.abs(mean), error, out=np.where(np.abs(mean) > 1e-12, np.inf, 0.0), where=error > 0)
    return _tails(statistic, count - 1)


def _tails(statistic: np.ndarray, freedom: int) -> np.ndarray:
    """Both, of Student's t beyond a positive statistic."""
    from scipy.special import stdtr  # imported when used, as others are that take long

    return 2 * stdtr(freedom, -statistic)


def _diagnosis(sample: Sample, data: _Data, found: _Found, early: float, failing: list[int], level: float) -> str:
    """The most probable cause, from the most specific test to the least."""
    if found.trace > 0 and _scaled(data, -1.0).adjusted >= level:
        return "The sign is flipped: these are gradients of the negative log density (a potential energy). Pass −scores."
    if early < level <= _identities(data.from_draw(data.x.shape[1] // 4)).adjusted:
        return "Only the beginning of the chains disagrees: burn-in was probably not removed. Drop the warm-up draws."
    if abs(found.trace) < max(4 * found.trace_error, 0.1):
        return (
            "Scores and draws are unrelated: the rows are probably misaligned (another order, a shift by one, "
            "thinned differently, or chains stacked along another axis)."
        )
    if found.trace < 0 and abs(found.trace + 1) > 4 * found.trace_error and _scaled(data, -found.trace).adjusted >= level:
        return f"The scores are {-found.trace:.3g} times too large: a tempered, scaled or mini-batch log density?"
    if len(failing) < sample.dim or sample.dim == 1:
        where = listed([coordinate(sample.names, j) for j in failing])
        offset = [j for j in failing if found.mean_p[j] * found.tests < level <= found.diagonal_p[j] * found.tests]
        if offset and len(offset) == len(failing):
            return (
                f"In {where} the scores are off by a nearly constant amount: a Jacobian term is "
                "probably missing (for a positive parameter drawn on the log scale the gradient of log τ adds 1). "
                "Use the gradient of the log density of the unconstrained parameters."
            )
        if failing:
            return (
                f"In {where} the scores do not belong to the scale of the draws: they are probably "
                "derivatives with respect to the constrained parameter, or lack its Jacobian. Draws and scores must both be "
                "on the unconstrained scale."
            )
    return "They may be gradients of another density, on another scale (constrained, not unconstrained), or of other draws."


def _beginning(data: _Data) -> float:
    """The smallest adjusted p-value that the first quarter of the chains meets the identities.

    Its batches are held against the scatter of the later ones: their own scatter grows with a drift and would hide it.
    """
    quarter = data.x.shape[1] // 4
    if quarter < data.batch:
        return 1.0
    count, draws = quarter // data.batch, data.x.shape[1]
    means, products = _batch_means(data.z, data.t, data.weights, data.batch)
    products = products + np.eye(data.z.shape[-1])
    first = np.arange(len(means)) % (draws // data.batch) < count  # of each chain
    ps = []
    for batches in (means, products):
        late = batches[~first]
        error = late.std(axis=0, ddof=1) / np.sqrt(first.sum())
        statistic = np.abs(batches[first].mean(axis=0)) / np.maximum(error, np.finfo(float).tiny)
        ps.append(_tails(statistic, len(late) - 1).ravel())
    together = np.concatenate(ps)
    return float(min(1.0, together.min() * together.size))


def _scaled(data: _Data, factor: float) -> _Found:
    """What would be found if the scores were these divided by `factor`."""
    return _identities(data._replace(s=data.s / factor, t=data.t / factor))


def _details(sample: Sample, found: _Found, failing: list[int]) -> tuple[str, ...]:
    lines = [
        f"{coordinate(sample.names, j)}: mean score {found.mean[j]:.3g} (should be 0), "
        f"mean of (x − m)·score {found.diagonal[j]:.3g} (should be −1)"
        for j in failing[:5]
    ]
    if len(failing) > 5:
        lines.append(f"… and {len(failing) - 5} more coordinates")
    if not failing:
        lines.append(
            "Over all coordinates, standardised: "
            f"mean of z·score / d is {found.trace:.3g} ± {found.trace_error:.2g} (should be −1)"
        )
    return tuple(lines)
