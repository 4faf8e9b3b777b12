"""summary(): the table that users of ArviZ read, with control-variate means and deviations beside
the plain ones."""

import importlib
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .adapters import recognise
from .adapters.base import label_entries
from .adapters.chunks import fetch_posterior
from .adapters.recognition import name_values
from .arguments import FLAG, SHARE, Requirement, instance, one_of, takes, whole
from .choice import CHOICE, SCORE_ERROR, Automatic, Request
from .chunked import is_chunked
from .distributions.highest_density import estimate_hdi, shortest
from .distributions.quantiles import estimate_quantiles
from .errors import SampleWarning, list_names, missing_package, repeat_warnings, warn
from .families import Family
from .inputs.sample import Posterior, Sample, as_float
from .output import Estimate
from .output.formatting import format_count, plus_minus, worth
from .output.record import gain_of
from .probabilities import MOST_LINES, estimate_with_events
from .session import Session
from .statistics.quantiles import quantile_errors, weighted_quantile
from .statistics.series import influences_on_mean, is_constant, standard_error
from .statistics.tails import end_at_one
from .variables import FILTER, VAR_NAMES, select_variables, variable

_REASON = "error_reason"
_ARVIZ = ("mean", "sd", "lb", "ub", "ess_bulk", "ess_tail", "r_hat", "mcse_mean", "mcse_sd")
_ENDS = ("cv_lb", "cv_ub", "cv_mcse_lb", "cv_mcse_ub")
_ALL = (
    *_ARVIZ,
    *("cv_mean", "cv_mcse_mean", "gain", "cv_ess", "cv_sd", "cv_mcse_sd", "gain_sd"),
    *_ENDS,
    _REASON,
)
_MEDIAN = (
    *("median", "mad", "lb", "ub", "ess_median", "ess_tail", "r_hat", "mcse_median"),
    *("cv_median", "cv_mcse_median", "gain_median"),
    *_ENDS,
)
_STATS = {f"{cv}{name}" for cv in ("", "cv_") for name in ("mean", "sd", "median", "lb", "ub")}
_STATS.add("mad")
_KINDS = {
    f"{kind}{suffix}": tuple(
        name for name in columns if kind == "all" or (name in _STATS) == (kind == "stats")
    )
    for suffix, columns in (("", _ALL), ("_median", _MEDIAN))
    for kind in ("all", "stats", "diagnostics")
}
# Evaluations of the log density along lines, a hundred for each draw and quantity, that are made
# without being asked for: they take about ten seconds
_PER_LINE, _MOST_EVALUATIONS = 100, 5_000_000
_Named = dict[str, np.ndarray]


def _rounding(value: Any) -> int | str | None:
    words = {"auto": "auto", "none": None, "None": None, None: None}
    return words[value] if value in words else whole(-sys.maxsize, sys.maxsize).read(value)


