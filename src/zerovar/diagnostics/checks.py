"""check(): are these the scores of these draws, and are the draws laid out as chains?

The most specific mistakes come first: importance weights with a heavy tail, the layout of the
chains, where they begin, single outlying scores. Then Stein's identities, on all draws and on every
chain; and whether the draws stop where the scores go on. Bonferroni's bound over all tests keeps
false alarms near `level`, a little above it where batch means are not yet normal: the default of
0.001 gives fewer than one in a hundred on all that we measured (`python -m benchmarks checks`).
What fails decides what is said.
"""

import dataclasses

import numpy as np

from ..arguments import SHARE, instance, takes
from ..errors import list_names
from ..inputs.sample import Posterior, Sample, coordinate_name
from ..spaces import REALS
from ..statistics.series import autocorrelation_time, some_columns
from ..statistics.tails import heavy_scores, heavy_weights, weights_shape
from .edges import find_edge
from .identities import (
    ENOUGH_BATCHES,
    Identities,
    ScoredChains,
    chain_p_values,
    identities,
    quadratic_p_value,
)
from .layout import layout_mistakes, undo_resampling
from .outliers import burn_in_p_value, find_outlying_scores
from .space_identities import identities_in_space

RIGHT = "The scores agree with the draws"
WRONG = "The scores do not agree with the draws"
OUTLYING = "Some scores are outlying"
CUT = "The density ends with a jump"
_LAYOUT = "The chains are not as they should be"
_WEIGHTS = "The importance weights have a heavy tail"
_FLIPPED, _UNRELATED = "The sign is flipped", "Scores and draws are unrelated"
_BURN_IN = "burn-in was probably not removed. Drop the warm-up draws."
_UNREACHED = (
    "Or, as these scores come from the model: the draws do not reach all of its density, as where "
    "transitions diverge or chains are short."
)
# The level is split: a half goes to the identities of all draws, and a quarter each to single
# chains, to their beginning and to outlying scores.
_PARTS = 4
# Times the level for ends of the density, of which false finds are three in a thousand. By 1000
# draws N(0, 1) cut at 2.5 is found in three of five samples, with 5 in four, and with 1 in one.
_ENDS = 3


@dataclasses.dataclass(frozen=True)
class Check:
    """What `check` found. `ok` is the verdict, `finding` the same in a sentence, `diagnosis` the
    probable cause in words, `details` the entries that failed.

    `precision` is how precisely scores were verified: relative, two standard errors of the worst
    coordinate; NaN if they were not. `untested` are coordinates whose scores have tails so heavy
    that their means may not exist, whatever the scores are of. `cut` says that the density seems
    to end with a jump, where control variates are wrong.
    """

    ok: bool
    diagnosis: str
    details: tuple[str, ...]
    p_value: float
    untested: tuple[str, ...] = ()
    finding: str = RIGHT
    precision: float = np.nan
    cut: bool = False

    @property
    def verified(self) -> str:
        """How precisely, in words; nothing where scores were not tested."""
        return (
            ""
            if np.isnan(self.precision)
            else f"to {100 * self.precision:.{0 if self.precision >= 0.01 else 1}f} %"
        )

    def __str__(self) -> str:
        how = f", {self.verified} in every coordinate" if self.ok and self.verified else ""
        how += " that was tested" if how and self.untested else ""
        return "\n".join(
            [
                f"{self.finding}{how} (smallest p-value {self.p_value:.2g}).",
                *([self.diagnosis] if self.diagnosis else []),
                *self.details,
                *(
                    [
                        "Not tested, for the heavy tails of their scores: "
                        f"{list_names(list(self.untested))}."
                    ]
                    if self.untested
                    else []
                ),
            ]
        )


