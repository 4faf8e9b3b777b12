"""Standard errors of means over chains, effective sizes and long-run covariances.

Effective sizes and R-hat are those of ArviZ (Vehtari et al. 2021), so that errors are those users
know. They are computed here, for all series at once: importing what ArviZ needs takes longer than a
small estimate.
"""

import numpy as np
from jaxtyping import Float64

from ..inputs.integrands import ROWS
from .ranks import normal_scores

Series = Float64[np.ndarray, "chain draw q"]

INDEPENDENT = 1.5  # below this autocorrelation time, draws count as independent
# Of a fit's arithmetic, relative to the size of the integrand: sums are made in tiles of so many
# rows, whose errors add up as their root
ROUNDING = np.sqrt(ROWS) * np.finfo(np.float64).eps
# Draws that differ, from which more than a spread can be told. Antithetic chains can be worth more
# than their length, but shorter ones cannot show it: noise in their autocorrelations would be taken
# for it. Of fewer scores or weights the shape of a tail is not known.
LONG_ENOUGH = 100
# Autocorrelation times in a block of a chain that counts as independent of the others. Blocks of
# one are too optimistic by up to a factor of two on chains with an autocorrelation of 0.9.
BLOCK_TIMES = 4
# By how much the slowest of q independent series of n draws seems slow: (6 + 2.2 log q) / √n,
# measured from 400 to 4000 draws and up to 80 series; of fewer draws its estimates are so noisy
# that it is not known
_LUCK, _MOST_LUCK = (6.0, 2.2), 0.6


def unit_size(series: Series) -> tuple[Series, Float64[np.ndarray, " q"]]:
    """Each series divided by its largest entry, and that entry: squares then neither vanish nor
    overflow."""
    size = np.abs(series).max(axis=(0, 1))
    size = np.where(size > 0, size, 1.0)
    return series / size, size


def is_constant(values: np.ndarray) -> bool:
    """Whether numbers are all the same up to rounding, as on the diagonal of a correlation
    matrix."""
    low, high = float(values.min()), float(values.max())
    return bool(high - low <= ROUNDING * max(abs(low), abs(high)))


def effective_size(series: Series) -> Float64[np.ndarray, " q"]:
    """Effective number of draws for each mean; the number of draws for a constant series."""
    chains, draws, _ = series.shape
    series = unit_size(series)[0]
    centred = series - series.mean(axis=(0, 1))
    spread = centred.std(axis=(0, 1))
    unit = centred / np.where(spread > 0, spread, 1.0)
    total = chains * draws
    size = _effective_size(_halves(unit)) if _has_halves(draws) else np.full(len(spread), np.nan)
    if draws < LONG_ENOUGH:
        size = np.minimum(size, total)
    return np.where((spread > 0) & np.isfinite(size), size, total)


