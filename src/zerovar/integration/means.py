"""integrate(): from a log density to its means, without a chain."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..adapters.models import FlatDensity, flat_density
from ..arguments import FLAG, SHARE, several, takes, whole
from ..choice import CHOICE, Automatic, Policy, Request, choose
from ..distributions.quantiles import estimate_quantiles
from ..errors import NumericalError, refuse_fork
from ..evidences.importance import Round, log_evidence
from ..families import Family
from ..fitting import Method
from ..inference import rules
from ..inference.answer import Answer, plain_answer
from ..inference.cautions import Caution, Cautions
from ..inference.conclude import conclude, describe_settings
from ..inference.facts import Facts
from ..inference.fits import default_split, fit_answer
from ..inference.splits import in_sample
from ..inference.task import Task
from ..inputs.density import Density
from ..inputs.integrands import as_values
from ..inputs.sample import Posterior, Sample, as_float
from ..mixtures import relative_weights
from ..output import Estimate, Integration, Selection
from ..probabilities import MOST_LINES
from ..progress import stages
from ..session import Session
from .importance import (
    NEGLIGIBLE,
    WeightedPoints,
    first_proposal,
    fit_proposal,
    importance_sample,
)
from .modes import Mode, find_modes
from .second_opinion import hold, second_opinion
from .target import Target

_FEW = 100  # effective points under which there is no answer
_LONG_TAIL = 0.7  # Pareto k of the weights
_RULED = 0.05  # share of all weight in ten points from which a long tail rules the answer
# Effective shares of the last three rounds: their median, and their best. Right answers had 0.55
# and 0.63 or more on five posteriors, three seeds each. Two curved ridges in four dimensions, of
# whose ends a tenth of the mass is missed, had less than 0.5 in 99 of 100 seeds, and 0.51 and 0.59
# in the other.
_LEAST_SHARE, _LEAST_BEST = 0.5, 0.6
_FEWEST = int(_FEW / _LEAST_SHARE)  # gradients
# of the weight next to points without density, from which Stein's identity is in doubt
_JUMP = 1e-5
# points that a search expects next to a mode which it misses in one case of a hundred: e⁻⁵
_OVERLOOKED = 5
_ADVICE = "Sample it, by NUTS for instance, and call zv.estimate"


@takes(
    gradients=whole(_FEWEST),
    probs=several(SHARE, "numbers strictly between 0 and 1", empty=False),
    family=CHOICE,
    sobol=FLAG,
    progress=FLAG,
    seed=whole(0),
)
def integrate(
    log_density: Callable[[Any], Any] | Any,
    start: Any = None,
    values: Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]] | None = None,
    *,
    gradients: int = 5000,
    probs: float | Sequence[float] | None = None,
    draws: Any = None,
    log_proposal: Any = None,
    args: tuple[Any, ...] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    family: Family | Automatic | None = None,
    names: Sequence[str] | None = None,
    sobol: bool = True,
    progress: bool = True,
    seed: int = 0,
) -> Estimate:
    """Estimate means under a density that is known up to a constant, from a few thousand gradients
    and no chain.

    log_density: a JAX function of one unconstrained draw; or a PyMC model; or a NumPyro model, with
        `args` and `kwargs`, its data.
    start: how a draw looks, and where the search for modes begins: a number of dimensions, an array
        (d,), or a dict of arrays. An array (s, d) has all the starts; otherwise they are dispersed
        about the one, and about the first mode.
    values: a function of one draw, or name → such functions; of a model they see a dict of all its
        quantities. By default those, or the draws themselves.
    gradients: how many may be computed in all, and nearly are.
    probs: for quantiles in place of means, as `zv.quantile` gives them; lines through the points
        take about a hundred evaluations of the log density more for each point and value.
    draws, log_proposal: points from elsewhere, (n, d) or a dict of arrays (n, …), and the log
        density, normalised, of what they were drawn from (n,): used as they are if their weights
        are good, otherwise to fit the first proposal.
    family: what the control variates are taken from, by default chosen for each integrand as in
        `zv.estimate`.
    sobol: points from scrambled Sobol sequences; else pseudo-random ones.
    seed: the same seed gives the same points.

    Modes are searched by L-BFGS. Mixtures of t distributions about them are then adapted to the
    density in rounds, and every point of every round is weighted by the mixture of all proposals.
    `estimate.integration` says how that went, with log Z.

    Where importance sampling fails a `NumericalError` says so: too few effective points, weights
    with too long a tail, a density that does not fall off. No answer is better than a wrong one.
    """
    refuse_fork()
    if (draws is None) != (log_proposal is None):
        raise ValueError(
            "draws and log_proposal belong together: points, and the log density of what they were "
            "drawn from"
        )
    given = None if draws is None else _as_given(draws, log_proposal)
    if given is not None and start is None:
        start = jax.tree.map(lambda leaf: np.asarray(leaf)[0], draws)
    flat = flat_density(log_density, start, args, kwargs)
    rng, cautions = np.random.default_rng(seed), Cautions()
    with stages("integrating", None, progress) as tell:
        modes, points, used = _points(flat, given, int(gradients), rng, sobol, tell)
    integration = _judge(
        modes, points, used, flat.constants.relative, len(flat.starts) == 1, cautions
    )
    weights = relative_weights(points.log_weights)
    # others change no sum, and have scores like no others
    kept = rng.permutation(np.flatnonzero(weights > NEGLIGIBLE * weights.mean()))
    sample = Sample(
        points.x[kept], points.scores[kept], points.log_weights[kept], flat.names, from_model=True
    )
    asked = _integrands(flat, values, names, sample)
    array, found, events = as_values(*asked)
    task = Task.of(sample, array, True, seed)
    policy = family.policy if isinstance(family, Automatic) else Policy()
    jumps = _jumps(points, cautions)
    if probs is not None:
        if jumps or isinstance(family, Family):
            why = "a density without a jump" if jumps else "that control variates are chosen"
            raise NumericalError(f"integrate: probs needs {why}; leave it out for means")
        density = Density(flat.log_density, _name_numbers(asked[0], found))
        named = {name: column[None] for name, column in zip(found, array.T, strict=True)}
        posterior = Posterior(
            sample.draws[None],
            sample.scores[None],
            named,
            flat.names,
            np.log(sample.probabilities)[None],
            from_model=True,
            density=density,
        )
        session = Session.of(posterior).thin(MOST_LINES)
        options = Automatic(progress=progress) if family is None else family
        request = Request(options, seed=seed)
        result = estimate_quantiles(session, found, np.atleast_1d(probs), request)
        return dataclasses.replace(
            result,
            integration=integration,
            warnings=(*cautions.texts, *result.warnings),
        )
    if jumps:
        answer, selection, second = plain_answer(task), None, None
        split = "weighted points"
    else:
        second = second_opinion(task, policy)
        answer, selection, split = _answer(task, found, family, progress)
        answer, selection = hold(answer, selection, second, task, found, cautions)
    result = conclude(
        answer,
        Facts.in_memory(task, found, events, second=second),
        rules.WEIGHTED_POINTS,
        cautions,
        split=split,
        settings=describe_settings(sample, array, family=family)
        | {"gradients": int(gradients), "sobol": sobol, "seed": seed},
        selection=selection,
    )
    return dataclasses.replace(result, integration=integration)


class _Given(NamedTuple):
    """Points from elsewhere, (n, d), and the log density of what they were drawn from."""

    x: np.ndarray
    log_proposal: np.ndarray


def _as_given(draws: Any, log_proposal: Any) -> _Given:
    """Check points from elsewhere, and lay them out as (n, d)."""
    leaves = [as_float("draws", leaf) for leaf in jax.tree.leaves(draws)]
    log_density = as_float("log_proposal", log_proposal)
    sizes = {leaf.shape[:1] for leaf in leaves}
    if sizes != {log_density.shape} or (hasattr(draws, "shape") and leaves[0].ndim != 2):
        shapes = [leaf.shape for leaf in leaves]
        raise ValueError(
            f"draws must be (n, d) or a dict of (n, …), and log_proposal (n,); got {shapes} and "
            f"{log_density.shape}"
        )
    return _Given(
        np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1), log_density
    )


def _points(
    flat: FlatDensity,
    given: _Given | None,
    budget: int,
    rng: np.random.Generator,
    sobol: bool,
    tell: Callable[[str], None],
) -> tuple[list[Mode], WeightedPoints, int]:
    """Return the modes that were found, weighted points, and the number of gradients."""
    target = Target(flat.log_density, flat.starts[0], budget)
    if given is None:
        modes = find_modes(target, flat.starts, rng, tell, scatter=len(flat.starts) == 1)
        frame, proposal = first_proposal(modes)
        return modes, importance_sample(target, frame, proposal, rng, sobol, tell), target.gradients
    if given.x.shape[1] != target.dim:
        raise ValueError(f"draws have {given.x.shape[1]} numbers each, and start has {target.dim}")
    if len(given.x) > budget:
        raise ValueError(
            f"gradients={budget} does not reach for {len(given.x)} draws: each needs one"
        )
    tell("points: those given")
    at = target.at(given.x)
    alone = Round(at.log_density - given.log_proposal, np.empty((len(given.x), 0)))
    points = WeightedPoints(given.x, *at, given.log_proposal, (alone,))
    if _refusal(points) is None or target.left < _FEWEST:
        return [], points, target.gradients
    frame, proposal = fit_proposal(points)
    return [], importance_sample(target, frame, proposal, rng, sobol, tell), target.gradients


def _refusal(points: WeightedPoints) -> str | None:
    """Say why the weights are no basis for an answer; None if they are."""
    effective, k = points.effective, points.pareto_k
    if effective < _FEW:
        return (
            f"{len(points.x)} weighted points count like {effective:.0f}, and fewer than {_FEW} "
            "give no answer"
        )
    if k > _LONG_TAIL and points.top_share > _RULED:
        return (
            f"ten of {len(points.x)} points have {points.top_share:.0%} of all weight (Pareto k "
            f"{k:.2f}, above {_LONG_TAIL})"
        )
    median, best = points.last_shares
    if median < _LEAST_SHARE or best < _LEAST_BEST:
        return (
            f"points of the last proposals count like {median:.0%} of them, those of the best one "
            f"like {best:.0%}. Proposals that fit have more than {_LEAST_SHARE:.0%} and "
            f"{_LEAST_BEST:.0%}, and others miss mass without a sign"
        )
    return None


def _judge(
    modes: list[Mode],
    points: WeightedPoints,
    used: int,
    relative: tuple[str, ...],
    alone: bool,
    cautions: Cautions,
) -> Integration:
    """Say how it went, with log Z; raise an error where no proposal was good. Whoever gives several
    starts, and not one `alone`, knows of the modes."""
    if reason := _refusal(points):
        raise NumericalError(
            f"Importance sampling does not reach this density: {reason}, after {used} gradients in "
            f"{points.x.shape[1]} dimensions. Funnels, curved ridges, many dimensions do that. "
            f"Give more gradients, or a start near the mass. {_ADVICE}"
        )
    starts = tuple(mode.starts for mode in modes)
    if alone and _may_miss(modes):
        cautions.add(
            Caution(
                f"{len(starts)} modes were found, one of them from {min(starts)} of {sum(starts)} "
                "starts and points: narrower ones may be missing, with their mass. Give starts "
                "that reach them, start=(s, d), and more gradients."
            )
        )
    if points.pareto_k > _LONG_TAIL:
        cautions.add(
            Caution(
                f"The importance weights have a long tail (Pareto k {points.pareto_k:.2f}), of "
                f"which ten points have {points.top_share:.1%} of all weight: the density reaches "
                f"further than its proposals. {_ADVICE}, if it matters."
            )
        )
    return Integration(
        used,
        len(points.x),
        len(points.rounds),
        points.effective,
        points.pareto_k,
        np.stack([mode.at for mode in modes]) if modes else np.empty((0, points.x.shape[1])),
        starts,
        *log_evidence(points.rounds),
        outside=int(np.sum((points.log_density == -np.inf) & ~points.undefined)),
        undefined=int(points.undefined.sum()),
        relative=relative,
    )


def _may_miss(modes: list[Mode]) -> bool:
    """Say whether the search would overlook a mode half as wide as the one that it saw least: such
    a one is next to 2⁻ᵈ as many of its points."""
    fewest = min((mode.starts for mode in modes), default=0)
    return len(modes) > 1 and fewest < _OVERLOOKED * 2.0 ** len(modes[0].at)


def _jumps(points: WeightedPoints, cautions: Cautions) -> bool:
    """Say whether the density is zero or undefined next to where it has mass, so that Stein's
    identity may fail at the edge."""
    zero = points.log_density == -np.inf
    if not zero.any():
        return False
    from scipy.spatial import cKDTree

    weights = relative_weights(points.log_weights)
    unit = (points.x - points.x[~zero].mean(axis=0)) / points.x[~zero].std(axis=0)
    nearest = cKDTree(unit[~zero]).query(unit[zero])[1]
    if np.sum(weights[~zero][nearest]) < _JUMP * weights.sum():
        return False
    cautions.add(
        Caution(
            f"The log density is −inf or NaN at {zero.sum()} of {len(zero)} points, next to where "
            "its mass is. These count for nothing. Control variates need a density that goes to "
            "zero without a jump, so that the answers are plain importance sampling. Use "
            "unconstrained coordinates, or mend the log density."
        )
    )
    return True


def _answer(
    task: Task, names: tuple[str, ...], family: Family | Automatic | None, progress: bool
) -> tuple[Answer, Selection | None, str]:
    if isinstance(family, Family):
        method = Method(family)
        split = default_split(task, method)
        return fit_answer(task, method, split), None, split.describe()
    if not (family is None or isinstance(family, Automatic)):
        raise ValueError(
            f"family must be a family such as Polynomial(2), or Automatic(); got {family!r}"
        )
    options = Automatic(progress=progress) if family is None else family
    choice = choose(task, names, options)
    return choice.answer, choice.selection, in_sample().describe()


def _name_numbers(values: Any, names: Sequence[str]) -> Callable[[Any], dict[str, Any]]:
    """The integrands as a function of one draw to a dict of numbers, by their names."""

    def numbers_of(x: Any) -> dict[str, Any]:
        leaves = jax.tree.leaves(values(x)) if callable(values) else [x]
        numbers = jnp.concatenate([jnp.ravel(leaf).astype(float) for leaf in leaves])
        return {name: numbers[k] for k, name in enumerate(names)}

    return numbers_of


def _integrands(
    flat: FlatDensity, values: Any, names: Sequence[str] | None, sample: Sample
) -> tuple[Any, Sample, Sequence[str] | None]:
    """Values, sample and names as `as_values` takes them."""
    if values is None:
        columns = dict(zip(flat.names, sample.draws.T, strict=True))
        names = flat.labels if names is None else names
        return columns if flat.default is None else flat.default, sample, names
    table = dict(values) if isinstance(values, Mapping) else {"": values}
    wrong = [type(each).__name__ for each in table.values() if not callable(each)]
    if wrong or not table:
        raise ValueError(
            "values must be a function of one draw, or name → such functions, as the points are "
            f"not known yet; got {wrong or 'an empty dict'}"
        )
    if not isinstance(values, Mapping):
        return lambda x: values(flat.natural(x)), sample, names
    return (
        lambda x: {name: each(flat.natural(x)) for name, each in table.items()},
        sample,
        names,
    )