@takes(
    sample=instance((Sample, Posterior), "a zv.Sample(draws, scores) or a Posterior"),
    level=SHARE,
)
def check_sample(sample: Sample | Posterior, level: float = 0.001) -> Check:
    """Test layout, beginning and scores of `sample`; `level` is the nominal probability that a
    right one fails."""
    sample = sample.sample if isinstance(sample, Posterior) else sample
    if not sample.space.is_flat:
        return _check_in_space(sample, level)
    away = some_columns(sample.draws, 20) - np.median(some_columns(sample.draws, 20), axis=0)
    late = sample.by_chain(np.concatenate([away, np.abs(away)], axis=1))[
        :, len(sample) // sample.num_chains // 2 :
    ]
    slowest = max(autocorrelation_time(late), 1.0)
    return _check_draws(sample, slowest, level) or _check_scores(
        undo_resampling(sample), slowest, level
    )


def _check_in_space(sample: Sample, level: float) -> Check:
    """Test weights, layout and the identities of a space other than Rᵈ."""
    if sample.weights is not None and (said := heavy_weights(sample.probabilities)):
        return Check(False, said, (), 0.0, finding=_WEIGHTS)
    if said := next(layout_mistakes(sample), ""):
        return Check(False, said, (), 0.0, finding=_LAYOUT)
    found, bounds = identities_in_space(sample), _find_bounds(sample, level)
    if found.adjusted >= level:
        few = found.num_batches < ENOUGH_BATCHES
        said = "There are too few effective draws to tell much." if few else ""
        precision = 2 * float(found.scale_error.max())
        if bounds is not None:
            return Check(False, bounds[0], (), bounds[1], finding=CUT, cut=True)
        return Check(True, said, (), found.adjusted, precision=precision)
    space, causes = sample.space, [] if bounds is None else [bounds[0]]
    if identities_in_space(sample, -1.0).adjusted >= level:
        causes.append(f"{_FLIPPED}: pass −scores.")
    for mistake, order in space.reorderings(sample.scores.shape[1]).items():
        if identities_in_space(sample.replace(scores=sample.scores[:, order])).adjusted >= level:
            causes.append(f"The neighbours are in another order: {mistake}.")
    said = " Or: ".join(causes) or "They are of other draws, or of another density."
    said += f" What a {space.describe()} asks for: {space.scores}."
    return Check(False, said, (), found.adjusted, finding=WRONG)


def _find_bounds(sample: Sample, level: float) -> tuple[str, float] | None:
    """Return what is wrong with the bounds of a space that has some, as draws and scores tell, and
    its p-value; None if nothing is."""
    there = sample.space.map_to_reals(sample.draws, sample.scores)
    if there is None:
        return None
    flat = sample.replace(space=REALS, draws=there[0], scores=there[1])
    slowest = autocorrelation_time(flat.by_chain(some_columns(flat.draws, 20)))
    edge = find_edge(flat, slowest, _ENDS * level)
    if edge is None:
        return None
    ends, name = sample.draws[:, edge.coordinate], coordinate_name(sample.names, edge.coordinate)
    side, at = ("above", ends.max()) if edge.high else ("below", ends.min())
    said = (
        f"Of {name} no draw lies {side} {at:.4g}, and by the scores about {edge.missing:.0f} more "
        f"should, up to the bound of the {sample.space.describe()}. Where a density ends before "
        "that without falling to zero, Stein's identity does not hold, and control variates are "
        "wrong. Give the bound at which it ends."
    )
    return said, edge.p_value / _ENDS


