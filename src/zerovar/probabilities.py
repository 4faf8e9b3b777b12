"""probability(): how probable events are, by more than counting the draws that show them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from warnings import WarningMessage

import numpy as np

from .adapters.recognition import posterior_in_memory
from .arguments import show, takes, whole
from .choice import CHOICE, LOW_EFFORT, Automatic, Request
from .errors import (
    SampleWarning,
    hold_warnings,
    list_names,
    repeat_warnings,
    require_distinct,
    spare_names,
)
from .events.lines import Lines
from .events.quantities import Event, Marginal, Quantity, read_event, truth
from .inference.rules import SUSPICIOUS
from .inputs.integrands import as_values
from .inputs.points import Matrix
from .inputs.sample import Sample
from .output import Estimate
from .output.record import Traces
from .session import Session
from .statistics.series import covariance, effective_size

_AGAINST = (
    "{names}: more or fewer of the draws show it than chance allows, by the conditional "
    "probabilities along lines. The share of the draws is reported. Have the chains converged, and "
    "is each of the density's modes among the draws?"
)
_LESS = "counting draws has less error"
# Draws that lines are laid through. With a hundred evaluations of the log density on each, a
# quantity then takes as many as NUTS does for its draws
MOST_LINES = 4000


@takes(family=CHOICE, seed=whole(0))
def probability(
    data: Any,
    events: Any,
    *,
    family: Automatic | None = None,
    seed: int = 0,
) -> Estimate:
    """Estimate the probabilities of events, with standard errors.

    data: what an adapter returns (`zv.from_numpyro(mcmc)`), NumPyro's MCMC itself, or an
        InferenceData or DataTree that has gradients.
    events: comparisons of named values with numbers or with each other, "tau > 5", "a > b", "0 < mu
        < 3", of arithmetic with them, "exp(a - b) > 2", and several joined by and, or, not; one or
        a list of them; or a dict of name → such a comparison, a function of one draw
        on its natural scale to a boolean, or a boolean array (chain, draw).
    family, seed: as in `zv.estimate`.

    Where the log density is known (NumPyro, PyMC, BridgeStan, `zv.from_log_density`) the draw is
    moved along a line, and the conditional probability on the line takes the place of the
    indicator. It has the same mean and is smooth, so that control variates work on it as on any
    mean. Where only scores are known, an image of Stein's operator takes the jump away. What has
    less error is reported, counting included; `plain_value` is the share of the draws.
    """
    session = Session.of(posterior_in_memory(data))
    if isinstance(events, str):
        events = [events]
    if not isinstance(events, Mapping):
        if not isinstance(events, (list, tuple)) or not all(isinstance(e, str) for e in events):
            raise ValueError(
                'events must be comparisons such as "tau > 5", a list or a dict of them; got '
                f"{events!r}"
            )
        require_distinct("events", events)
        events = {event: event for event in events}
    if not events:
        raise ValueError("events is empty: give at least one event")
    given = {
        name: one for name, one in events.items() if not isinstance(one, str) and not callable(one)
    }
    for name, one in given.items():
        if np.size(one) != len(session.sample):
            raise ValueError(
                f"events[{name!r}] must be a comparison, a function of one draw, or a boolean for "
                f"each of the {len(session.sample)} draws; got {show(one)}"
            )
    given = dict(dataclasses.replace(session, values=given).thin(MOST_LINES).values)
    session = session.thin(MOST_LINES)
    request = Request(family, seed=seed)
    means, happen = estimate_with_events(
        session, {**events, **given}, None, request, called="events"
    )
    if not happen.all():
        names = [name for name, so in zip(means.names, happen, strict=True) if not so]
        raise ValueError(
            f"events: {list_names(names)} has other values than 0 and 1, or True and False. "
            "zv.estimate gives means"
        )
    return session.say_left_out(means)


class Asked(NamedTuple):
    """Integrands at the draws by name, and those of them that are known as events or as functions
    of the draw."""

    columns: dict[str, Any]
    events: dict[str, Event]
    quantities: dict[str, Quantity]

    @staticmethod
    def of(session: Session, values: Mapping[str, Any], called: str) -> Asked:
        """Read what the user gives as the argument that is so `called`, comparisons and functions
        of one draw among it."""
        columns: dict[str, Any] = {}
        events: dict[str, Event] = {}
        quantities: dict[str, Quantity] = {}
        for name, entry in values.items():
            columns[name] = entry
            if isinstance(entry, str):
                events[name] = read_event(entry, session.find, list(session.values))
                columns[name] = events[name].seen
            elif callable(entry):
                if session.density is None:
                    raise ValueError(
                        f"{called}[{name!r}] is a function, and these draws came without their log "
                        "density and natural scale. Give its values at the draws"
                    )
                title, draws = f"{called}[{name!r}]", session.sample.draws
                columns[name], at = session.density.evaluate(title, entry, draws)
                quantities[name] = Quantity(name, columns[name], at)
        return Asked(columns, events, quantities)


def estimate_with_events(
    session: Session,
    values: Any,
    names: Sequence[str] | None,
    request: Request,
    bounded: Sequence[str] = (),
    called: str = "values",
) -> tuple[Estimate, np.ndarray]:
    """Estimate means of integrands, events among them; and say which are events. Some of the others
    are known to be `bounded`; `called` is the user's argument that has them.

    Events are made smooth where the control variate is chosen; where a family is given it works on
    their indicators.
    """
    if values is None:
        sample = session.sample
        values = sample.space.values(sample.draws, [f"x{j}" for j in range(sample.dim)])
    asked = Asked(values, {}, {})
    if isinstance(values, Mapping):
        asked = Asked.of(session, values, called)
    array, found, events = as_values(asked.columns, session.sample, names)
    smooth, off, how = array.copy(), np.zeros(len(found)), dict[int, Marginal]()
    with hold_warnings() as caught:  # of densities that are not used, which the answer keeps
        for k in np.flatnonzero(events) if request.automatic is not None else ():
            own = asked.quantities.get(found[k], Quantity(found[k], array[:, k]))
            event = asked.events.get(found[k], truth(own))
            marginal = session.marginal(event.quantity)
            if marginal is not None:
                smooth[:, k], off[k] = event.smooth(marginal)
                how[int(k)] = marginal
        columns = dict(zip(found, smooth.T, strict=True))
        bounded = [*bounded, *(found[k] for k, one in how.items() if isinstance(one, Lines))]
        stand_ins = [found[k] for k in how]
        means = session.estimate(columns, None, request, bounded, stand_ins, off)
    if not how:
        return dataclasses.replace(means, warnings=tuple(repeat_warnings(caught))), events
    rows = np.array(list(how))
    pairs = array[:, rows], smooth[:, rows]
    return _with_counts(session, means, *pairs, rows, off, how, request, caught), events


def _with_counts(
    session: Session,
    means: Estimate,
    seen: Matrix,
    smooth: Matrix,
    rows: np.ndarray,
    off: np.ndarray,
    how: Mapping[int, Marginal],
    request: Request,
    caught: list[WarningMessage],
) -> Estimate:
    """The means with the counts of draws as plain values, and in place of what has no less error,
    or is not what chance makes of it; `off` is what the smooth integrands' means may be off by, and
    `caught` was said of these."""
    cheap = dataclasses.replace(request, family=LOW_EFFORT)
    names = [means.names[k] for k in rows]
    with hold_warnings() as of_counts:
        counted = session.estimate(dict(zip(names, seen.T, strict=True)), request=cheap)
    error = np.hypot(means.std_error, off)
    value, plain, plain_error = (
        one.copy() for one in (means.value, means.plain_value, means.plain_std_error)
    )
    plain[rows], plain_error[rows] = counted.plain_value, counted.plain_std_error
    by_lines = np.array([isinstance(how[k], Lines) for k in rows])
    against = by_lines & _unlikely(session.sample, seen, smooth)
    worse = ~(error[rows] < counted.std_error) | against
    lost = rows[worse]
    gone = [means.names[k] for k in lost]
    said = [
        *spare_names(caught, gone),
        *spare_names(of_counts, [one for one in names if one not in gone]),
    ]
    if against.any():
        said.append(SampleWarning(_AGAINST, [means.names[k] for k in rows[against]]))
    value[lost], error[lost] = counted.value[worse], counted.std_error[worse]
    value[rows] = np.clip(value[rows], 0.0, 1.0)
    reasons = list(means.error_reasons)
    for k, reason in zip(lost, np.array(counted.error_reasons)[worse], strict=True):
        reasons[k] = reason
    assert means.selection is not None
    mask = np.isin(np.arange(len(value)), lost)
    selection = means.selection
    if mask.any():
        errors = np.full(len(value), np.nan)
        errors[lost] = counted.std_error[worse]
        selection = selection.instead(mask, "the indicator", errors, _LESS)
    assert means.traces is not None
    assert counted.traces is not None
    influences = means.traces.residuals.copy()
    influences[..., lost] = counted.traces.residuals[..., worse]
    return dataclasses.replace(
        means,
        value=value,
        std_error=error,
        plain_value=plain,
        plain_std_error=plain_error,
        covariance=covariance(influences, error),
        error_reasons=tuple(reasons),
        selection=selection,
        traces=Traces(means.traces.values, influences),
        warnings=tuple(repeat_warnings(said)),
        limits=(*means.limits, *describe_smoothing(means.names, how)),
    )


def _unlikely(sample: Sample, seen: Matrix, smooth: Matrix) -> np.ndarray:
    """Whether an event is true of more or fewer of the draws, (n, q), than chance allows if these
    are its conditional probabilities along lines: by Poisson's distribution of how many effective
    draws show it, or do not, whichever are fewer."""
    from scipy import special

    p, inside = sample.probabilities, np.clip(smooth, 0.0, 1.0)
    share = effective_size(sample.by_chain(seen - inside)) / len(p)
    size = np.minimum(share, 1.0) / np.sum(p**2)
    found, wanted = size * (p @ seen), size * (p @ inside)
    common = wanted > size / 2
    found, wanted = (np.where(common, size - each, each) for each in (found, wanted))
    more = special.gammainc(np.maximum(found, np.finfo(float).tiny), wanted)
    fewer = special.gammaincc(found + 1, wanted)
    return np.where(found > wanted, more, fewer) < 2 * special.ndtr(-SUSPICIOUS)


def describe_smoothing(names: Sequence[str], how: Mapping[int, Marginal]) -> tuple[str, ...]:
    """Say what made the levels of each of some rows smooth, and what that cost."""
    told = []
    for words in dict.fromkeys(one.words for one in how.values()):
        own = {k: one for k, one in how.items() if one.words == words}
        lines = {one for one in own.values() if isinstance(one, Lines)}
        count = sum(one.conditional.evaluations for one in lines)
        cost = f", {count} evaluations of the log density" if lines else ""
        told.append(f"{list_names([names[k] for k in own])}: by {words}{cost}.")
    return tuple(told)