@takes(
    var_names=VAR_NAMES,
    filter_vars=FILTER,
    prob=SHARE,
    above=instance(Mapping, "a dict of name → number, or numbers"),
    kind=one_of(*_KINDS),
    ci_kind=one_of("eti", "hdi"),
    intervals=FLAG,
    round_to=Requirement("'auto', a number of decimals, or None", _rounding),
    fmt=one_of("wide", "xarray"),
    family=CHOICE,
    score_error=SCORE_ERROR,
    seed=whole(0),
)
def summary(
    data: Any,
    scores: Any = None,
    *,
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    prob: float = 0.89,
    above: Mapping[str, float | Sequence[float]] | None = None,
    kind: str = "all",
    ci_kind: str = "eti",
    intervals: bool = True,
    round_to: int | str | None = "auto",
    fmt: str = "wide",
    family: Family | Automatic | None = None,
    score_error: float | str = 0.0,
    seed: int = 0,
) -> Any:
    """A table with one row a quantity: ArviZ's columns, and beside them the same means, deviations
    and intervals by control variates.

    data: what an adapter returns (`zv.from_numpyro(mcmc)`), NumPyro's MCMC itself, an InferenceData
        or DataTree that has gradients, or an array of draws (chain, draw) or (chain, draw, d) with
        their scores. An array without scores gets the plain columns only.
    var_names, filter_vars: which variables, as in ArviZ: names, or with "~" in front those to leave
        out; `filter_vars="like"` for parts of names, "regex" for regular expressions.
    prob, ci_kind: of the interval, "eti" with equal tails or "hdi" of the highest density.
    above: name → c, or several, for rows with the probabilities P(name > c).
    kind: "all" numbers, "stats" (means, deviations, intervals) or "diagnostics" (errors, effective
        sizes, r_hat, gains, and in words what the errors rest on); "all_median", "stats_median" and
        "diagnostics_median" have medians in place of means.
    intervals: False to leave controlled intervals out, which take most of the time.
    round_to: "auto" for a table to read, of texts with two digits of each error; None for plain
        numbers; a number of decimals.
    fmt: "wide" for a pandas DataFrame, "xarray" for a Dataset over the dimension `quantity`.
    family, score_error, seed: as in `estimate`; by default control variates are chosen for each
        quantity.

    Columns: mean, sd, eti89_lb, eti89_ub, ess_bulk, ess_tail, r_hat, mcse_mean, mcse_sd are plain,
    as ArviZ has them; mcse_sd is computed here, from the effective size of (f − mean)², as versions
    of ArviZ differ in it. cv_mean ± cv_mcse_mean is the mean by control variates, gain = (mcse_mean
    / cv_mcse_mean)² how many times more draws plain averaging would need, and cv_ess = (sd /
    cv_mcse_mean)² how many independent ones; cv_sd ± cv_mcse_sd and gain_sd likewise, from a
    control variate for (f − cv_mean)² and the delta method. The variance is cv_sd², with the error
    2 cv_sd cv_mcse_sd. Where control variates are chosen, a gain is never below 1: where nothing
    helps, value and error are the plain ones. cv_eti89_lb ± cv_mcse_eti89_lb and the upper end are
    those of `zv.interval`, cv_median ± cv_mcse_median that of `zv.quantile`. error_reason says what
    cv_mcse_mean rests on; in a data frame with all numbers it is left to
    `table.attrs["error_reasons"]`.
    """
    request = Request(family, seed=seed, score_error=score_error)
    _module(fmt)  # what is missing is said before the work
    posterior = _posterior(data, scores)
    values = select_variables(posterior.values, var_names, filter_vars)
    chances = _exceedances(values, above or {})
    seen = {name: values[event.label] > event.level for name, event in chances.items()}
    everything = values | seen
    session = None if posterior.scores is None else Session.of(posterior)
    columns = _plain(everything, prob, ci_kind, None if session is None else session.sample)
    # an indicator has no interval
    columns["lb"][len(values) :] = columns["ub"][len(values) :] = np.nan
    notes: list[str] = []
    if session is not None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if not kind.endswith("_median"):
                columns |= _control(session, values, chances, columns, request)
            if intervals and request.automatic is not None:
                ends = _Interval(prob, ci_kind, kind.endswith("_median"))
                columns |= _quantiles(session, list(values), len(everything), ends, request, notes)
        repeat_warnings(caught)
    notes += _discrete(values, columns.get("gain"))
    reasons = columns.pop(_REASON, None)
    shown: dict[str, Any] = columns
    if round_to == "auto" and fmt == "wide":
        shown = {name: _texts(name, columns) for name in columns}
    elif isinstance(round_to, int):
        shown = {name: [round(x, round_to) for x in map(float, columns[name])] for name in columns}
    if reasons is not None and (kind, fmt) != ("all", "wide"):  # wider than a terminal
        shown = {**shown, _REASON: list(reasons)}
    own = f"{ci_kind}{100 * prob:g}_"
    kept = {
        re.sub("(lb|ub)$", rf"{own}\1", name): shown[name] for name in _KINDS[kind] if name in shown
    }
    table = _table(kept, list(everything), notes, fmt)
    if reasons is not None and fmt == "wide":
        table.attrs["error_reasons"] = dict(zip(everything, reasons.tolist(), strict=True))
    return table


def _posterior(data: Any, scores: Any) -> Posterior:
    posterior = recognise(data)
    if posterior is not None and scores is not None:
        raise ValueError(f"scores go with an array of draws; a {type(data).__name__} has its own")
    if posterior is not None:
        # quantiles need all draws at once
        return name_values(fetch_posterior(posterior) if is_chunked(posterior.draws) else posterior)
    draws = as_float("data", data)
    if draws.ndim not in (2, 3):
        kinds = (
            "an adapter's Posterior, NumPyro's MCMC, an InferenceData, a DataTree, or draws "
            "(chain, draw) or (chain, draw, d)"
        )
        raise ValueError(f"data must be {kinds}; got an array of shape {draws.shape}")
    if draws.shape[1] < 4:
        raise ValueError(
            "data must have at least 4 draws a chain, (chain, draw) or (chain, draw, d); got "
            f"shape {draws.shape}"
        )
    values = label_entries({"x": draws})
    if scores is None:
        text = (
            "no scores were given, so that there is nothing to make control variates from: the "
            "table has plain columns only"
        )
        warn(text, SampleWarning)
        return Posterior(draws, None, values)
    scores = as_float("scores", scores)
    if scores.shape != draws.shape:
        raise ValueError(
            f"scores must have the shape of the draws, {draws.shape}; got {scores.shape}"
        )
    shape = (*draws.shape[:2], -1)
    return Posterior(draws.reshape(shape), scores.reshape(shape), values, tuple(values))


class _Above(NamedTuple):
    """That a value is above a level."""

    label: str
    level: float