def _check_draws(sample: Sample, slowest: float, level: float) -> Check | None:
    """Say what is wrong with weights, chains or single draws, before any identity is asked;
    `slowest` is the autocorrelation time."""
    if sample.weights is not None and (said := heavy_weights(sample.probabilities)):
        return Check(False, said, (), 0.0, finding=_WEIGHTS)
    if said := next(layout_mistakes(sample), ""):
        return Check(False, said, (), 0.0, finding=_LAYOUT)
    p, j = burn_in_p_value(sample, slowest)
    if sample.weights is None and _PARTS * p < level:
        said = (
            "The chains begin far from where they are later, in "
            f"{coordinate_name(sample.names, j)} most clearly: {_BURN_IN}"
        )
        return Check(False, said, (), _PARTS * p, finding=_LAYOUT)
    outlying = find_outlying_scores(sample, slowest, level / _PARTS)
    if outlying is None:
        return None
    length = len(sample) // sample.num_chains
    names = [
        str(row) if sample.num_chains == 1 else f"{row % length} of chain {row // length}"
        for row in outlying.rows.tolist()
    ]
    said = (
        f"The scores of {len(names)} draw{'s' if len(names) > 1 else ''} are far beyond all "
        f"others: {list_names(names)}. In {coordinate_name(sample.names, outlying.coordinate)} "
        f"they reach {outlying.largest:.2g}, all others {outlying.others:.2g}. They rule every "
        "fit. Right scores can be so, as in hierarchies whose scale comes near zero: then other "
        "coordinates, centred or non-centred, may do better. Otherwise look for a diverging "
        "transition or an overflow there."
    )
    return Check(False, said, (), outlying.p_value, finding=OUTLYING)


def _check_scores(sample: Sample, slowest: float, level: float) -> Check:
    """Test the coordinates whose scores can be tested."""
    heavy = heavy_scores(sample.by_chain(sample.scores))
    untested = tuple(coordinate_name(sample.names, j) for j in np.flatnonzero(heavy))
    if heavy.all():
        return Check(True, "Nothing can be said of these scores.", (), 1.0, untested)
    tested = sample.along(~heavy) if heavy.any() else sample
    if tested.weights is not None and (k := weights_shape(tested.probabilities)) > 0.5:
        said = (
            f"The weights have a tail with Pareto k = {k:.2f} (above 1/2), on which no test of "
            "scores can rest."
        )
        return Check(True, said, (), 1.0, untested)
    verdict = _check_ends(tested, _test_scores(tested, level), slowest, level)
    return dataclasses.replace(verdict, untested=untested)


def _check_ends(sample: Sample, verdict: Check, slowest: float, level: float) -> Check:
    """Add what the ends of the density show to what the identities do."""
    edge = find_edge(sample, slowest, _ENDS * level, trusted=verdict.ok)
    if edge is None or any(sure in verdict.diagnosis for sure in (_FLIPPED, _UNRELATED)):
        return verdict
    side, name = "above" if edge.high else "below", coordinate_name(sample.names, edge.coordinate)
    where = f"of {name} no draw lies {side} {edge.at:.4g}"
    if edge.mixed:
        where = f"along a principal direction, mostly {name}, no draw lies further {side} its mean"
    said = (
        f"{where[0].upper()}{where[1:]}, and by the scores about {edge.missing:.0f} more should. "
        "Where a density ends without falling to zero, Stein's identity does not hold, and control "
        "variates are wrong. Say where it ends, space=zv.spaces.Box(low, high); or map bounded "
        "parameters to the whole line, by a logarithm or a logit with its Jacobian: "
        "zv.Coordinates(...) maps draws and scores."
    )
    if verdict.ok:
        return Check(False, said, (), edge.p_value / _ENDS, finding=CUT, cut=True)
    both = f"{verdict.diagnosis} Or the density is cut: {said}"
    return dataclasses.replace(verdict, diagnosis=both, cut=True)


def _test_scores(sample: Sample, level: float) -> Check:
    series = ScoredChains.of(sample)
    found, chains = identities(series), chain_p_values(series)
    smallest = min(1.0, 2 * found.adjusted, _PARTS * chains.min())
    if smallest >= level:
        few = (
            "There are too few effective draws to tell much."
            if series.num_batches < ENOUGH_BATCHES
            else ""
        )
        return Check(True, few, (), smallest, precision=2 * float(found.scale_error.max()))
    bad = _PARTS * chains < level
    if (
        bad.any()
        and 2 * bad.sum() <= len(bad)
        and identities(series.part(~bad)).adjusted >= level / 2
    ):
        some = _test_scores(sample.chains(bad), level)
        many = (
            f"chains {list_names([str(c) for c in np.flatnonzero(bad)])} disagree"
            if bad.sum() > 1
            else f"chain {bad.argmax()} disagrees"
        )
        said = (
            f"Only {many}; the others pass. There: "
            f"{some.diagnosis or 'the scores are of other draws, or of another density.'}"
        )
        return Check(False, said, some.details, smallest, finding=WRONG)
    said = _diagnosis(sample, series, found, level)
    if sample.from_model:
        said += f" {_UNREACHED}"
    return Check(
        False,
        said,
        _details(sample, found, level / 2),
        smallest,
        finding=WRONG,
    )


