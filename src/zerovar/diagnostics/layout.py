"""Chains that are not laid out as (chain, draw, d): equal ones, swapped axes, walkers one after the
other in one array."""

from collections.abc import Iterator

import numpy as np

from ..inputs.integrands import FEW_NUMBERS
from ..inputs.points import find_distinct
from ..inputs.sample import Sample
from ..statistics.series import INDEPENDENT, some_columns
from .identities import SHORTEST

# Share of the draws of a chain that come again, from which they are the same chain. Two resamples
# of one set share two thirds. By the same share, draws come back that were resampled.
_EQUAL = 0.9
# Of the distance to the fourth nearest draw, how near the nearest one is that is the same draw with
# rounding or noise: by chance 3 in 100 draws of one coordinate have one, and fewer of several.
_TWIN = 0.01
_SURE = 6.0  # standard errors: lags, coordinates and samples are many


def layout_mistakes(sample: Sample) -> Iterator[str]:
    """Say what is wrong with the layout, and what to do; nothing if it looks right."""
    yield from _equal_chains(sample)
    yield from _twins(sample)
    ranks = _ranks(sample)
    yield from _swapped_axes(ranks)
    if not sample.as_chains:
        yield from _interleaved_walkers(ranks)


def _equal_chains(sample: Sample) -> Iterator[str]:
    first, which = find_distinct(sample.draws)
    if len(first) == len(sample):
        return
    from scipy.sparse import coo_array

    rows = sample.by_chain(which)
    chains, draws = rows.shape
    chain = np.repeat(np.arange(chains), draws)
    has = coo_array((np.ones(len(sample), dtype=np.int32), (which, chain))).tocsr()
    has.data[:] = 1
    shared = (has.T @ has).tocoo()
    size = np.asarray(has.sum(axis=0)).ravel()
    a, b = shared.coords
    same = (a < b) & (shared.data >= _EQUAL * np.minimum(size[a], size[b]))
    if same.any():
        k = int(np.flatnonzero(same)[0])
        more = f" ({same.sum()} such pairs)" if same.sum() > 1 else ""
        yield (
            f"Chains {a[k]} and {b[k]} are the same draws{more}: they count once, and every error "
            "here would be too small. "
            "Give each chain once; if a sampler has made them, it has used one seed for all chains."
        )
    for c in range(chains):
        again = np.flatnonzero((rows[c, 1:] == rows[c, 0]) & (rows[c, :-1] != rows[c, 0]))[:5] + 1
        for p in map(int, again):
            if (
                len(first) > 3
                and np.mean(rows[c, p:] == rows[c, :-p]) >= _EQUAL
                and draws - p >= min(p, draws // 4)
            ):
                where = f"Chain {c} repeats itself" if chains > 1 else "The draws repeat themselves"
                yield (
                    f"{where} from draw {p} on: the same chain was given more than once, one "
                    "after the other. Give it once."
                )
                return


def _twins(sample: Sample) -> Iterator[str]:
    """Most draws are nearly equal to another: given twice, once in single precision perhaps."""
    from scipy.spatial import cKDTree  # imported when used, as others are that take long

    first, _ = find_distinct(sample.draws)
    if len(first) < SHORTEST:
        return
    x = some_columns(sample.draws[first], 3)  # what is near is so in each of the coordinates
    unit = (x - x.mean(axis=0)) / np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    asked = unit[:: max(len(unit) // 1000, 1)]
    distances, _ = cKDTree(unit).query(asked, k=5)  # itself first
    share = np.mean(distances[:, 1] < _TWIN * distances[:, 4])
    if share > 0.5:
        yield (
            f"{share:.0%} of the draws have a twin, another draw that is nearly the same "
            f"({np.median(distances[:, 1]):.1g} deviations away): the same draws were given more "
            "than once, rounded or with noise added. They count once, and every error here would "
            "be too small. Give each draw once."
        )


def undo_resampling(sample: Sample) -> Sample:
    """Return draws that were drawn again from a smaller set, as in importance resampling, each once
    with its number as a weight; other samples as they are.

    They come back after others. A rejected proposal repeats the draw just before, and that is a
    chain as it should be.
    """
    first, which = find_distinct(sample.draws)
    runs = sample.num_chains + np.count_nonzero(np.diff(sample.by_chain(which), axis=1))
    if len(first) >= _EQUAL * runs or len(first) < SHORTEST:
        return sample
    order = np.sort(first)
    counts = np.bincount(which, weights=sample.probabilities)[which[order]]
    return Sample(sample.draws[order], sample.scores[order], np.log(counts), sample.names)


def _ranks(sample: Sample) -> np.ndarray:
    """Ranks of some coordinates (chain, draw, k) among all draws, of mean zero and variance one:
    none is far from the rest."""
    n = len(sample)
    columns = some_columns(sample.draws, max(1, min(40, FEW_NUMBERS // n)))
    ranks = np.argsort(np.argsort(columns, axis=0, kind="stable"), axis=0, kind="stable")
    return sample.by_chain((ranks - (n - 1) / 2) * np.sqrt(12) / n)


def _least_correlation() -> float:
    """Return the correlation of neighbours from which draws follow each other: that of an
    AR(1) chain whose autocorrelation time is the least that counts as dependence."""
    return (INDEPENDENT - 1) / (INDEPENDENT + 1)


def _swapped_axes(ranks: np.ndarray) -> Iterator[str]:
    """Neighbouring chains follow each other, and neighbouring draws of a chain do not."""
    chains, draws, _ = ranks.shape
    if chains <= draws:
        return
    across = np.einsum("cnk,cnk->ck", ranks[:-1], ranks[1:]) / draws
    within = np.einsum("cnk,cnk->k", ranks[:, :-1], ranks[:, 1:]) / (chains * (draws - 1))
    mean = across.mean(axis=0)
    error = across.std(axis=0) / np.sqrt(len(across))
    if np.any((mean > _least_correlation()) & (mean > _SURE * error) & (np.abs(within) < mean / 2)):
        yield (
            f"The axes look swapped: {chains} chains of {draws} draws were given, and each chain "
            "follows the one before as draws of one chain do. (chain, draw, d) is expected; "
            "(draw, chain, d), as emcee's get_chain() has it, needs np.swapaxes(array, 0, 1), of "
            "draws, scores and values alike."
        )


def _interleaved_walkers(ranks: np.ndarray) -> Iterator[str]:
    """The first lag at which draws follow each other is not the first lag.

    No coordinate of interleaved walkers knows of the draw before. Chains by Hamiltonian steps,
    which go forth and back, have some that do.
    """
    chains, draws, k = ranks.shape
    if draws < SHORTEST:
        return
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    size = 2 ** int(np.ceil(np.log2(2 * draws)))
    power = np.abs(np.fft.rfft(centred, size, axis=1)) ** 2
    lags = np.fft.irfft(power.mean(axis=0), size, axis=0)[: draws // 4]
    lags = lags / np.where(lags[0] > 0, lags[0], 1.0)
    limit = max(_least_correlation(), _SURE / np.sqrt(chains * draws))
    if np.abs(lags[1]).max() > limit:
        return
    for j in range(k):
        high = np.flatnonzero(lags[1:, j] > limit) + 1
        if high.size and high[0] > 1 and np.abs(lags[1 : high[0], j]).max() < lags[high[0], j] / 3:
            walkers = int(high[0])
            yield (
                f"Each draw follows the one {walkers} before it, and none follows the one just "
                f"before: {walkers} walkers lie interleaved in one array. Give them as "
                f"chains: array.reshape(-1, {walkers}, d).swapaxes(0, 1), of draws, scores and "
                "values alike."
            )
            return
