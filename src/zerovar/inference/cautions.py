"""Words of caution: what makes an answer less certain than it looks, said in one place.

Each caution is a function of what will be reported; `CAUTIONS` has them in the order in which they
are said.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ..diagnostics import Check
from ..diagnostics.checks import OUTLYING, WRONG
from ..errors import NumericalWarning, SampleWarning, ScoreWarning, ZerovarWarning, warn
from ..inputs.points import DRAWS_PER_TERM
from ..solvers import Result
from ..statistics.series import (
    INDEPENDENT,
    batch_sums,
    relative_uncertainty,
    segment_distances,
    tail_share,
)
from .answer import Answer, Mask, PerIntegrand
from .facts import Facts
from .rules import KNOWN, SUSPICIOUS, Reason

_FEW = 30  # effective draws under which a standard error is known to worse than a fifth of itself
# Effective draws of a slow chain from which a rich family is not warned of. Errors of cubics on 600
# Metropolis draws that were worth 60 were half of what they should be.
_SAFE = 500
# R-hat: 1.01 is for chains of thousands of draws, and chance alone makes 1.03 of a few hundred
_NOT_CONVERGED = 1.05
# Share of a variance in the largest hundredth of the draws. On Gaussian test problems errors were
# right (spread of z below 1.25) up to a half, and up to ten times too small beyond nine tenths;
# what leave-out residuals weigh has heavier tails by nature, and right errors up to this.
RARE = 0.95


class Caution(NamedTuple):
    """A warning; `{names}` in its text stands for the integrands that it is about."""

    text: str
    names: Sequence[str] = ()
    kind: type[ZerovarWarning] = SampleWarning


class Reported(NamedTuple):
    """What is about to be reported, (q,) each; `apart` are joint errors from the plain mean, of the
    answer as it was before the plain mean took its place, `refused` the share of the candidates
    that were too far from it, if there were several, and `agreed` whether they agree with each
    other."""

    answer: Answer
    facts: Facts
    reasons: Sequence[Reason]
    plain_error: PerIntegrand
    error: PerIntegrand
    apart: PerIntegrand
    refused: PerIntegrand
    agreed: Mask

    def where(self, columns: Mask) -> list[str]:
        """The names of some of the integrands."""
        return [name for name, so in zip(self.facts.names, columns, strict=True) if so]

    @property
    def bare(self) -> Mask:
        """Where the error is nothing but scatter, so that a few draws may rule it."""
        return np.array([reason is Reason.SCATTER for reason in self.reasons], dtype=bool)

    @property
    def ruled(self) -> Mask:
        """Where the error is scatter, and a few draws do rule it."""
        return self.bare & (tail_share(self.answer.influences) > RARE)


class Cautions:
    """Warnings, given to the user once each and kept with the answer."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, caution: Caution) -> None:
        """Warn, unless the same was said before."""
        text, names, kind = caution
        message = str(kind(text, names))
        if message not in self.texts:
            self.texts.append(message)
            warn(text, kind, names)

    def add_check(self, verdict: Check, done: str = "") -> None:
        """Say what a check of the draws found; and what was `done` about scores without means."""
        if not verdict.ok:
            kind = ScoreWarning if verdict.finding in (WRONG, OUTLYING) else SampleWarning
            text = f"{verdict.finding}. {verdict.diagnosis} zv.check(sample) says more."
            self.add(Caution(text, kind=kind))
        if verdict.untested:
            self.add(
                Caution(
                    "The scores of {names} have tails so heavy that their means may not exist "
                    "(Pareto k near 1). That is typical of effects whose scale can come near zero, "
                    "in a centred model, or be very large, in a non-centred one. "
                    + (
                        done
                        or "Control variates along them can mislead. Try the other of the two "
                        "forms, or a prior with a lighter tail for that scale."
                    ),
                    verdict.untested,
                )
            )

    def add_divergences(self, count: int, draws: int) -> None:
        """Say that a sampler's trajectories diverged, and what that means."""
        if count:
            self.add(
                Caution(
                    f"{count} of {draws} transitions of the sampler diverged: it does not get "
                    "into a part of the distribution that is narrow or strongly curved, as the "
                    "neck of a funnel. Draws are missing there, and control variates know only "
                    "of draws: values can be off by more than their errors. Sample in other "
                    "coordinates (non-centred), or with smaller steps (a higher target "
                    "acceptance)."
                )
            )

    def add_reported(self, reported: Reported) -> None:
        """Say all that is to be said of an answer."""
        for caution in CAUTIONS:
            for each in caution(reported):
                self.add(each)