def _diagnosis(sample: Sample, series: ScoredChains, found: Identities, level: float) -> str:
    """The most probable cause, from the most specific test to the least."""
    off, scaled = found.failures(level / 2)

    def passes(other: ScoredChains) -> bool:
        return 2 * identities(other).adjusted >= level

    if found.trace > 0 and passes(series.divide_scores(-1.0)):
        return (
            f"{_FLIPPED}: these are gradients of the negative log density (a potential energy). "
            "Pass −scores."
        )
    if abs(found.trace) < max(4 * found.trace_error, 0.1):
        return (
            f"{_UNRELATED}: the rows are probably misaligned (another order, a "
            "shift by one, thinned differently, or chains stacked along another axis)."
        )
    alike = np.all(np.abs(found.scale + found.trace) < 4 * found.scale_error)
    if (
        found.trace < 0
        and alike
        and abs(found.trace + 1) > 4 * found.trace_error
        and passes(series.divide_scores(-found.trace))
    ):
        return (
            f"The scores are {-found.trace:.3g} times too large: a tempered, scaled or "
            "mini-batch log density?"
        )
    if off.any() and not scaled.any():
        return (
            f"In {_which(sample, off)} the scores are off by a nearly constant amount: a Jacobian "
            "term is probably missing (for a positive parameter drawn on the log scale the "
            "gradient of log τ adds 1). Use the gradient of the log density of the unconstrained "
            "parameters."
        )
    if scaled.any():
        factor = np.where(scaled, found.scale, 1.0)
        if np.all(np.abs(factor) > 0.1) and _mends(sample, factor, level):
            times = list_names([f"{f:.3g}" for f in found.scale[scaled]])
            return (
                f"In {_which(sample, scaled)} the scores are {times} times too large: other units, "
                "or a factor that is missing from the log density?"
            )
        return (
            f"In {_which(sample, off | scaled)} the scores do not belong to the scale of the "
            "draws: they are probably derivatives with respect to the constrained parameter, or "
            "lack its Jacobian. Draws and scores must both be on the unconstrained scale."
        )
    return (
        "They may be gradients of another density, on another scale (constrained, not "
        "unconstrained), or of other draws."
    )


def _mends(sample: Sample, factor: np.ndarray, level: float) -> bool:
    """Say whether scores divided by `factor` (d,) pass.

    Those of a constrained parameter may, by the linear identities alone.
    """
    mended = ScoredChains.of(sample.replace(scores=sample.scores / factor))
    return (
        2 * identities(mended).adjusted >= level and quadratic_p_value(mended, factor != 1) >= level
    )


def _which(sample: Sample, flagged: np.ndarray) -> str:
    if flagged.all() and sample.dim > 1:
        return "every coordinate"
    return list_names([coordinate_name(sample.names, j) for j in np.flatnonzero(flagged)])


def _details(sample: Sample, found: Identities, level: float) -> tuple[str, ...]:
    off, scaled = found.failures(level)
    failing = np.flatnonzero(off | scaled)
    lines = [
        f"{coordinate_name(sample.names, j)}: mean score {found.mean[j]:.3g} (should be 0), "
        f"mean of (x − m)·score {found.raw[j]:.3g} (should be −1)"
        for j in failing[:5]
    ]
    if len(failing) > 5:
        lines.append(f"… and {len(failing) - 5} more coordinates")
    if not len(failing):
        lines.append(
            "Over all coordinates, standardised: "
            f"mean of z·score / d is {found.trace:.3g} ± {found.trace_error:.2g} (should be −1)"
        )
    return tuple(lines)
