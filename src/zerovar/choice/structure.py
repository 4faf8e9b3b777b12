"""Hierarchies found from draws and scores alone: which coordinates set the scale of which others.

Two regressions find them. Given a scale τ, the squared score of an effect has the mean 1/τ² + what
data add, so that its logarithm, regressed on the draws, has a slope along log τ: the scale's
parents. And given a power g of that scale, the score itself is linear in the effect and its
locations, each times g or not: the first regression's weights, all that `Effects` needs, and how
much of the score is left unexplained, which says whether there is such a structure at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int

from ..inputs.effects import POWERS, Effects
from ..inputs.sample import Sample
from ..statistics.tails import heavy_scores

# Change of log s² by a deviation of its scale's parent, from which effects are looked for. At 1000
# draws 0.7 to 2 on hierarchies with weak data, at most 0.42 on eleven posteriors (garch11), 0.23
# on normals, t, correlated normals in 2 to 100 dimensions, 0.8 on bananas, which fail what follows.
# Others of the same parent need half.
_STEEP = 0.5
# Share of the variance of an effect's score, in units of its scale, that may be left: 1e-27 with
# normal data, 0.004 with counts, 0.25 where effects are correlated, which then gain nothing; 0.28
# and more on a banana
_LEFT = 0.2
# Sum of squared correlations of a score with those of other effects, from which it is none of them:
# 1 for a location of theirs
_JOINT = 0.3
# Chance that one of all pairs is called steep where there is nothing
_CHANCE = 0.001
_ROUNDS = 3  # levels of a hierarchy, and scales of one level, that follow each other
_DRAWS = 2000  # that are looked at: 300 effects then take 0.7 s on one core


@dataclasses.dataclass(frozen=True, eq=False)
class Hierarchy:
    """Effects at some levels, one after another, as coordinates of a sample; the `first` so many
    were found in the coordinates of the draws, others in those after them."""

    levels: tuple[Effects, ...]
    first: int

    @property
    def bare(self) -> Hierarchy | None:
        """With the effects of the first level in units of their prior's scale, as in a non-centred
        form, whatever data add; None where that is nothing else, or the form that draws have."""
        levels = self.levels[: self.first]
        centred = not any(level.location[POWERS.index(0.5)].any() for level in levels)
        if not centred or not any(level.precision[1].any() for level in levels):
            return None
        return Hierarchy(tuple(level.bare() for level in levels), self.first)

    def __call__(self, sample: Sample) -> Sample:
        for level in self.levels:
            sample = level(sample)
        return sample

    def cure(self, sample: Sample) -> str:
        """What these coordinates do about scores without means, in words; nothing where some still
        have none."""
        there = self(sample)
        if heavy_scores(there.by_chain(there.scores)).any():
            return ""
        told = "; ".join(self.describe(sample.names))
        return f"Here {told}; control variates are tried in units of that spread."

    def describe(self, names: tuple[str, ...] | None) -> list[str]:
        """What was found, in words."""
        return [level.describe(names) for level in self.levels]


class _Pool(NamedTuple):
    """Effects that may have a scale in common: their numbers, that of its parent, and the median
    slope of log s² by it."""

    effects: Int[np.ndarray, " k"]
    parent: int
    slope: float


def find_hierarchy(sample: Sample, effective: float) -> Hierarchy | None:
    """Look for effects; `effective` is how many independent draws the sample is worth."""
    if sample.weights is not None or sample.dim < 2 or not sample.space.is_flat:
        return None
    with np.errstate(all="ignore"):  # powers of scales may overflow: then there is no such map
        try:
            found = _search(sample, effective)
        except np.linalg.LinAlgError:
            return None
        forms = () if found is None else (found, found.bare or found)
        there = [form(sample) for form in forms]
    finite = all(np.isfinite(one.draws).all() and np.isfinite(one.scores).all() for one in there)
    return found if finite else None


def _search(sample: Sample, effective: float) -> Hierarchy | None:
    effective *= min(1.0, _DRAWS / len(sample))
    sample, levels, first = sample.thin(_DRAWS)[0], list[Effects](), 0
    for _ in range(_ROUNDS):
        mapped = set[int]()
        for pool in _pools(sample, effective):
            if pool.parent in mapped:
                continue  # its own scale has changed
            found = _fit(sample, pool)
            if found is not None and len(pool.effects) == 1 < len(found.locations):
                found = _swap(sample, pool, found)
            if found is not None:
                sample = found(sample)
                levels.append(found)
                mapped |= set(found.effects.tolist())
        if not mapped:
            break
        first = first or len(levels)
    return Hierarchy(tuple(levels), first) if levels else None


def _threshold(tests: int) -> float:
    """Deviations that none of so many normal numbers is beyond, but for chance."""
    return float(np.sqrt(2 * np.log(tests / _CHANCE)))


def _pools(sample: Sample, effective: float) -> Iterator[_Pool]:
    """By parent, the largest first: coordinates whose log squared scores follow it, less those that
    are locations of the others."""
    x, s = sample.draws, sample.scores
    n, d = x.shape
    spread = x.std(axis=0)
    if not spread.min() > 0:
        return
    z = (x - x.mean(axis=0)) / spread
    slopes, errors = _slopes(z, s)
    errors *= np.sqrt(n / effective)
    parents = np.abs(slopes / errors).argmax(axis=0)
    each = np.arange(d)
    own, error = slopes[parents, each], errors[parents, each]
    clear = np.abs(own) > np.maximum(_threshold(d * d) * error, _STEEP / 2)
    pools = []
    for parent in np.unique(parents[clear]):
        ours = clear & (parents == parent)
        steepest = own[ours][np.abs(own[ours]).argmax()]
        ours &= own * np.sign(steepest) > 0
        if abs(steepest) > _STEEP:
            # scores in units of their scale
            unit = s[:, ours] * np.exp(-z[:, [parent]] * own[ours] / 2)
            kept = np.flatnonzero(ours)[_apart(unit)]
            pools.append(_Pool(kept, int(parent), float(np.median(own[kept]) / spread[parent])))
    yield from sorted(pools, key=lambda pool: -len(pool.effects))


def _slopes(
    z: Float64[np.ndarray, "n d"], s: Float64[np.ndarray, "n d"]
) -> tuple[Float64[np.ndarray, "d d"], Float64[np.ndarray, "d d"]]:
    """Slopes [k, j] of log s_j² by z_k, and their errors, besides what a parabola in z_j explains;
    none along itself."""
    square = s * s
    # a score near zero is near zero by chance
    level = np.maximum(np.median(square, axis=0), np.finfo(float).tiny)
    logs = np.log(square / level + 0.1)
    bent = z * z - 1
    bent -= z * np.mean(z * bent, axis=0)
    bent /= np.maximum(np.sqrt(np.mean(bent**2, axis=0)), np.finfo(float).tiny)
    logs -= logs.mean(axis=0)
    for own in (z, bent):
        logs -= own * np.mean(own * logs, axis=0)
    slopes = z.T @ logs / len(z)
    np.fill_diagonal(slopes, 0.0)
    errors = np.maximum(logs.std(axis=0), np.finfo(float).tiny) / np.sqrt(len(z))
    return slopes, np.broadcast_to(errors, slopes.shape).copy()


def _apart(scores: Float64[np.ndarray, "n k"]) -> Int[np.ndarray, " m"]:
    """Which of some coordinates are no locations of the others: by Stein's identity, the scores of
    an effect and its location are correlated as much as the density couples them."""
    n, k = scores.shape
    # where data tell much of an effect its scale is not known yet, and its tail would rule
    unit = np.clip(scores / np.median(np.abs(scores), axis=0), -4, 4)
    unit /= np.sqrt(np.mean(unit**2, axis=0))
    joint = (unit.T @ unit / n) ** 2 - 1 / n  # less what chance gives
    np.fill_diagonal(joint, 0.0)
    kept, total = np.ones(k, dtype=bool), joint.sum(axis=1)
    while kept.sum() > 1:
        worst = int(np.where(kept, total, -1.0).argmax())
        if total[worst] < _JOINT:
            break
        kept[worst] = False
        total -= joint[worst]
    return np.flatnonzero(kept)


def _swap(sample: Sample, pool: _Pool, found: Effects) -> Effects:
    """What one coordinate and its locations are the other way round, if that takes in more of them:
    a mean of groups of which data tell much has a steeper slope than they have."""
    others = _fit(sample, pool._replace(effects=found.locations))
    return found if others is None or len(others.effects) < 2 else others


class _Fit(NamedTuple):
    """Scores as a linear function, for k effects and c other columns at each power of g: the
    precision A and B, the location, whether each of its terms and A are beyond chance in units of
    their errors, and the share of the scores' variance that is left."""

    precision: Float64[np.ndarray, "2 k"]
    location: Float64[np.ndarray, "3 c k"]
    clarity: Float64[np.ndarray, "3 c k"]
    prior_clarity: Float64[np.ndarray, " k"]
    left: Float64[np.ndarray, " k"]


