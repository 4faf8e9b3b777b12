"""Words of caution: what makes an answer less certain than it looks, said in one place."""

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Bool

from ..diagnostics.checks import OUTLYING, WRONG, Check
from ..errors import NumericalWarning, SampleWarning, ScoreWarning, ZerovarWarning, warn
from ..families import Family
from ..solvers import FitStats, Result
from ..statistics.series import INDEPENDENT, tail_share

_FEW = 30  # effective draws under which no standard error is to be trusted
_SAFE = 500  # effective draws from which a rich family is not warned of
DRAWS_PER_TERM = 2.5  # a fit with fewer is noisy, and over-confident
_WORSE = 0.7  # gain
NO_VARIANCE, _NO_MEAN = 0.5, 1.0  # Pareto k
_NOT_CONVERGED = 1.05  # R-hat
# variance of five segments' means over what their standard errors say; 1 in 10⁷ if normal
_SCATTERED = 10.0
_APART = 6.0  # standard errors between the plain and the controlled answer
# Share of the variance of out-of-fold residuals in their largest hundredth. On Gaussian test
# problems errors were right (spread of z below 1.25) up to a share of one half, and up to ten times
# too small beyond nine tenths.
_HEAVY_TAIL = 0.75
# The influences behind an in-sample error have heavier tails by nature, and their errors stay right
# further out.
_HEAVY_INFLUENCE = 0.95


