"""estimate(): the one call."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from .checks import check
from .errors import NumericalWarning, SampleWarning, ScoreWarning, ZerovarWarning
from .families import Family, Polynomial
from .fitting import fit, fit_rows
from .integrands import as_values
from .objectives import Objective
from .result import Estimate
from .sample import Sample
from .solvers import Solver
from .splits import InSample, Split, blocks, in_sample
from .std_errors import autocorrelation_time, covariance, mean_and_error, tail_share

# Chains whose draws are nearly independent need no blocks; others are left out in blocks of this many autocorrelation times.
_INDEPENDENT = 1.5
_BLOCK_TIMES = 4
_WATCHED = 25
# Share of the variance of f − g in its largest hundredth. On Gaussian test problems errors were right (spread of z below 1.25)
# up to a share of one half and up to ten times too small beyond nine tenths.
_HEAVY_TAIL = 0.75
_FEW = 30
_APART = 6.0
_SAFE_SIZE = 500  # effective draws from which a rich family is not warned of


def estimate(
    draws: Any,
    scores: Any,
    values: Any = None,
    *,
    family: Family | None = None,
    objective: Objective | None = None,
    solver: Solver | None = None,
    split: Split | None = None,
    names: Sequence[str] | None = None,
    log_weights: Any = None,
    standardise: bool = True,
) -> Estimate:
    """Estimate the means of integrands with control variates, and say how precise the answer is.

    draws, scores: (n, d), one chain in order, or (chain, draw, d); scores are ∇log π at the draws, on the draws' scale.
    values: the integrands at the draws, (n,), (n, q), (chain, draw), (chain, draw, q), a dict of name → such arrays, or
        a function of one draw (d,), vmapped; by default the draws themselves.
    family: default `Polynomial(2)`, or `Polynomial(1)` where there are fewer than five draws a term.
    objective: default `LeastSquares()`. solver: default `Exact()`.
    split: default `in_sample()`, whose value is the fitted intercept and whose error comes from leave-out residuals.
    log_weights: unnormalised log importance weights, (n,) or (chain, draw).

    Problems with the draws, scores or fit are warned of (`ZerovarWarning`) and kept in `estimate.warnings`.
    """
    sample = Sample(draws, scores, log_weights)
    array, found = as_values(sample.draws if values is None else values, sample, names)
    split = in_sample() if split is None else split
    if not isinstance(split, Split):
        raise ValueError(f"split must be in_sample(), holdout(fraction) or cross_fit(k); got {split!r}")
    family = _default_family(sample) if family is None else family
    notes = _Notes()

    sample.rows().merged(array)  # equal draws with other scores or values are an error, before anything is judged
    verdict = check(sample)
    if not verdict.ok:
        notes.add(
            ScoreWarning,
            "The scores do not agree with the draws. " + verdict.diagnosis + " zv.check(sample) says more.",
        )
    scale = np.abs(array).max(axis=0)
    constant = np.ptp(array, axis=0) == 0
    if constant.any():
        which = ", ".join(name for name, flat in zip(found, constant, strict=True) if flat)
        notes.add(SampleWarning, f"Constant integrand: {which}. Its mean is that constant; there is nothing to estimate.")

    plain, plain_error, _ = mean_and_error(sample.by_chain(array), sample.probabilities, scale)
    time = _slowest_time(sample, array)
    with notes.collecting():
        if isinstance(split, InSample):
            value, series, rows, stats, family = _in_sample(family, sample, array, objective, solver, standardise, time)
        else:
            value, series, rows, stats = _out_of_fold(family, sample, array, objective, solver, standardise, split)
    probabilities = sample.probabilities[rows]
    mean, error, influence = mean_and_error(series, probabilities / probabilities.sum(), scale)
    if value is not None:
        # The mean of the leave-out residuals estimates how far the intercept itself is off. On nine real posteriors this bound
        # lifts the coverage of 1.96 errors by kernel families from 88 % to 96 %, and leaves polynomials as they are.
        error = np.maximum(error, np.abs(mean))
    _judge(notes, sample, found, series, stats, time)
    value = mean if value is None else value
    apart = np.abs(value - plain) / np.hypot(plain_error, error)
    if apart.max() > _APART:
        notes.add(
            SampleWarning,
            f"For {found[int(apart.argmax())]} the answers with and without control variates are {apart.max():.0f} of their errors "
            "apart: one of them is wrong. Are the scores those of these draws, and have the chains converged?",
        )
    return Estimate(
        names=found,
        value=value,
        std_error=error,
        plain_value=plain,
        plain_std_error=plain_error,
        covariance=covariance(influence, error),
        num_draws=len(sample),
        family=family,
        split=split.describe(),
        warnings=tuple(notes.texts),
        stats=stats | {"autocorrelation_time": time},
    )


def _in_sample(family, sample, values, objective, solver, standardise, time):
    fitted = fit(family, sample, values, objective, solver, standardise)
    independent = time < _INDEPENDENT
    groups = None if independent else blocks(sample, int(np.ceil(_BLOCK_TIMES * time)))
    residuals = fitted.leave_out(groups)
    stats = fitted.stats | {"left_out": "single draws" if groups is None else f"{len(groups)} blocks"}
    return fitted.intercept, sample.by_chain(residuals), np.arange(len(sample)), stats, fitted.family


def _out_of_fold(family, sample, values, objective, solver, standardise, split):
    folds = split.folds(sample)
    residuals = np.full_like(values, np.nan)
    stats: dict[str, Any] = {}
    for fitting, estimating in folds:
        fitted = fit_rows(family, sample.take(fitting), values[fitting], objective, solver, standardise)
        residuals[estimating] = values[estimating] - fitted.at(sample.draws[estimating], sample.scores[estimating])
        stats = fitted.stats
    rows = np.flatnonzero(~np.isnan(residuals[:, 0]))
    return None, residuals[rows].reshape(sample.num_chains, -1, values.shape[1]), rows, stats


def _default_family(sample: Sample) -> Family:
    d = sample.dim
    return Polynomial(2) if 5 * d * (d + 3) / 2 <= len(sample) else Polynomial(1)


def _slowest_time(sample: Sample, values: np.ndarray) -> float:
    """The longest autocorrelation time among the integrands and (at most a few dozen of) the coordinates."""
    watched = np.unique(np.linspace(0, sample.dim - 1, min(sample.dim, _WATCHED)).astype(int))
    both = np.concatenate([sample.draws[:, watched], values[:, : 2 * _WATCHED]], axis=1)
    return autocorrelation_time(sample.by_chain(both))


def _judge(notes: _Notes, sample: Sample, names: Sequence[str], series: np.ndarray, stats: dict[str, Any], time: float) -> None:
    effective = len(sample) / time
    unknowns = stats.get("unknowns", 0)
    if time >= _INDEPENDENT and unknowns > effective / 2 and effective < _SAFE_SIZE:
        notes.add(
            SampleWarning,
            f"The family is rich for this chain: {unknowns} unknowns are fitted to {len(sample)} draws that are worth about "
            f"{effective:.0f} independent ones, so the standard error can be far too small. "
            "Use a longer chain, Polynomial(1) or Polynomial(2), or a larger Ridge.",
        )
    elif stats.get("form", "").startswith("primal") and unknowns > stats["distinct_draws"] / 2:
        notes.add(
            SampleWarning,
            f"Few draws for this family: {unknowns} terms are fitted to {stats['distinct_draws']} distinct draws. "
            "Use more draws, a lower degree, or a Ridge penalty.",
        )
    if effective < _FEW:
        notes.add(
            SampleWarning,
            f"The draws are worth about {effective:.0f} independent ones: too few to know a standard error. Draw more.",
        )
    share = tail_share(series)
    if (share > _HEAVY_TAIL).any():
        which = [name for name, heavy in zip(names, share > _HEAVY_TAIL, strict=True) if heavy]
        shown = ", ".join(which[:5]) + (f" and {len(which) - 5} more" if len(which) > 5 else "")
        notes.add(
            SampleWarning,
            f"Heavy tails: one draw in a hundred carries {share.max():.0%} of the variance of f − g ({shown}), so the standard "
            "error is itself uncertain and probably too small. A larger Ridge, or adding Polynomial(2), tames the tails of g.",
        )
    repeated = stats["draws"] - stats["distinct_draws"]
    if repeated > 0.5 * stats["draws"]:
        notes.add(SampleWarning, f"{repeated} of {stats['draws']} fitting draws repeat an earlier one (merged for the fit).")


class _Notes:
    """Warnings, given to the user and kept with the answer."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, kind: type[ZerovarWarning], text: str) -> None:
        if text not in self.texts:
            self.texts.append(text)
            warnings.warn(text, kind, stacklevel=4)

    def collecting(self) -> _Collector:
        return _Collector(self)


class _Collector(warnings.catch_warnings):
    """Collect the numerical warnings of several folds and give each once."""

    def __init__(self, notes: _Notes):
        super().__init__(record=True)
        self._notes = notes

    def __enter__(self):
        self._caught = super().__enter__()
        warnings.simplefilter("always", NumericalWarning)
        return self._caught

    def __exit__(self, *error):
        super().__exit__(*error)
        for caught in self._caught or ():
            if issubclass(caught.category, NumericalWarning):
                self._notes.add(NumericalWarning, str(caught.message))
            else:
                warnings.warn_explicit(caught.message, caught.category, caught.filename, caught.lineno)
