"""estimate() of chunked draws: one pass of sums over the chunks, then everything else from these.

Each chunk gives, for every part of the split that it touches, the second moments of [1, features,
integrands], and for every batch of draws the first ones. Fits of all folds are small solves: the
moments of the other folds, added. As f − g is linear in the features, its sum over a batch comes
from the batch's first moments, so that residuals need no second pass over the draws; and about four
thousand batch means carry the standard errors, as the chain of single draws does in memory.

What is trained, is trained before, fold by fold on windows of the chunks; in the pass g itself then
takes the place of features.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from ..choice import Automatic, Request
from ..choice.defaults import streamed_polynomial
from ..diagnostics import check_sample
from ..families import Family, settle
from ..inference import rules
from ..inference.answer import Answer, mean_answer
from ..inference.cautions import Cautions
from ..inference.conclude import conclude, describe_settings
from ..inference.facts import Digits, Facts, ScoreFacts, some_names
from ..inference.splits import Contiguous, Split, cross_fit
from ..inputs.points import FittingDraws, Standardisation
from ..inputs.sample import Posterior
from ..objectives import LeastSquares
from ..output import Estimate
from ..solvers import FitStats, default_streamed_solver
from ..solvers.algebra.memory import SAMPLE
from ..statistics.series import influences_on_mean, standard_error
from ..statistics.tails import heaviness
from .arrays import Chunks
from .fits import PartFits, StreamedTask, check_streamed, fit_parts
from .rows import Function, View
from .sums import Sums


def estimate_chunked(
    posterior: Posterior, names: Sequence[str] | None, request: Request
) -> Estimate:
    """`estimate` for chunked arrays, with the same arguments and an answer of the same kind,
    without traces.

    A pilot of about 20 000 draws chooses the coordinates, and whatever else a family leaves open,
    and is what the scores are checked on. Everything that is estimated comes from all draws.
    """
    started = time.perf_counter()
    if not posterior.space.is_flat:
        raise ValueError(
            f"chunked draws must live in Rᵈ, not on a {posterior.space.describe()}: read them into "
            "memory, or thin them"
        )
    family = request.family
    objective = LeastSquares() if request.objective is None else request.objective
    split = cross_fit() if request.split is None else _check_split(request.split)
    chunks = Chunks.of(posterior.draws, posterior.scores, posterior.values, posterior.log_weights)
    chains, length, d = chunks.shape
    if family is None or isinstance(family, Automatic):
        family = _streamed_family(family or Automatic(), len(chunks), d)
    if not isinstance(family, Family):
        raise ValueError(
            f"family must be a family such as Polynomial(2) or Network(); got {family!r}"
        )
    family.check(d)
    solver = default_streamed_solver(family) if request.solver is None else request.solver
    check_streamed(solver, family, objective, d)
    parts, fitting = split.parts(length)

    pilot = chunks.pilot(names, posterior.names)
    sample = pilot.sample.replace(from_model=posterior.from_model)
    draws = FittingDraws(sample.points(), request.standardise)
    standardisation = draws.standardisation(family.keeps)
    assert isinstance(standardisation, Standardisation)
    points = standardisation.points(draws.points)
    centre = points.probabilities @ pilot.values
    size = np.abs(pilot.values - centre).max(axis=0)
    unit = np.where(size > 0, size, 1.0)
    function = None if chunks.function is None else Function(uuid.uuid4().hex, chunks.function)
    view = View(
        standardisation, function, list(chunks.value_blocks), centre, unit, pilot.log_weight, parts
    )
    edges = _batches(parts, chains)
    resolved = settle(family, points, pilot.values)
    work = StreamedTask(
        chunks, view, edges, fitting, pilot, points, resolved, objective, request.seed
    )
    prepared = time.perf_counter()

    fits = fit_parts(work, solver)
    series = _Series.of(fits, chains, len(edges) - 1, len(pilot.names))
    answer = series.answer(fits, parts, edges)
    # repeated ones are not merged
    told: dict[str, Any] = {"draws": len(chunks), "distinct_draws": len(chunks)}
    told |= {"standardisation": standardisation.kind, "pilot_draws": len(sample)}
    told |= {"chunks": math.prod(chunks.draws.numblocks), "batches": chains * (len(edges) - 1)}
    told |= {"pilot_seconds": prepared - started, "seconds": time.perf_counter() - started}
    cautions = Cautions()
    cautions.add_divergences(posterior.divergences, len(chunks))
    verdict = check_sample(sample)
    cautions.add_check(verdict)
    of_pilot = influences_on_mean(sample.by_chain(pilot.values), sample.probabilities)[1]
    weighted = sample.weights is not None
    slowest, kish = series.slowest(fits.sums)
    facts = Facts(
        names=pilot.names,
        plain=series.plain.rescale(centre, unit),
        low=fits.sums.low,
        high=fits.sums.high,
        events=pilot.events,
        tail=heaviness(of_pilot, sample.points(), float(len(sample)), weighted),
        chains=chains,
        length=length,
        autocorrelation=slowest,
        kish=kish,
        r_hat=series.r_hats(fits.sums),
        coordinates=some_names(sample),
        digits=Digits.of(sample, pilot.values, len(chunks)),
        scores=ScoreFacts.of(sample, verdict, pilot.values, request.score_error),
    )
    answer = dataclasses.replace(
        answer.rescale(centre, unit), stats=answer.stats | told, family=family
    )
    shape = {"chains": chains, "draws": length, "dimensions": d}
    asked = describe_settings(sample, pilot.values, **request.describe()) | shape
    return conclude(
        answer,
        facts,
        rules.ON_DISK,
        cautions,
        split=split.describe(),
        settings=asked,
        chosen=request.automatic is not None,
    )


def _streamed_family(choice: Automatic, n: int, d: int) -> Family:
    """The family that an automatic choice comes down to: one polynomial, by the numbers of its
    policy."""
    if choice.also:
        families = ", ".join(family.describe() for family in choice.also)
        raise ValueError(
            f"Automatic(also=…) compares families on draws in memory; chunked draws are fitted by "
            f"one family. Give it as family=, in place of also={families}"
        )
    return streamed_polynomial(n, d, choice.policy)


def _check_split(split: Any) -> Contiguous:
    """Return a split of chunked draws, or raise a ValueError for what is none."""
    if isinstance(split, Contiguous):
        return split
    if isinstance(split, Split):
        raise ValueError(
            f"chunked draws cannot be estimated {split.describe()}: leave-out residuals need all "
            "features of all draws at "
            "once. Use split=cross_fit(k), which costs nothing more here, or holdout(fraction)"
        )
    raise ValueError(
        f"split must be holdout(fraction) or cross_fit(k) for chunked draws; got {split!r}"
    )


def _batches(parts: np.ndarray, chains: int) -> np.ndarray:
    """Return edges of batches of nearly one length, each within one part: about four thousand in
    all, or single draws."""
    edges = [0]
    for first, last in itertools.pairwise(parts.tolist()):
        wanted = max(round(SAMPLE / chains * (last - first) / parts[-1]), 2)
        edges += (
            np.linspace(first, last, min(wanted, last - first) + 1).round().astype(int)[1:].tolist()
        )
    return np.array(edges)


class _Series(NamedTuple):
    """Batch by batch, (chain, batch, …): what each counts, and means of features, integrands and
    coordinates."""

    weights: Float64[np.ndarray, "chain batch"]
    features: Float64[np.ndarray, "chain batch p"]  # or g, where it was trained
    integrands: Float64[np.ndarray, "chain batch q"]
    coordinates: Float64[np.ndarray, "chain batch c"]

    @staticmethod
    def of(fits: PartFits, chains: int, batches: int, q: int) -> _Series:
        table = fits.sums.batches.reshape(chains, batches, -1)
        weights = table[:, :, 0]
        means = table[:, :, 1:] / weights[:, :, None]
        return _Series(weights, *np.split(means, [fits.p, fits.p + q], axis=2))

    @property
    def probabilities(self) -> Float64[np.ndarray, " n"]:
        return (self.weights / self.weights.sum()).ravel()

    @property
    def plain(self) -> Answer:
        answer = mean_answer(self.integrands, self.probabilities, FitStats("plain", 0))
        return dataclasses.replace(answer, controlled=np.zeros_like(answer.controlled))

    def answer(self, fits: PartFits, parts: np.ndarray, edges: np.ndarray) -> Answer:
        """The mean of f − g over the batches that estimate, each by the fit that did not see it."""
        own = np.searchsorted(parts, edges[:-1], side="right") - 1
        out = np.empty_like(self.integrands)
        for part, fit in fits.by_part.items():
            out[:, own == part] = (
                self.integrands[:, own == part] - self.features[:, own == part] @ fit.theta
            )
        kept = np.isin(own, list(fits.by_part))
        weights = self.weights[:, kept]
        solved = list(fits.by_part.values())
        found = mean_answer(out[:, kept], (weights / weights.sum()).ravel(), solved[0].stats)
        return dataclasses.replace(found, results=tuple(fit.result for fit in solved))

    def variances(self, sums: Sums) -> tuple[np.ndarray, np.ndarray]:
        """Of the integrands (q,) and coordinates (c,), over all draws."""
        total = np.sum([np.diagonal(matrix) for matrix in sums.moments.values()], axis=0)
        count, p, q = self.weights.sum(), self.features.shape[2], self.integrands.shape[2]
        means = [
            self.probabilities @ part.reshape(-1, part.shape[2])
            for part in (self.integrands, self.coordinates)
        ]
        squares = (total[1 + p : 1 + p + q], sums.squares)
        of_values, of_draws = (
            np.maximum(square / count - mean**2, 0.0)
            for square, mean in zip(squares, means, strict=True)
        )
        return np.where(sums.high > sums.low, of_values, 0.0), of_draws

    def slowest(self, sums: Sums) -> tuple[float, float]:
        """The longest autocorrelation time of integrands and coordinates, their errors against
        their variances; and 1/Σp²."""
        both = np.concatenate([self.integrands, self.coordinates], axis=2)
        variances = np.concatenate(self.variances(sums))
        errors = standard_error(
            influences_on_mean(both, self.probabilities)[1], np.zeros(both.shape[2])
        )
        kish = float(self.weights.sum() ** 2 / sums.weights.sum())
        moving = variances > 0
        return float(
            kish * np.max(errors[moving] ** 2 / variances[moving], initial=0.0)
        ) or 1.0, kish

    def r_hats(self, sums: Sums) -> tuple[np.ndarray, np.ndarray]:
        """√(1 + B/W), between and within half chains, of the integrands and of the coordinates."""
        half = self.weights.shape[1] // 2

        def ratio(part: np.ndarray, total: np.ndarray) -> np.ndarray:
            cuts = [
                (self.weights[:, cut], part[:, cut]) for cut in (slice(half), slice(half, None))
            ]
            halves = np.concatenate(
                [np.einsum("cb,cbk->ck", w, each) / w.sum(axis=1)[:, None] for w, each in cuts]
            )
            between, within = halves.var(axis=0, ddof=1), total - halves.var(axis=0)
            return np.sqrt(
                1 + np.divide(between, within, out=np.zeros_like(between), where=within > 0)
            )

        of_values, of_draws = self.variances(sums)
        return ratio(self.integrands, of_values), ratio(self.coordinates, of_draws)