def convergence(reported: Reported) -> Iterator[Caution]:
    """Chains that differ by R-hat, in some coordinates of the draws or else in integrands. It is
    the same coordinate, whatever the integrands are, so that it is said once of all."""
    facts = reported.facts
    of_values, of_draws = facts.r_hat
    limit = _NOT_CONVERGED + 2 / facts.length  # of short chains R-hat is noisy
    names: list[str] = []
    if of_draws.max() > limit:
        worst = facts.coordinates[int(of_draws.argmax())]
        what = f"R-hat is {of_draws.max():.2f} for {worst} (above {limit:.2f})"
    elif names := reported.where((of_values > limit) & ~facts.settled):
        what = f"R-hat is above {limit:.2f} for {{names}}"
    else:
        return
    yield Caution(
        f"The chains have not converged: {what}. Control variates do not cure that, and no "
        "standard error here can be trusted. Run the sampler for longer.",
        names,
    )


def numerics(reported: Reported) -> Iterator[Caution]:
    """How the fits of all folds ended, each way once."""
    family = reported.answer.family
    for result in reported.answer.results:
        if family is not None and result is not Result.OK:
            yield Caution(f"{family.describe()}: {result.value}", kind=NumericalWarning)


def unseen_events(reported: Reported) -> Iterator[Caution]:
    """Events that none of the draws shows, or every one."""
    if names := reported.where(reported.facts.one_sided):
        yield Caution(
            "Events that none of the draws shows, or every one: {names}. Their probabilities are "
            "known only to within 3 / n, where n counts clusters of draws; that is given as their "
            "standard error. Draw more, or ask for a less extreme event.",
            names,
        )


def size(reported: Reported) -> Iterator[Caution]:
    """Draws against unknowns, with autocorrelation and weights counted."""
    facts, stats = reported.facts, reported.answer.stats
    draws, kish = facts.num_draws, facts.kish
    effective, unknowns = kish / facts.autocorrelation, stats.unknowns
    slow = facts.autocorrelation >= INDEPENDENT
    if kish < 0.1 * draws:
        yield Caution(
            f"The importance weights are very unequal: {draws} draws count like {kish:.0f}. The "
            "proposal misses the target."
        )
    if effective < _FEW:
        yield Caution(
            f"The draws are worth about {effective:.0f} independent ones: too few to know a "
            "standard error. Draw more."
        )
    if slow and unknowns > effective / 2 and effective < _SAFE:
        yield Caution(
            f"The family is rich for this chain: {unknowns} unknowns are fitted to {draws} draws "
            f"that are worth about {effective:.0f} independent ones, so the standard error can be "
            "far too small. Use a longer chain, a smaller family or a larger Ridge."
        )
    elif stats.counts_terms and unknowns > stats.distinct_draws / DRAWS_PER_TERM:
        yield Caution(
            f"Few draws for this family: {unknowns} terms are fitted to {stats.distinct_draws} "
            "distinct draws. Use more draws, a lower degree, or a Ridge penalty."
        )
    repeated = stats.draws - stats.distinct_draws
    if repeated > 0.5 * stats.draws:
        yield Caution(
            f"{repeated} of {stats.draws} fitting draws repeat an earlier one (merged for the fit)."
        )


def heavy_integrands(reported: Reported) -> Iterator[Caution]:
    """Integrands without a mean (Pareto k from 1 on) or without a variance (from 1/2 on)."""
    facts = reported.facts
    k = np.where(facts.bounded, 0.0, facts.tail)
    if facts.stand_ins is not None:
        if names := reported.where((k >= 1 / 2) & facts.stand_ins):
            yield Caution(
                "The standard errors of {names} may be too small: a function of the scores is "
                "averaged there in place of an indicator, and its tails are heavy (Pareto k above "
                "1/2), so that its variance is probably infinite. Compare with plain_value ± "
                "plain_std_error, which count the draws alone, and draw more; where the log "
                "density is known (zv.from_numpyro, zv.from_log_density) no scores are averaged.",
                names,
            )
        k = np.where(facts.stand_ins, 0.0, k)
    small = (facts.low >= -1) & (facts.high <= 1)  # as probabilities and correlations are
    if names := reported.where((k >= 1) & ~small):
        yield Caution(
            "The tails of {names} are so heavy that a mean may not exist (Pareto k above 1): "
            "neither the plain nor the controlled answer can be trusted. Look at the median, or at "
            "a bounded function of it.",
            names,
        )
    if names := reported.where((k >= 1 / 2) & (k < 1) & ~small):
        yield Caution(
            "The tails of {names} are heavy (Pareto k above 1/2): the variance is probably "
            "infinite, and standard errors are too small more often than they say. Draw more, or "
            "average a function with lighter tails.",
            names,
        )
    if names := reported.where((k >= 1 / 2) & small):
        yield Caution(
            "The tails of {names} are heavy as far as the draws go (Pareto k above 1/2). If these "
            "are bounded, as probabilities and correlations are, they have a mean and a variance, "
            "and their errors rest on few draws; otherwise the variance is probably infinite.",
            names,
        )


