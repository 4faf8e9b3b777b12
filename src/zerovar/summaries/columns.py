"""The columns of a table: ArviZ's, and those by control variates."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..choice import Request
from ..distributions.highest_density import estimate_hdi, shortest
from ..distributions.quantiles import estimate_quantiles
from ..inputs.sample import Sample
from ..output import Estimate
from ..output.record import gain_of
from ..probabilities import MOST_LINES, estimate_with_events
from ..session import Session
from ..statistics.quantiles import quantile_errors, weighted_quantile
from ..statistics.series import influences_on_mean, is_constant, standard_error
from ..statistics.tails import end_at_one
from .tables import REASON, NamedColumns

# Evaluations of the log density along lines, up to a hundred for each draw and quantity, that are
# made without being asked for: they take at most about ten seconds
_PER_LINE, _MOST_EVALUATIONS = 100, 5_000_000


class Above(NamedTuple):
    """That a value is above a level."""

    label: str
    level: float


def plain_columns(
    values: NamedColumns, prob: float, kind: str, sample: Sample | None
) -> NamedColumns:
    """ArviZ's numbers; means and deviations with the weights of the sample, if it has some."""
    from arviz_stats.base import array_stats

    stacked = np.stack([np.asarray(array, np.float64) for array in values.values()], axis=2)
    axes = {"chain_axis": 0, "draw_axis": 1}
    n = stacked.shape[0] * stacked.shape[1]
    p = np.full(n, 1 / n) if sample is None else sample.probabilities
    shares = np.array([(1 - prob) / 2, 0.5, (1 + prob) / 2])
    flat = stacked.reshape(n, -1)
    lower, median, upper = np.transpose([weighted_quantile(x, p, shares) for x in flat.T])
    if kind == "hdi":
        lower, upper = np.transpose([shortest(x, p, prob) for x in flat.T])
    mean, of_mean = influences_on_mean(stacked, p)
    variance, of_variance = influences_on_mean((stacked - mean) ** 2, p)
    nothing, deviation = np.zeros(len(mean)), np.sqrt(variance)
    # a constant has no r_hat, nor an error of its deviation: NaN, as in ArviZ
    with np.errstate(all="ignore"):
        return {
            "mean": mean,
            "sd": deviation / np.sqrt(1 - np.sum(p**2)),
            "lb": lower,
            "ub": upper,
            "ess_bulk": array_stats.ess(stacked, method="bulk", **axes),
            "ess_tail": array_stats.ess(stacked, method="tail", prob=(0.05, 0.95), **axes),
            "r_hat": array_stats.rhat(stacked, **axes),
            "median": median,
            "mad": np.median(np.abs(flat - median), axis=0),
            "ess_median": array_stats.ess(stacked, method="median", **axes),
            "mcse_median": np.ravel(
                [quantile_errors(stacked[..., k], p, shares[1:2]) for k in range(flat.shape[1])]
            ),
            "mcse_mean": standard_error(of_mean, nothing),
            "mcse_sd": standard_error(of_variance, nothing) / (2 * deviation),
        }