def _exceedances(values: _Named, above: Mapping[str, Any]) -> dict[str, _Above]:
    found: dict[str, _Above] = {}
    for name, bound in above.items():
        labels = [label for label in values if name in (label, variable(label))]
        if not labels:
            raise ValueError(
                f"above: {name!r} is none of "
                f"{list_names(list(dict.fromkeys(map(variable, values))))}"
            )
        bounds = np.atleast_1d(np.asarray(bound))
        if bounds.dtype.kind not in "fiu" or bounds.ndim > 1 or not np.isfinite(bounds).all():
            raise ValueError(
                f"above[{name!r}] must be a finite number, or a list of them; got {bound!r}"
            )
        for c in bounds:
            found |= {f"P({label} > {c:g})": _Above(label, float(c)) for label in labels}
    return found


def _discrete(values: _Named, gains: np.ndarray | None) -> list[str]:
    """What is to be said of discrete quantities that control variates have not helped."""
    if gains is None:
        return []
    rows = zip(values.items(), gains, strict=False)
    whole = [name for (name, array), gain in rows if array.dtype.kind in "iub" and gain <= 1]
    if not whole:
        return []
    text = (
        f"{list_names(whole)}: discrete, and not helped. Control variates are made of gradients in "
        "the other parameters: average probabilities given those, in place of what was drawn."
    )
    warn(text, SampleWarning)
    return [text]


class _Interval(NamedTuple):
    """Which interval is wanted, and whether medians are too."""

    prob: float
    kind: str
    median: bool


def _quantiles(
    session: Session,
    names: list[str],
    rows: int,
    wanted: _Interval,
    request: Request,
    notes: list[str],
) -> _Named:
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
    columns: _Named = {}
    if shares:
        probs = np.array(list(shares.values()))
        found = estimate_quantiles(thinned, names, probs, request, list(shares))
        columns |= _by_title(found, list(shares), rows)
    if wanted.kind == "hdi":
        ends = ["lb", "ub"]
        columns |= _by_title(estimate_hdi(thinned, names, wanted.prob, ends, request), ends, rows)
    return columns


def _by_title(found: Estimate, titles: list[str], rows: int) -> _Named:
    """Columns of so many rows, with nothing in those beyond the quantities'."""
    columns = {}
    for k, title in enumerate(titles):
        for name, key in (("cv_", "value"), ("cv_mcse_", "std_error"), ("gain_", "gain")):
            own = getattr(found, key)[k :: len(titles)]
            columns[f"{name}{title}"] = np.append(own, np.full(rows - len(own), np.nan))
    return columns


def _plain(values: _Named, prob: float, kind: str, sample: Sample | None) -> _Named:
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


def _control(
    session: Session,
    values: _Named,
    chances: Mapping[str, "_Above"],
    plain: _Named,
    request: Request,
) -> _Named:
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
    return {
        "cv_mean": join("value"),
        "cv_mcse_mean": join("std_error"),
        "gain": join("gain"),
        "cv_ess": gain_of(plain["sd"], join("std_error")),
        _REASON: join("error_reasons"),
    } | {name: np.append(column, none) for name, column in deviations.items()}


_ERROR_OF = {"mean": "mcse_mean", "lb": "mcse_mean", "ub": "mcse_mean", "sd": "mcse_sd"}
_ERROR_OF |= {"median": "mcse_median", "mad": "mcse_median"}
_ERROR_OF |= {f"cv_{name}": f"cv_mcse_{name}" for name in ("mean", "sd", "median", "lb", "ub")}


def _texts(name: str, columns: _Named) -> list[str]:
    """A column for reading: numbers to two digits of their error, errors to two digits, sizes
    whole, nothing for NaN."""
    column = np.asarray(columns[name], np.float64)
    if name in _ERROR_OF:
        errors = np.asarray(columns[_ERROR_OF[name]], np.float64)
        texts = [
            plus_minus(float(x), float(e)).split(" ")[0]
            for x, e in zip(column, errors, strict=True)
        ]
    elif name.startswith("gain"):
        texts = [worth(float(x)) for x in column]
    elif name == "cv_ess":
        texts = [format_count(float(x)) for x in column]
    else:
        forms = {"r_hat": ".3f"} | dict.fromkeys(("ess_bulk", "ess_tail", "ess_median"), ".0f")
        form = forms.get(name, ".2g")
        texts = [f"{x:{form}}" for x in column]
    return ["" if np.isnan(x) else text for x, text in zip(column, texts, strict=True)]


def _table(columns: dict[str, Any], rows: list[str], notes: list[str], fmt: str) -> Any:
    if fmt == "wide":
        from .output.frames import WholeFrame

        frame = WholeFrame(columns, index=rows)
        frame.attrs["notes"] = notes
        return frame
    data = {name: ("quantity", column) for name, column in columns.items()}
    return _module(fmt).Dataset(data, coords={"quantity": rows}, attrs={"notes": notes})


def _module(fmt: str) -> Any:
    package = "pandas" if fmt == "wide" else "xarray"
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise missing_package(package, "xarray") from error
