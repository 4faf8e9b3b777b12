"""What a user asks about: prior, likelihood, sites, observations and arguments of a model, a log
density with parameters of its own, or arrays; all of them as slopes of the log density."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..arguments import show
from ..errors import NumericalWarning, SampleWarning, list_names, warn
from ..inputs.density import Tiled
from ..inputs.integrands import DrawFunction, InSingleOnly, as_values, entry_name, run_or_explain
from ..inputs.points import Matrix
from ..inputs.terms import Terms
from ..session import Session
from .slopes import Slopes

POWERS = ("prior", "likelihood")
OBSERVATIONS = "observations"


class Question(NamedTuple):
    """Slopes that were asked for; which of them are those in powers of terms; and by the name of a
    value, what it moves by itself with each of them, at the draws, (n, k)."""

    slopes: Slopes
    powers: np.ndarray
    moved: dict[str, Matrix]


def read_question(
    session: Session, to: Any, log_density: Callable[..., Any] | None, at: Any
) -> Question:
    """Return the slopes that `to` names, and those of a log density in its own parameters `at`."""
    parts: list[Question] = []
    if isinstance(to, Mapping):
        parts += [_read_entry(session, name, entry) for name, entry in to.items()]
    else:
        words = list(to) if isinstance(to, (list, tuple)) else [to]
        terms = _terms(session, words) if words else None
        parts += [_read_word(session, terms, word) for word in words if terms is not None]
    if log_density is not None:
        parts.append(_parameters(session, log_density, at))
    elif at is not None:
        raise ValueError("at goes with log_density, a function of one draw and of what at names")
    if not parts:
        raise ValueError("to is empty: say what the values are to be differentiated in")
    slopes = parts[0].slopes
    for part in parts[1:]:
        slopes = slopes.join(part.slopes)
    return Question(
        _finite(slopes),
        np.concatenate([part.powers for part in parts]),
        _join_moves([(len(part.slopes.names), part.moved) for part in parts], len(session.sample)),
    )


def _terms(session: Session, words: Sequence[Any]) -> Terms:
    """What the model's log density is made of, or why it is not known."""
    if bad := [word for word in words if not isinstance(word, str)]:
        raise ValueError(
            "to must be 'prior', 'likelihood', 'observations', names of sites or arguments of the "
            f"model, or a dict of name → slopes at the draws; got {show(bad[0])}"
        )
    known = session.density.terms if session.density is not None else None
    if known is None:
        raise ValueError(
            "these draws came without their model (zv.from_numpyro and zv.from_pymc know it): "
            f"{list_names(list(words))} cannot be told apart in the log density. Give to= a dict "
            "of name → slopes at the draws, such as the log prior density or the log-likelihood of "
            "each observation, or log_density= with at="
        )
    return known()


def _read_word(session: Session, terms: Terms, word: str) -> Question:
    """The slopes in what a word stands for."""
    sites = (*terms.latent, *terms.observed, *terms.factors)
    if word == OBSERVATIONS:
        return _observations(session, terms)
    if word in POWERS:
        own = terms.top if word == "prior" else terms.observed
        if not own:
            what = "latent sites" if word == "prior" else "observed sites"
            factors = f"; {list_names(terms.factors)} can be asked by name" if terms.factors else ""
            raise ValueError(f"the model has no {what}: its {word} cannot be told apart{factors}")
        if word == "likelihood" and terms.factors:
            warn(
                f"{list_names(terms.factors)} is neither prior nor likelihood by its form, and "
                "counts as neither. Ask for its power by name",
                SampleWarning,
            )
        return _power(session, terms, word, own)
    kind, _, rest = word.partition(" ")
    name = rest if kind in ("site", "argument") and rest else word
    as_site = name in sites and kind != "argument"
    as_argument = name in terms.arguments and kind != "site"
    if as_site and as_argument:
        raise ValueError(
            f"{name} is a site of the model and one of its arguments: ask for 'site {name}', the "
            f"power of its density, or for 'argument {name}', the derivative in it"
        )
    if as_site:
        return _power(session, terms, name, (name,))
    if as_argument:
        return _argument(session, terms, name)
    raise ValueError(
        f"{word!r} is no site of the model, which has {list_names(sites)}, and no argument, of "
        f"which it has {list_names(list(terms.arguments)) or 'none'}"
    )


def _power(session: Session, terms: Terms, name: str, sites: Sequence[str]) -> Question:
    def slope(x: jax.Array) -> jax.Array:
        at = terms.at(x)
        return sum(jnp.sum(at[site]) for site in sites)[None]  # type: ignore[index]

    return _question(session, (name,), slope, f"the log density of {name}", power=True)


def _observations(session: Session, terms: Terms) -> Question:
    if not terms.observed:
        raise ValueError("the model has no observed sites, and so no observations")
    assert session.density is not None
    labels = session.density.labels
    shapes = jax.eval_shape(terms.at, session.sample.draws[0])
    names = [
        labels(site, index) if index else site
        for site in terms.observed
        for index in np.ndindex(shapes[site].shape)
    ]

    def slope(x: jax.Array) -> jax.Array:
        at = terms.at(x)
        return jnp.concatenate([jnp.ravel(at[site]) for site in terms.observed])

    return _question(session, names, slope, "the log-likelihood", observed=True)