def control_means(
    session: Session,
    values: NamedColumns,
    chances: Mapping[str, Above],
    plain: NamedColumns,
    request: Request,
) -> NamedColumns:
    """Means of f, then of (f − mean)², whose square root is the deviation.

    Squares are taken about the controlled mean: there the derivative of Var f = E[(f − c)²] − (E f
    − c)² in E f vanishes, so that by the delta method the error of the variance is that of E[(f −
    c)²]. They come second, so that squares and indicators cannot spoil the control variates of the
    means, and begin with what was tuned for those.
    """
    q = len(values)
    answer = session.estimate(values, request=request)
    means = zip(values.items(), answer.value, strict=True)
    squares = {f"variance of {name}": (array - mean) ** 2 for (name, array), mean in means}
    moving = ~np.array([is_constant(array) for array in values.values()])
    kept = [name for name, so in zip(squares, moving, strict=True) if so]
    asked = {name: squares[name] for name in kept} | {
        name: f"{event.label} > {event.level!r}" for name, event in chances.items()
    }
    arrays = [np.asarray(array, np.float64) for array in values.values()]
    low, high = (np.array([end(array) for array in arrays]) for end in (np.min, np.max))
    ends = end_at_one(low, high, len(session.sample))
    bounded = [name for name, so in zip(squares, ends, strict=True) if so]
    second = None
    if asked:
        second, _ = estimate_with_events(session, asked, None, request, bounded)
    variance, error = np.zeros((2, q))
    if second is not None:
        variance[moving], error[moving] = second.value[: len(kept)], second.std_error[: len(kept)]
    sd = np.sqrt(np.maximum(variance, 0.0))
    error = np.divide(error, 2 * sd, out=np.where(moving, np.inf, 0.0), where=sd > 0)
    own = {name: np.where(moving, plain[name][:q], 0.0) for name in ("sd", "mcse_sd")}
    # a family that was asked for is reported as it is, where it makes a deviation at all
    lost = ~(error < own["mcse_sd"]) if request.automatic else ~np.isfinite(error)
    sd, error = np.where(lost, own["sd"], sd), np.where(lost, own["mcse_sd"], error)
    both = [answer] if second is None else [answer, second]
    rows = [np.arange(q), len(kept) + np.arange(len(chances))]

    def join(key: str) -> np.ndarray:
        """A field of all rows: of means first, then of probabilities."""
        pairs = zip(both, rows, strict=False)
        return np.concatenate([np.asarray(getattr(one, key))[some] for one, some in pairs])

    none = np.full(len(chances), np.nan)
    deviations = {"cv_sd": sd, "cv_mcse_sd": error, "gain_sd": gain_of(own["mcse_sd"], error)}
    # an event that every draw shows, or none, has a bound for an error, and no effective draws
    still = np.append(~moving, np.zeros(len(chances), dtype=bool))
    return {
        "mcse_mean": np.where(still, join("plain_std_error"), plain["mcse_mean"]),
        "cv_mean": join("value"),
        "cv_mcse_mean": join("std_error"),
        "gain": join("gain"),
        "cv_ess": np.where(still, np.nan, gain_of(plain["sd"], join("std_error"))),
        REASON: join("error_reasons"),
    } | {name: np.append(column, none) for name, column in deviations.items()}


class Interval(NamedTuple):
    """Which interval is wanted, and whether medians are too."""

    prob: float
    kind: str
    median: bool


def control_intervals(
    session: Session,
    names: list[str],
    rows: int,
    wanted: Interval,
    request: Request,
    notes: list[str],
) -> NamedColumns:
    """Ends of intervals, and medians, by control variates; nothing where they would take long."""
    thinned = session.thin(MOST_LINES)
    cost = _PER_LINE * len(thinned.sample) * len(names)
    if cost > _MOST_EVALUATIONS and session.density is not None:
        notes.append(
            f"Controlled intervals of {len(names)} quantities would take about {cost:.0e} "
            "evaluations of the log density and are left out: choose some by var_names, or call "
            "zv.interval."
        )
        return {}
    if thinned is not session:
        notes.append(f"Controlled intervals rest on {len(thinned.sample)} of the draws.")
    lower, upper = (1 - wanted.prob) / 2, (1 + wanted.prob) / 2
    shares = {"lb": lower, "ub": upper} if wanted.kind == "eti" else {}
    shares |= {"median": 0.5} if wanted.median else {}
    columns: NamedColumns = {}
    if shares:
        probs = np.array(list(shares.values()))
        found = estimate_quantiles(thinned, names, probs, request, list(shares))
        columns |= _by_title(found, list(shares), rows)
    if wanted.kind == "hdi":
        ends = ["lb", "ub"]
        columns |= _by_title(estimate_hdi(thinned, names, wanted.prob, ends, request), ends, rows)
    return columns


def _by_title(found: Estimate, titles: list[str], rows: int) -> NamedColumns:
    """Columns of so many rows, with nothing in those beyond the quantities'."""
    columns = {}
    for k, title in enumerate(titles):
        for name, key in (("cv_", "value"), ("cv_mcse_", "std_error"), ("gain_", "gain")):
            own = getattr(found, key)[k :: len(titles)]
            columns[f"{name}{title}"] = np.append(own, np.full(rows - len(own), np.nan))
    return columns
