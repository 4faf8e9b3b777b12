"""summary(): the table that users of ArviZ read, with means, deviations and intervals by control
variates beside the plain ones."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..adapters import recognise
from ..adapters.base import label_entries
from ..adapters.recognition import name_values
from ..arguments import FLAG, SHARE, Foreign, Requirement, instance, one_of, takes, whole
from ..choice import CHOICE, SCORE_ERROR, Automatic, Request
from ..errors import SampleWarning, hold_warnings, list_names, repeat_warnings, warn
from ..families import Family
from ..inputs.sample import Posterior, as_float
from ..session import Session
from ..variables import FILTER, VAR_NAMES, select_variables, variable
from .columns import Above, Interval, control_intervals, control_means, plain_columns
from .tables import (
    KINDS,
    REASON,
    NamedColumns,
    import_module,
    make_table,
    read_rounding,
    write_texts,
)


@takes(
    var_names=VAR_NAMES,
    filter_vars=FILTER,
    prob=SHARE,
    ci_prob=SHARE,
    hdi_prob=Foreign("ci_prob={}, ci_kind='hdi'"),
    stat_focus=Foreign("kind='all_median', 'stats_median' or 'diagnostics_median' for medians"),
    group=Foreign("zv.summary(zv.from_arviz(data, group={}))"),
    coords=Foreign("var_names with the names of entries, such as 'theta[Choate]'"),
    above=instance(Mapping, "a dict of name → number, or numbers"),
    kind=one_of(*KINDS),
    ci_kind=one_of("eti", "hdi"),
    intervals=FLAG,
    round_to=Requirement("'auto', a number of decimals, or None", read_rounding),
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
    prob: float | None = None,
    ci_prob: float | None = None,
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
    ci_prob, ci_kind: of the interval, 0.89 by default and "eti" with equal tails, or "hdi" of the
        highest density. `prob` is another name of `ci_prob`.
    above: name → c, or several, for rows with the probabilities P(name > c).
    kind: "all" numbers, "stats" (means, deviations, intervals) or "diagnostics" (errors, effective
        sizes, r_hat, gains, and in words what the errors rest on); "all_median", "stats_median" and
        "diagnostics_median" have medians in place of means.
    intervals: False to leave controlled intervals out, which take most of the time.
    round_to: "auto" for a table to read: a data frame shows its numbers to two digits of their
        errors, as ArviZ' `SummaryDataFrame` does, and `table["cv_mean"]` has all of them; "none" or
        None for plain numbers; a number of decimals.
    fmt: "wide" for a pandas DataFrame, "xarray" for a Dataset over the dimension `quantity`.
    family, score_error, seed: as in `estimate`; by default control variates are chosen for each
        quantity.

    Columns: mean, sd, eti89_lb, eti89_ub, ess_bulk, ess_tail, r_hat, mcse_mean, mcse_sd are plain,
    as ArviZ has them; mcse_sd is computed here, from the effective size of (f − mean)², as ArviZ
    0.23 and arviz-stats from 1.3.2 on have it and those between do not. cv_mean ± cv_mcse_mean is
    the mean by control variates, gain = (mcse_mean / cv_mcse_mean)² how many times more draws plain
    averaging would need, and cv_ess = (sd / cv_mcse_mean)² how many independent ones; cv_sd ±
    cv_mcse_sd and gain_sd likewise, from a control variate for (f − cv_mean)² and the delta method.
    The variance is cv_sd², with the error 2 cv_sd cv_mcse_sd. Where control variates are chosen, a
    gain is never below 1: where nothing helps, value and error are the plain ones. cv_eti89_lb ±
    cv_mcse_eti89_lb and the upper end are those of `zv.interval`, cv_median ± cv_mcse_median that
    of `zv.quantile`. error_reason says what cv_mcse_mean rests on; in a data frame with all numbers
    it is left to `table.attrs["error_reasons"]`.
    """
    if prob is not None and ci_prob is not None:
        raise ValueError(f"give prob or ci_prob, not both; got prob={prob}, ci_prob={ci_prob}")
    share = next((given for given in (prob, ci_prob) if given is not None), 0.89)
    request = Request(family, seed=seed, score_error=score_error)
    import_module(fmt)  # what is missing is said before the work
    posterior = _posterior(data, scores)
    values = select_variables(posterior.values, var_names, filter_vars)
    chances = _exceedances(values, above or {})
    seen = {name: values[event.label] > event.level for name, event in chances.items()}
    everything = values | seen
    session = None if posterior.scores is None else Session.of(posterior)
    columns = plain_columns(everything, share, ci_kind, None if session is None else session.sample)
    # an indicator has no interval
    columns["lb"][len(values) :] = columns["ub"][len(values) :] = np.nan
    notes: list[str] = []
    if session is not None:
        with hold_warnings() as caught:
            if not kind.endswith("_median"):
                columns |= control_means(session, values, chances, columns, request)
            flat = session.sample.space.is_flat
            if intervals and not flat:
                notes.append("Intervals by control variates are for draws in Rᵈ; these are plain.")
            if intervals and flat and request.automatic is not None:
                ends = Interval(share, ci_kind, kind.endswith("_median"))
                columns |= control_intervals(
                    session, list(values), len(everything), ends, request, notes
                )
        repeat_warnings(caught)
    notes += _discrete(values, columns.get("gain"))
    reasons = columns.pop(REASON, None)
    shown: dict[str, Any] = columns
    if isinstance(round_to, int):
        shown = {name: [round(x, round_to) for x in map(float, columns[name])] for name in columns}
    if reasons is not None and (kind, fmt) != ("all", "wide"):  # wider than a terminal
        shown = {**shown, REASON: list(reasons)}
    own = f"{ci_kind}{100 * share:g}_"
    titles = {name: re.sub("(lb|ub)$", rf"{own}\1", name) for name in KINDS[kind] if name in shown}
    kept = {title: shown[name] for name, title in titles.items()}
    texts = {
        title: write_texts(name, columns)
        for name, title in titles.items()
        if round_to == "auto" and name in columns
    }
    table = make_table(kept, list(everything), notes, fmt, texts)
    if reasons is not None and fmt == "wide":
        table.attrs["error_reasons"] = dict(zip(everything, reasons.tolist(), strict=True))
    return table


def _posterior(data: Any, scores: Any) -> Posterior:
    posterior = recognise(data)
    if posterior is not None and scores is not None:
        raise ValueError(f"scores go with an array of draws; a {type(data).__name__} has its own")
    if posterior is not None:
        # quantiles need all draws at once
        return name_values(posterior)
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


def _exceedances(values: NamedColumns, above: Mapping[str, Any]) -> dict[str, Above]:
    found: dict[str, Above] = {}
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
            found |= {f"P({label} > {c:g})": Above(label, float(c)) for label in labels}
    return found


def _discrete(values: NamedColumns, gains: np.ndarray | None) -> list[str]:
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