def _effective_size(series: Series) -> Float64[np.ndarray, " q"]:
    """By Geyer's initial monotone sequence: autocorrelations are summed in pairs, none larger than
    the one before, up to the first pair that is not positive, and of this one the even lag if it
    is."""
    chains, draws, q = series.shape
    centred = series - series.mean(axis=1, keepdims=True)
    padded = 1 << (2 * draws).bit_length()
    waves = np.fft.rfft(centred, n=padded, axis=1)
    autocovariance = (
        np.fft.irfft(np.mean(np.abs(waves) ** 2, axis=0), n=padded, axis=0)[:draws] / draws
    )
    both = autocovariance[0] + series.mean(axis=1).var(axis=0, ddof=1)  # within and between chains
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = 1 - (autocovariance[0] * draws / (draws - 1) - autocovariance) / both
    correlation[0] = 1.0
    last = max((draws - 3) // 2, 0)
    even, odd = correlation[0 : 2 * last + 1 : 2], correlation[1 : 2 * last + 2 : 2]
    pairs = even + odd
    stop = np.where((pairs > 0).all(axis=0), last, (pairs > 0).argmin(axis=0))
    sums = np.concatenate(
        [np.zeros((1, q)), np.cumsum(np.minimum.accumulate(pairs, axis=0), axis=0)]
    )
    columns = np.arange(q)
    time = -1 + 2 * sums[stop, columns] + np.maximum(even[stop, columns], 0.0)
    return chains * draws / np.maximum(time, 1 / np.log10(chains * draws))


def _has_halves(draws: int) -> bool:
    """Whether half a chain has a variance: it takes two draws."""
    return draws // 2 >= 2


def _halves(series: Series) -> Float64[np.ndarray, "twice half q"]:
    """Each chain as two, so that a drift shows as chains that differ."""
    half = series.shape[1] // 2
    return np.concatenate([series[:, :half], series[:, -half:]])


def r_hat(series: Series) -> Float64[np.ndarray, " q"]:
    """Rank-normalised split R-hat, of the draws and of their distances from the median; 1 for a
    constant series, and for one chain, which has none."""
    chains, draws, q = series.shape
    if chains < 2 or not _has_halves(draws):
        return np.ones(q)
    split = _halves(unit_size(series)[0])
    folded = np.abs(split - np.median(split, axis=(0, 1)))
    found = np.fmax(
        *(
            _ratio_of_scales(normal_scores(each.reshape(-1, q)).reshape(each.shape))
            for each in (split, folded)
        )
    )
    return np.where(np.isfinite(found), found, 1.0)


def _ratio_of_scales(series: Series) -> Float64[np.ndarray, " q"]:
    """R-hat: the spread of all chains together against that within them."""
    draws = series.shape[1]
    between, within = (
        draws * series.mean(axis=1).var(axis=0, ddof=1),
        series.var(axis=1, ddof=1).mean(axis=0),
    )
    with np.errstate(invalid="ignore", divide="ignore"):  # 0 / 0 for a constant
        return np.sqrt((between / within + draws - 1) / draws)


def segment_distances(influences: Series, pieces: int = 5) -> Float64[np.ndarray, " q"]:
    """How far the mean of one of some segments of the chains is from that of all of them, at most,
    in its own standard errors; zero where the segments are too short to tell."""
    _, draws, q = influences.shape
    if draws < LONG_ENOUGH * pieces:
        return np.zeros(q)
    unit = unit_size(influences)[0]
    found = np.zeros(q)
    for piece in np.array_split(unit, pieces, axis=1):
        away = np.abs(piece.mean(axis=(0, 1)) - unit.mean(axis=(0, 1)))
        error = piece.std(axis=(0, 1), ddof=1) / np.sqrt(effective_size(piece))
        found = np.maximum(found, np.divide(away, error, out=np.zeros(q), where=error > 0))
    return found


def some_columns(array: Float64[np.ndarray, "n k"], limit: int = 40) -> np.ndarray:
    """At most `limit` columns, equally spaced: enough to tell how slow a chain is."""
    return array[:, some_places(array.shape[1], limit)]


def some_places(count: int, limit: int = 40) -> np.ndarray:
    """Which of the columns `some_columns` takes."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).astype(int))


def autocorrelation_time(series: Series) -> float:
    """The number of draws that count as one in the slowest of all q series.

    Of many series the slowest looks slow by chance. Unless it is slower than the slowest of q
    independent ones would be, in 19 of 20 cases, it counts as independent if at least half of the
    others do.
    """
    draws, q = series.shape[0] * series.shape[1], series.shape[2]
    times = draws / effective_size(series)
    slowest = times.max()
    chance = min((_LUCK[0] + _LUCK[1] * np.log(q)) / np.sqrt(draws), _MOST_LUCK)
    if slowest < 1 + chance + 4 * chance**3:
        slowest = max(min(slowest, np.nextafter(INDEPENDENT, 0)), np.median(times))
    return float(slowest)


def influences_on_mean(
    series: Series, probabilities: Float64[np.ndarray, " n"]
) -> tuple[Float64[np.ndarray, " q"], Series]:
    """The weighted mean (q,) of a series, and n times what each draw adds to it, about zero.

    `probabilities` (chain after chain) sum to one. A self-normalised weighted mean is, to first
    order, the plain mean of n p (r − mean): autocorrelation and weights at once.
    """
    unit, size = unit_size(series)
    flat = unit.reshape(-1, series.shape[2])
    mean = probabilities @ flat
    return size * mean, (size * len(flat) * probabilities[:, None] * (flat - mean)).reshape(
        series.shape
    )


def standard_error(
    influences: Series, scale: Float64[np.ndarray, " q"]
) -> Float64[np.ndarray, " q"]:
    """The scatter of the influences over the chains, at least the rounding of values of this
    `scale` (q,)."""
    unit, size = unit_size(influences)
    centred = unit - unit.mean(axis=(0, 1))
    spread = centred.reshape(-1, unit.shape[2]).std(axis=0, ddof=1)
    return np.maximum(size * spread / np.sqrt(effective_size(centred)), ROUNDING * scale)


def batch_sums(
    series: Float64[np.ndarray, "*k chain draw q"], autocorrelation: float
) -> Float64[np.ndarray, "*k b q"]:
    """Sums over segments of one autocorrelation time: the mean of their squares is the asymptotic
    variance, up to a factor."""
    draws = series.shape[-2]
    length = 1 if autocorrelation < INDEPENDENT else int(np.ceil(autocorrelation))
    batches = max(draws // length, min(draws, 4))
    return _batches(series, draws // batches).sum(axis=-2)


def _batches(
    series: Float64[np.ndarray, "*k chain draw q"], length: int
) -> Float64[np.ndarray, "*k b length q"]:
    """All chains cut into whole batches of `length` draws; what is left at the end of a chain falls
    away."""
    *front, chains, draws, q = series.shape
    count = draws // length
    return series[..., : count * length, :].reshape(*front, chains * count, length, q)


def relative_uncertainty(sums: Float64[np.ndarray, "b q"]) -> Float64[np.ndarray, " q"]:
    """The standard error of each mean square relative to it: √(2/b) if normal, near 1 if one entry
    rules."""
    squares = unit_size(sums[None])[0][0] ** 2
    mean, spread = squares.mean(axis=0), squares.std(axis=0) / np.sqrt(len(squares))
    return np.divide(spread, mean, out=np.zeros_like(mean), where=mean > 0)


def tail_share(series: Series) -> Float64[np.ndarray, " q"]:
    """How much of each series' variance its largest hundredth of draws carries: near 0.09 if
    normal, near 1 if a few rule."""
    flat = unit_size(series)[0].reshape(-1, series.shape[2])
    squares = np.sort((flat - flat.mean(axis=0)) ** 2, axis=0)
    total = squares.sum(axis=0)
    top = squares[-max(len(squares) // 100, 1) :].sum(axis=0)
    return np.divide(top, total, out=np.zeros_like(total), where=total > 0)


def covariance(influence: Series, errors: Float64[np.ndarray, " q"]) -> Float64[np.ndarray, "q q"]:
    """Covariance of the q means: long-run correlations by batch means, scaled to the standard
    errors.

    Batches are three autocorrelation times long, but leave at least twenty of them; one draw each
    for independent draws.
    """
    chains, draws, _ = influence.shape
    slowest = autocorrelation_time(influence)
    length = (
        1
        if slowest < INDEPENDENT
        else int(min(np.ceil(3 * slowest), max(chains * draws // 20, 1), draws))
    )
    means = _batches(influence, length).mean(axis=1)
    means = means - means.mean(axis=0)
    norm = np.linalg.norm(means, axis=0)
    unit = means / np.where(norm > 0, norm, 1.0)
    correlation = unit.T @ unit
    np.fill_diagonal(correlation, 1.0)
    return correlation * np.outer(errors, errors)