class Cautions:
    """Warnings, given to the user once each and kept with the answer."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, kind: type[ZerovarWarning], text: str, names: Sequence[str] = ()) -> None:
        said = str(kind(text, names))
        if said not in self.texts:
            self.texts.append(said)
            warn(text, kind, names)

    def of_sample(self, text: str, names: Sequence[str] = ()) -> None:
        """`{names}` in the text stands for those of the integrands that it is about."""
        self.add(SampleWarning, text, names)

    def numerics(self, family: Family, results: Iterable[Result]) -> None:
        """How the fits of all folds ended, each way once."""
        for result in results:
            if result is not Result.OK:
                self.add(NumericalWarning, f"{family.describe()}: {result.value}")

    def scores(self, verdict: Check) -> None:
        if not verdict.ok:
            kind = ScoreWarning if verdict.finding in (WRONG, OUTLYING) else SampleWarning
            self.add(kind, f"{verdict.finding}. {verdict.diagnosis} zv.check(sample) says more.")
        if verdict.untested:
            self.of_sample(
                "The scores of {names} have tails so heavy that their means may not exist (Pareto "
                "k near 1), as those of "
                "effects whose scale may be near zero. Control variates along them can mislead. "
                "Sample non-centred "
                "coordinates, or map draws and scores to them.",
                verdict.untested,
            )

    def events(self, names: Sequence[str], one_sided: np.ndarray) -> None:
        if unseen := _where(names, one_sided):
            self.of_sample(
                "Events that none of the draws shows, or every one: {names}. How probable they are "
                "is known only to within "
                "3 / (effective draws), which is given as their standard error.",
                unseen,
            )

    def size(self, draws: int, autocorrelation: float, kish: float, stats: FitStats) -> None:
        """Draws against unknowns, with autocorrelation and weights counted; `kish` is 1/Σp², the
        size by weights alone."""
        effective, unknowns = kish / autocorrelation, stats.unknowns
        if kish < 0.1 * draws:
            self.of_sample(
                f"The importance weights are very unequal: {draws} draws count like {kish:.0f}. "
                "The proposal misses the target."
            )
        if effective < _FEW:
            self.of_sample(
                f"The draws are worth about {effective:.0f} independent ones: too few to know a "
                "standard error. Draw more."
            )
        if autocorrelation >= INDEPENDENT and unknowns > effective / 2 and effective < _SAFE:
            self.of_sample(
                f"The family is rich for this chain: {unknowns} unknowns are fitted to {draws} "
                "draws that are worth about "
                f"{effective:.0f} independent ones, so the standard error can be far too small. "
                "Use a longer chain, a smaller family or a larger Ridge."
            )
        elif stats.counts_terms and unknowns > stats.distinct_draws / DRAWS_PER_TERM:
            self.of_sample(
                f"Few draws for this family: {unknowns} terms are fitted to {stats.distinct_draws} "
                "distinct draws. "
                "Use more draws, a lower degree, or a Ridge penalty."
            )
        repeated = stats.draws - stats.distinct_draws
        if repeated > 0.5 * stats.draws:
            self.of_sample(
                f"{repeated} of {stats.draws} fitting draws repeat an earlier one (merged for the "
                "fit)."
            )

    def integrands(self, names: Sequence[str], pareto_k: np.ndarray) -> None:
        """By the Pareto k of the integrands themselves, less what it may be too large by."""
        if without := _where(names, pareto_k >= _NO_MEAN):
            self.of_sample(
                "The tails of {names} are so heavy that a mean may not exist (Pareto k above 1): "
                "neither the plain nor "
                "the controlled answer can be trusted. Look at the median, or at a bounded "
                "function of it.",
                without,
            )
        if heavy := _where(names, (pareto_k >= NO_VARIANCE) & (pareto_k < _NO_MEAN)):
            self.of_sample(
                "The tails of {names} are heavy (Pareto k above 1/2): the variance is probably "
                "infinite, and standard errors "
                "are too small more often than they say. Draw more, or average a function with "
                "lighter tails.",
                heavy,
            )

    def tails(
        self, names: Sequence[str], influences: np.ndarray, left_out: bool, of: str = "draw"
    ) -> np.ndarray:
        """Which of the influences' series (chain, draw, q) a few draws rule."""
        limit = _HEAVY_INFLUENCE if left_out else _HEAVY_TAIL
        rule = tail_share(influences) > limit
        if heavy := _where(names, rule):
            self.of_sample(
                f"Heavy tails: one {of} in a hundred carries more than {limit:.0%} of the error's "
                f"variance ({{names}}), so "
                "the standard error is itself uncertain and probably too small. "
                "A smaller family, of lower degree or without a kernel, has lighter tails and a "
                "larger error: compare.",
                heavy,
            )
        return rule

    def convergence(
        self, names: Sequence[str], draws: int, of_values: np.ndarray, of_draws: np.ndarray
    ) -> None:
        """R-hat of the integrands (q,), and of some coordinates of the draws; `draws` a chain."""
        worst = max(of_values.max(), of_draws.max())
        limit = _NOT_CONVERGED + 2 / draws  # of short chains R-hat is noisy
        if worst > limit:
            what = (
                names[int(of_values.argmax())]
                if of_values.max() == worst
                else "a coordinate of the draws"
            )
            self.of_sample(
                f"The chains have not converged: R-hat is {worst:.2f} for {what} (above "
                f"{limit:.2f}). Control variates do "
                "not cure that, and no standard error here can be trusted. Run the sampler for "
                "longer."
            )

    def segments(self, names: Sequence[str], scatter: np.ndarray) -> None:
        if apart := _where(names, scatter > _SCATTERED):
            self.of_sample(
                "The folds disagree for {names}: fifths of the chains give answers that are "
                "further apart than "
                "their own standard errors allow, so the standard error is probably too small. Use "
                "longer chains.",
                apart,
            )

    def usefulness(self, names: Sequence[str], gain: np.ndarray) -> None:
        if worse := _where(names, gain < _WORSE):
            self.of_sample(
                "The control variate does harm for {names}: its gain is below 1. Take plain_value "
                "there, or a smaller family.",
                worse,
            )

    def agreement(self, names: Sequence[str], distance: np.ndarray) -> None:
        """`distance` (q,) between the plain and the controlled answer, in their joint standard
        errors."""
        if np.max(distance, initial=0.0) > _APART:
            worst = int(distance.argmax())
            self.of_sample(
                f"For {names[worst]} the answers with and without control variates are "
                f"{distance[worst]:.0f} of their errors "
                "apart: one of them is wrong. Are the scores those of these draws, and have the "
                "chains converged?"
            )


def _where(names: Sequence[str], flagged: Bool[np.ndarray, " q"]) -> list[str]:
    """The names that are flagged."""
    return [name for name, flag in zip(names, flagged, strict=True) if flag]