def _argument(session: Session, terms: Terms, name: str) -> Question:
    """The slopes in an argument of the model, and what deterministic values move with it."""
    value = _real(f"the argument {name}", terms.arguments[name])
    if fixed := [site for site in terms.find_moved(name) if site in terms.latent]:
        raise ValueError(
            f"the support of {list_names(fixed)} depends on {name}: means cannot be differentiated "
            "in it by a fixed draw"
        )

    def slope(x: jax.Array) -> jax.Array:
        return jnp.ravel(jax.grad(lambda new: terms.with_arguments(x, {name: new}))(value))

    found = _question(session, _entries(name, value), slope, f"the derivative in {name}")
    assert session.density is not None
    moved = {}
    for site in terms.find_moved(name):
        function = Tiled(
            lambda x, site=site: jax.jacobian(lambda new: terms.natural(x, {name: new})[site])(
                value
            )
        )
        by_itself = _evaluate(f"the derivative of {site} in {name}", function, session)[0]
        shape = by_itself.shape[1 : by_itself.ndim - value.ndim]
        flat = by_itself.reshape(len(session.sample), -1, value.size)
        for k, index in enumerate(np.ndindex(shape)):
            moved[session.density.labels(site, index) if index else site] = flat[:, k]
    return found._replace(moved=moved)


def _parameters(session: Session, log_density: Callable[..., Any], at: Any) -> Question:
    """The slopes of a log density in parameters of its own."""
    if not isinstance(at, Mapping) or not at:
        raise ValueError(
            "log_density needs at=, a dict of name → value of its parameters, as keywords of "
            f"log_density(draw, **at); got {show(at)}"
        )
    values = {name: _real(f"at[{name!r}]", one) for name, one in at.items()}
    natural = _natural(session)

    def slope(x: jax.Array) -> jax.Array:
        def total(new: dict[str, jax.Array]) -> jax.Array:
            return jnp.sum(log_density(natural(x), **new))

        grown = jax.grad(total)(values)
        return jnp.concatenate([jnp.ravel(grown[name]) for name in values])

    names = [label for name, one in values.items() for label in _entries(name, one)]
    return _question(session, names, slope, "log_density")


def _read_entry(session: Session, name: str, entry: Any) -> Question:
    """Slopes at the draws, or a function of one draw that gives them."""
    power, observed = name in POWERS, name == OBSERVATIONS
    if callable(entry):
        natural = _natural(session)

        def slope(x: jax.Array) -> jax.Array:
            return jnp.ravel(entry(natural(x))).astype(float)

        return _question(session, (name,), slope, f"to[{name!r}]", power, observed)
    try:
        array, labels, _ = as_values({name: entry}, session.sample, None)
    except ValueError as error:
        raise ValueError(str(error).replace("values", "to")) from None
    flags = (np.full(len(labels), flag) for flag in (observed, power))
    return Question(Slopes(labels, array, None, next(flags)), next(flags), {})


def _natural(session: Session) -> DrawFunction:
    """One draw as functions of the user see it."""
    return (lambda x: x) if session.density is None else session.density.natural


def _question(
    session: Session,
    names: Sequence[str],
    slope: DrawFunction,
    called: str,
    power: bool = False,
    observed: bool = False,
) -> Question:
    values, at = _evaluate(called, Tiled(slope), session)
    values = values.reshape(len(values), -1)
    if len(names) < values.shape[1]:  # a user's function with several numbers under one name
        names = [entry_name(names[0], (k,)) for k in range(values.shape[1])]
    flags = (np.full(len(names), flag) for flag in (observed, power))
    slopes = Slopes(tuple(names), values, at, next(flags))
    return Question(slopes, next(flags), {})


def _evaluate(called: str, function: Tiled, session: Session) -> tuple[np.ndarray, Tiled | None]:
    """A function at the draws, and itself if it runs in double precision."""

    def run() -> tuple[np.ndarray, Tiled | None]:
        try:
            return function(session.sample.draws), function
        except InSingleOnly as single:
            warn(
                f"{called} can be evaluated in single precision alone: about seven digits, of "
                "numbers that have the size of the log density",
                NumericalWarning,
            )
            return np.asarray(single.found, float), None

    return run_or_explain(called, run, "", "its values at the draws", lambda _, run: run())


def _real(called: str, value: Any) -> np.ndarray:
    """A number, or an array of numbers, that can be differentiated in."""
    array = np.asarray(value)
    if array.dtype.kind != "f":
        kind = {"i": "whole numbers", "u": "whole numbers", "b": "booleans"}.get(array.dtype.kind)
        raise ValueError(
            f"{called} must be a real number or an array of such to be differentiated in; got "
            f"{kind or show(value)}. Give 2.0 in place of 2 if it may be any number"
        )
    return array.astype(float)


def _entries(name: str, value: np.ndarray) -> list[str]:
    return [entry_name(name, index) if index else name for index in np.ndindex(value.shape)]


def _finite(slopes: Slopes) -> Slopes:
    """Slopes that are numbers at every draw, or an error that says which are not."""
    bad = ~np.isfinite(slopes.values)
    if not bad.any():
        return slopes
    names = [name for name, so in zip(slopes.names, bad.any(axis=0), strict=True) if so]
    raise ValueError(
        f"{list_names(names)}: the slope of the log density is no finite number at "
        f"{int(bad.any(axis=1).sum())} of {len(bad)} draws. A likelihood of zero there would mean "
        "that the draws are not of this posterior; look for missing data or overflow"
    )


def _join_moves(parts: Sequence[tuple[int, dict[str, Matrix]]], n: int) -> dict[str, Matrix]:
    """What values move by themselves, with zeros for slopes with which they do not."""
    total, first = sum(count for count, _ in parts), 0
    found: dict[str, Matrix] = {}
    for count, moved in parts:
        for name, array in moved.items():
            found.setdefault(name, np.zeros((n, total)))[:, first : first + count] = array
        first += count
    return found