def heavy_tails(reported: Reported) -> Iterator[Caution]:
    """Errors that rest on one draw in a hundred."""
    few = (
        f"one {reported.facts.unit} in a hundred carries more than {RARE:.0%} of the error's "
        "variance ({names}), so the standard error is itself uncertain and probably too small."
    )
    if names := reported.where(reported.ruled & reported.answer.controlled):
        yield Caution(
            f"Heavy tails: {few} Compare with a smaller family, of lower degree or without a "
            "kernel: its residuals have lighter tails, and its error is larger but more reliable.",
            names,
        )
    # the error of a count is known from the count
    share = np.minimum(reported.answer.value, 1 - reported.answer.value)
    counted = reported.facts.events & (share * reported.facts.effective_extremes >= KNOWN)
    if names := reported.where(reported.ruled & ~reported.answer.controlled & ~counted):
        yield Caution(
            f"A few draws dominate, as for rare events or long tails: {few} Draw more, or average "
            "over part of the model analytically.",
            names,
        )


def segments(reported: Reported) -> Iterator[Caution]:
    """Fifths of the chains that differ by more than chance, where a few draws do not explain it."""
    apart = segment_distances(reported.answer.influences) > SUSPICIOUS
    if names := reported.where(apart & reported.bare & ~reported.ruled):
        yield Caution(
            "The folds disagree for {names}: fifths of the chains give answers that are further "
            "apart than their own standard errors allow, so the standard error is probably too "
            "small. Use longer chains.",
            names,
        )


def usefulness(reported: Reported) -> Iterator[Caution]:
    """Control variates whose error is above that of the plain mean by more than chance, and not for
    their distance from it."""
    told = (Reason.DISTANCE, Reason.CUT, Reason.SCORES)
    far = np.array([reason in told for reason in reported.reasons], dtype=bool)
    facts = reported.facts
    time = 1.0 if facts.values is None else facts.autocorrelation  # batches count as independent
    sums = batch_sums(facts.plain.influences, time)
    by_chance = np.sqrt(1 + SUSPICIOUS * relative_uncertainty(sums)) * reported.plain_error
    if names := reported.where((reported.error > by_chance) & ~far):
        yield Caution(
            "The control variate does harm for {names}: its gain is below 1. Take plain_value "
            "there, or a smaller family.",
            names,
        )


def agreement(reported: Reported) -> Iterator[Caution]:
    """An answer that is far from the plain mean."""
    worst = int(reported.apart.argmax())
    if reported.apart[worst] > SUSPICIOUS:
        yield Caution(
            f"For {reported.facts.names[worst]} the answers with and without control variates are "
            f"{reported.apart[worst]:.0f} of their errors apart: one of them is wrong. Are the "
            "scores those of these draws, and have the chains converged?"
        )


def refused_candidates(reported: Reported) -> Iterator[Caution]:
    """Candidates that were not used, most of them for their distance from the plain mean.

    If they agree with each other, and nothing speaks against the scores, the plain mean may be what
    is odd: that of an integrand that was fitted to the same draws has far less error than chance
    leaves in others, and another mean than the posterior's.
    """
    scores = reported.facts.scores
    fitted = reported.agreed & (scores.from_model or bool(scores.verified))
    if names := reported.where(fitted):
        yield Caution(
            "For {names} the control variates that were tried agree with each other, and lie more "
            f"than {SUSPICIOUS:.0f} joint errors from the plain mean, which is reported. Was the "
            "integrand fitted to these draws, as one with their own mean and covariance, or a "
            "regression on them? Its plain mean is then not that of the posterior, and its error "
            "too small: fit it to other draws, or name a family to have the answer with control "
            "variates. Otherwise: have the chains converged?",
            names,
        )
    if names := reported.where((reported.refused > 1 / 2) & ~fitted):
        yield Caution(
            "For {names} most control variates that were tried lie more than "
            f"{SUSPICIOUS:.0f} joint errors from the plain mean, and were not used. Right scores "
            "seldom do that: are these the scores of these draws, and have the chains converged?",
            names,
        )


CAUTIONS: tuple[Callable[[Reported], Iterator[Caution]], ...] = (
    convergence,
    numerics,
    unseen_events,
    size,
    heavy_integrands,
    heavy_tails,
    segments,
    usefulness,
    agreement,
    refused_candidates,
)