def _fit(sample: Sample, pool: _Pool) -> Effects | None:
    """The effects of a pool in units of their scale, if their scores are linear that far."""
    origin, rest = np.median(sample.draws, axis=0), _locations(sample, pool)
    columns = np.append(0, rest + 1)  # a constant, and other coordinates
    tried = _exponents(pool.slope)
    few = sample.thin(_DRAWS // 2)[0]
    some = pool.effects[:: -(-len(pool.effects) // (_DRAWS // 100))]
    fits = [_regress(few, origin, pool, *one, some, columns) for one in tried]
    best = min(range(len(tried)), key=lambda k: float(np.median(fits[k].left)))
    if not (fits[best].left < _LEFT).any():
        return None
    fit = _regress(sample, origin, pool, *tried[best], pool.effects, columns)
    used = np.any(fit.clarity > _threshold(fit.clarity.size), axis=(0, 2))
    used[0] = True
    columns = columns[used]
    # others may be effects of the same scale, too, that data hide
    effects = np.setdiff1d(np.arange(sample.dim), [pool.parent, *(columns[1:] - 1)])
    fit = _regress(sample, origin, pool, *tried[best], effects, columns)
    kept = (fit.left < _LEFT) & (fit.prior_clarity > _threshold(len(effects)))
    if not kept.any():
        return None
    return Effects(
        effects[kept],
        np.array([pool.parent]),
        np.array([tried[best][0]]),
        columns[1:] - 1,
        fit.precision[:, kept],
        fit.location[..., kept],
        origin,
    )


def _exponents(slope: float) -> list[tuple[float, tuple[bool, ...]]]:
    """Exponents to try, and which powers of g a location then has: of the prior and of data where
    effects are centred, of data where they are not. Those of a scale or its square on a logarithmic
    scale are among them. What data add makes the slope of the whole less steep."""
    some = [*(slope * np.array([1.0, 1.25, 1.6, 2.0, 2.5])), -2.0, -1.0, 1.0, 2.0]
    powers = [tuple(power != 0.5 for power in POWERS), tuple(power == 0.5 for power in POWERS)]
    steep = [float(one) for one in some if one / slope > 0.8]
    return [(one, each) for one in steep for each in powers[: 1 if slope < 0 else 2]]


def _locations(sample: Sample, pool: _Pool) -> Int[np.ndarray, " l"]:
    """Other coordinates that may be in an effect's location: those whose scores go with the
    effects' most, if they are more than draws and time allow."""
    rest = np.setdiff1d(np.arange(sample.dim), pool.effects)
    most = min(_DRAWS, len(sample)) // 40  # 10 of 1000 draws did not show all of twenty regions
    if len(rest) <= most:
        return rest
    along = sample.draws[:, [pool.parent]]
    size = np.exp(-pool.slope * (along - np.median(along)) / 2)
    effects, others = (
        one / np.sqrt(np.sum(one**2, axis=0))
        for one in (size * sample.scores[:, pool.effects], size * sample.scores[:, rest])
    )
    joint = np.sum((others.T @ effects) ** 2, axis=1)
    return np.sort(rest[np.argsort(-joint)[:most]])


def _regress(
    sample: Sample,
    origin: Float64[np.ndarray, " d"],
    pool: _Pool,
    exponent: float,
    powers: tuple[bool, ...],
    effects: Int[np.ndarray, " k"],
    columns: Int[np.ndarray, " c"],
) -> _Fit:
    """Regress scores of effects on −g θ, −θ, and columns times some powers of g. An effect of which
    data say nothing has only terms of the prior."""
    x, s = sample.draws - origin, sample.scores[:, effects]
    growth = np.exp(exponent * x[:, pool.parent])
    every = np.concatenate([np.ones((len(x), 1)), x], axis=1)[:, columns]
    start = np.exp(-pool.slope * x[:, pool.parent] / 2)

    def solve(terms: np.ndarray, data: bool) -> _Fit:
        each = zip(POWERS, terms, strict=True)
        others = np.concatenate([growth[:, None] ** one * every[:, some] for one, some in each], 1)
        return _solve(growth, others, terms, x[:, effects], s, start, data)

    terms = np.repeat(np.array(powers)[:, None], len(columns), axis=1)
    terms[:, 0] |= np.array(POWERS) != 0.5  # what is subtracted from effects
    fit = solve(terms, data=True)
    bare = fit.precision[1] == 0
    if bare.any():
        alone = solve(terms & (np.array(POWERS) == 1)[:, None], data=False)
        both = zip(alone, fit, strict=True)
        fit = _Fit(*(np.where(bare, one, other) for one, other in both))
    return fit


def _solve(
    growth: Float64[np.ndarray, " n"],
    others: Float64[np.ndarray, "n t"],
    terms: Bool[np.ndarray, "3 c"],
    own: Float64[np.ndarray, "n k"],
    s: Float64[np.ndarray, "n k"],
    weights: Float64[np.ndarray, " n"],
    data: bool,
) -> _Fit:
    """The regression of all effects at once. Rows are weighted by the root of one over the median
    effect's precision, which is found along the way."""
    (n, t), k = others.shape, own.shape[1]
    size = np.maximum(np.sqrt(np.mean(others**2, axis=0)), np.finfo(float).tiny)
    for _ in range(3):
        basis, root = np.linalg.qr(weights[:, None] * others / size)
        whole = [weights[:, None] * one for one in (-growth[:, None] * own, -own, s)]
        prior, by_data, target = (one - basis @ (basis.T @ one) for one in whole)
        pp, pd, dd = (
            np.sum(a * b, axis=0) for a, b in ((prior, prior), (prior, by_data), (by_data, by_data))
        )
        pt, dt = (np.sum(one * target, axis=0) for one in (prior, by_data))
        # the two are one where the scale hardly varies
        det = np.maximum(pp * dd - pd**2, np.finfo(float).eps * pp * dd)
        a, b = (dd * pt - pd * dt) / det, (pp * dt - pd * pt) / det
        noise = np.sum((target - a * prior - b * by_data) ** 2, axis=0) / max(n - t - 2, 1)
        seen = (b > 2 * np.sqrt(noise * pp / det)) & data
        a, b = np.where(seen, a, pt / pp), np.where(seen, b, 0.0)
        typical = np.median(a) * growth + np.median(b)
        if not typical.min() > 0:
            break
        weights = 1 / np.sqrt(typical)
    left = target - a * prior - b * by_data
    variance = np.mean(whole[2] ** 2, axis=0)
    share = np.sum(left**2, axis=0) / max(n - t - 2, 1) / variance
    inverse = np.linalg.pinv(root)
    found = inverse @ (basis.T @ (whole[2] - a * whole[0] - b * whole[1]))
    # of an exact fit rounding is left. Scores that are not linear have errors that are not equal
    noise = np.maximum(share, np.sqrt(np.finfo(float).eps)) * variance
    squares = np.maximum(
        np.sum(inverse**2, axis=1)[:, None] * noise, (inverse @ basis.T) ** 2 @ left**2
    )
    location, clarity = np.zeros((2, *terms.shape, k))
    location[terms] = found / size[:, None]
    clarity[terms] = np.abs(found) / np.sqrt(np.maximum(squares, np.finfo(float).tiny))
    return _Fit(
        np.stack([a, b]),
        location,
        clarity,
        a / np.sqrt(noise * np.where(seen, dd / det, 1 / pp)),
        share,
    )
