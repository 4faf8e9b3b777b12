"""sensitivity(): derivatives of answers in the prior, the data and the settings of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..adapters.recognition import posterior_in_memory
from ..arguments import POSITIVE, SHARE, several, takes, whole
from ..choice import CHOICE, Automatic, Request
from ..errors import SampleWarning, ZerovarWarning, hold_warnings, list_names, merge_warnings, warn
from ..families import Family
from ..inputs.sample import require_reals
from ..output.sensitivities import Sensitivities
from ..probabilities import MOST_LINES
from ..session import Session
from ..variables import FILTER, VAR_NAMES, select_variables
from .asking import POWERS, Question, read_question
from .covariances import Covariances, estimate_covariances
from .jackknife import jackknife
from .powers import power_curves
from .subjects import Subjects, means_and_events, quantiles

# Joint errors that two answers may be apart. Of 88 000 pairs of benchmarks.sensitivities, products
# whose plain errors are those of a thousand draws, one was 4.1 apart
_FAR = 5


@takes(
    probs=several(SHARE, "numbers strictly between 0 and 1"),
    curve=several(POSITIVE, "two powers, from where to where"),
    var_names=VAR_NAMES,
    filter_vars=FILTER,
    family=CHOICE,
    seed=whole(0),
)
def sensitivity(
    data: Any,
    values: Mapping[str, Any] | None = None,
    *,
    to: str | Sequence[str] | Mapping[str, Any] | None = None,
    log_density: Callable[..., Any] | None = None,
    at: Mapping[str, Any] | None = None,
    probs: float | Sequence[float] = (),
    curve: Sequence[float] = (),
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    family: Family | Automatic | None = None,
    seed: int = 0,
) -> Sensitivities:
    """Estimate how answers depend on the prior, the data and the settings of a model: derivatives
    d E[f] / dα = Cov(f, ∂ log π / ∂α), with standard errors.

    data: what an adapter returns (`zv.from_numpyro(mcmc)`), NumPyro's MCMC itself, an InferenceData
        or DataTree that has gradients.
    values: a dict of name → what to differentiate: arrays (chain, draw), functions of one draw on
        its natural scale, events such as "tau > 5". By default the means of the named values, of
        which `var_names` and `filter_vars` choose, as in `zv.summary`.
    probs: quantiles of the named values instead of their means; 0.5 for medians.
    to: what the log density depends on. Of a NumPyro or PyMC model "prior" and "likelihood", the
        powers to which they are raised (the default: α = 1 is the model itself); the prior is that
        of the sites without latent parents. The name of a site for the power of its density alone;
        "observations" for the power of each; the name of an argument for itself. Where a name is
        both, "site y" or "argument y". Or a dict of name → ∂ log π / ∂α at the draws, (chain,
        draw), (n, k), or as a function of one draw; what is called "observations" there is taken
        for their log-likelihoods, "prior" and "likelihood" for log densities that have powers.
    log_density, at: a JAX function log_density(draw, **at), and the values of its parameters, in
        which it is differentiated; terms without them may be left out.
    curve: two powers such as (0.5, 2) between which to follow the means along prior and likelihood,
        by derivatives up to the second, beside importance reweighting.
    family, seed: as in `zv.estimate`.

    With "observations" there is the infinitesimal jackknife covariance too (`found.jackknife`): how
    the values would vary with other data of the same kind.
    """
    request = Request(family, seed=seed)
    posterior = posterior_in_memory(data)
    shares = np.atleast_1d(np.asarray(probs, float))
    if shares.size:
        require_reals(posterior, "the derivative of a quantile")
    ends = _read_curve(curve, shares)
    with hold_warnings() as caught:
        session = Session.of(posterior)
        if shares.size or _has_events(values):
            values = _thin(session, values)
            session = session.thin(MOST_LINES)
        to = (POWERS if log_density is None else ()) if to is None else to
        question = read_question(session, to, log_density, at)
        subjects = _subjects(session, values, shares, var_names, filter_vars, request)
        found = estimate_covariances(session, subjects.each, question.slopes, request)
        own = _own_names(session, values)
        result = _report(session, subjects, question, found, request, ends, own)
    return _with_words(result, caught)


def _read_curve(curve: Sequence[float], shares: np.ndarray) -> tuple[float, float] | None:
    if not len(curve):
        return None
    if len(curve) != 2 or not curve[0] < 1 < curve[1]:
        raise ValueError(f"curve must be two powers, one below 1 and one above; got {curve}")
    if shares.size:
        raise ValueError("curve follows means: leave probs out")
    return float(curve[0]), float(curve[1])


def _own_names(session: Session, values: Any) -> set[str]:
    """Values that a user gives as arrays or functions, which may be others than those of the model
    that have their name."""
    if not isinstance(values, Mapping):
        return set()
    return {
        name
        for name, one in values.items()
        if callable(one)
        or not (isinstance(one, str) or np.array_equal(one, session.values.get(name, ())))
    }


def _has_events(values: Any) -> bool:
    return isinstance(values, Mapping) and any(isinstance(one, str) for one in values.values())


def _thin(session: Session, values: Any) -> Any:
    """Arrays among the values at the draws through which lines are laid."""
    if not isinstance(values, Mapping):
        return values
    given = {
        name: one for name, one in values.items() if not isinstance(one, str) and not callable(one)
    }
    return {**values, **dataclasses.replace(session, values=given).thin(MOST_LINES).values}


def _subjects(
    session: Session,
    values: Any,
    shares: np.ndarray,
    var_names: Any,
    filter_vars: str | None,
    request: Request,
) -> Subjects:
    """The values that were asked for."""
    if values is not None and not isinstance(values, Mapping):
        raise ValueError(
            "values must be a dict of name → array, function of one draw or event such as "
            f"'tau > 5'; got {type(values).__name__}"
        )
    if values is None or shares.size:
        named = select_variables(session.values, var_names, filter_vars)
    if not shares.size:
        return means_and_events(session, named if values is None else values, request)
    found = quantiles(session, list(named), shares, request)
    if values is None:
        return found
    return means_and_events(session, values, request).join(found)


def _report(
    session: Session,
    subjects: Subjects,
    question: Question,
    found: Covariances,
    request: Request,
    ends: tuple[float, float] | None,
    own_names: set[str],
) -> Sensitivities:
    slopes, names = question.slopes, tuple(subject.name for subject in subjects.each)
    derivative, error = found.table(found.controlled)
    plain, plain_error = found.table(found.plain)
    off = np.array([one.factor_off for one in subjects.each])[:, None]
    error, plain_error = np.hypot(error, off * derivative), np.hypot(plain_error, off * plain)
    own, own_error, own_plain, own_plain_error = _by_itself(
        session, names, own_names, question, request
    )
    result = Sensitivities(
        names,
        slopes.names,
        subjects.value,
        subjects.error,
        subjects.deviation,
        derivative + own,
        np.hypot(error, own_error),
        plain + own_plain,
        np.hypot(plain_error, own_plain_error),
        slopes.observed,
        len(session.sample),
        notes=tuple(_notes(found, question)),
    )
    if slopes.observed.any():
        result = dataclasses.replace(result, jackknife=jackknife(found, slopes.observed, names))
    if ends is None:
        return result
    powers = question.powers
    if not powers.any():
        raise ValueError("curve follows powers of prior, likelihood or sites, and `to` names none")
    terms = [name for name, so in zip(slopes.names, powers, strict=True) if so]
    first = derivative[:, powers], error[:, powers]
    curves = power_curves(
        session,
        subjects.each,
        subjects.value,
        subjects.error,
        subjects.deviation,
        terms,
        slopes.values[:, powers],
        first,
        ends,
        request,
    )
    return dataclasses.replace(result, curves=curves)


def _by_itself(
    session: Session,
    names: Sequence[str],
    own_names: set[str],
    question: Question,
    request: Request,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """E[∂f / ∂α] of values that depend on α themselves, (q, k), its errors, and both plain; of a
    user's `own_names` it is not known."""
    shape = (len(names), len(question.slopes.names))
    found = tuple(np.zeros(shape) for _ in range(4))
    if not question.moved:
        return found  # type: ignore[return-value]
    known = (set(question.moved) | set(session.values)) - own_names
    lost = [name for name in names if name not in known]
    if lost:
        raise ValueError(
            f"{list_names(list(question.moved))} depends on an argument by itself, and "
            f"{list_names(lost)} may depend on it: such derivatives are known of named values alone"
        )
    for a, name in enumerate(names):
        if name in question.moved:
            columns = question.moved[name]
            labels = [f"{name} by {one}" for one in question.slopes.names]
            means = session.estimate(columns, labels, request)
            for into, one in zip(
                found,
                (means.value, means.std_error, means.plain_value, means.plain_std_error),
                strict=True,
            ):
                into[a] = one
    return found  # type: ignore[return-value]


def _notes(found: Covariances, question: Question) -> list[str]:
    slopes, notes = question.slopes, list[str]()
    still = np.atleast_1d(~found.basis.mixing.any(axis=1))
    if found.basis.rest is not None:
        still = still & ~found.basis.rest.any(axis=0)
    if still.any():
        names = [name for name, so in zip(slopes.names, still, strict=True) if so]
        notes.append(f"The log density does not depend on {list_names(names)}: derivatives are 0.")
    if question.powers.any():
        notes.append("Doubling a power moves a value by about 0.7 derivatives.")
    if slopes.observed.any():
        notes.append(
            "Leaving an observation out moves a value by minus its derivative, to first order."
        )
    if found.basis.rest is not None:
        r = found.basis.components.shape[1]
        notes.append(f"The {len(slopes.names)} slopes are combinations of {r}.")
    return notes


def _with_words(found: Sensitivities, caught: Any) -> Sensitivities:
    """The answer with words of caution, each given once."""
    away = np.abs(found.derivative - found.plain_derivative)
    # beyond what chance does to the largest of so many, as in `estimate`
    far = away > _FAR * np.hypot(found.std_error, found.plain_std_error)
    if far.any():
        pairs = [f"{found.values[a]} with {found.to[b]}" for a, b in np.argwhere(far)]
        with hold_warnings() as more:
            warn(
                "For {names} the covariances with and without control variates are more than "
                f"{_FAR} of their errors apart: one of them is wrong. Are the scores those of "
                "these draws, and have the chains converged?",
                SampleWarning,
                pairs,
            )
        caught = [*caught, *more]
    own = [one.message for one in caught if isinstance(one.message, ZerovarWarning)]
    kept = merge_warnings(own)
    for one in kept:
        warn(one.template, type(one), one.names)
    return dataclasses.replace(found, warnings=tuple(map(str, kept)))
