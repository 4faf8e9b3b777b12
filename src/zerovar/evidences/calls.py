"""evidence(): log Z of a model, from the chain one has or from a ladder, with an error."""

from __future__ import annotations

from typing import Any
from warnings import WarningMessage

import numpy as np

from ..adapters.log_density import COMPARED, STEP, from_log_density
from ..adapters.recognition import draws_in_chains, posterior_in_memory, recognise
from ..arguments import FLAG, OF_A_DRAW, takes, whole
from ..choice import CHOICE, Automatic, Request
from ..errors import (
    NumericalError,
    ZerovarWarning,
    hold_warnings,
    merge_warnings,
    repeat_warnings,
)
from ..inference.cautions import Cautions
from ..inputs.density import Density
from ..inputs.integrands import DrawFunction, InSingleOnly
from ..inputs.points import Vector
from ..inputs.sample import Sample
from ..output import BridgeTraces, Evidence, LadderTraces, Part
from ..progress import stages
from ..session import Session
from .bridge import Half, cross
from .combination import evidence_of_ladder
from .ladders import Ladder

# Points of the proposal, or twice as many as draws: their error is then below that of the draws on
# nine of ten models
_POINTS = 8000
# How far the slopes of the log density may be from the scores, which may be in single precision
_APART = 0.02
_FEWEST = 20  # draws, of which a half is fitted to: as many as the errors of a mean need


@takes(log_density=OF_A_DRAW, evaluations=whole(2), family=CHOICE, progress=FLAG, seed=whole(0))
def evidence(
    data: Any,
    log_density: DrawFunction | None = None,
    *,
    evaluations: int = 20,
    family: Automatic | None = None,
    progress: bool = True,
    seed: int = 0,
) -> Evidence:
    """Estimate log Z, the logarithm of the integral of exp(log density), with its standard error:
    the evidence or marginal likelihood of a model.

    data: what an adapter returns (`zv.from_numpyro(mcmc)`, `zv.from_pymc(model, trace)`), NumPyro's
        MCMC itself; or an array of draws (n, d), with `log_density`; or a `zv.Ladder`.
    log_density: a JAX function of one unconstrained draw (d,), constants in it, where `data` has
        none: for arrays, and for files of Stan, which do not have the density itself.
    evaluations: of the log density, at most so many a draw.
    family, seed: as in `zv.estimate`.

    A proposal, a distribution whose density is known with its constant, is fitted to half of the
    draws, and a bridge between it and the other half gives log Z (Meng and Wong 1996); then with
    the halves exchanged. Both sides of a bridge are means of smooth bounded functions, one over
    draws and one over points of the proposal, and control variates work on both. Where draws and
    proposal hardly overlap there is no answer, and a `NumericalError` says so: a ladder of
    temperatures is needed then.

    Along a ladder log Z comes from thermodynamic integration, stepping stones and bridges between
    neighbours, each with control variates, and from their best combination.
    """
    if isinstance(data, Ladder):
        return _of_ladder(data)
    session, density = _open(data, log_density)
    constants = density.constants()
    if constants.meaningless:
        raise ValueError(
            f"log Z of this model means nothing: {'; '.join(constants.meaningless)}. Run it with "
            "all its data"
        )
    n = len(session.sample)
    if n < _FEWEST:
        raise ValueError(f"evidence needs at least {_FEWEST} draws; got {n}")
    count = min((evaluations - 1) * n, max(_POINTS, 2 * n))
    with hold_warnings() as caught, stages("evidence", 4, progress) as tell:
        Cautions().add_divergences(session.divergences, n)
        tell("log density at the draws")
        at_draws = _log_density(session.sample, density)
        # no stream that draws may have been made of
        rng = np.random.default_rng(seed).spawn(1)[0]
        halves = cross(session, at_draws, density, count, Request(family, seed=seed), rng, tell)
    texts = _repeat(caught)
    return _conclude(session, halves, constants.relative, n + count + 2 * COMPARED, texts)


def _repeat(caught: list[WarningMessage]) -> list[str]:
    """Give warnings that were held, and return their words."""
    repeat_warnings(caught)
    own = [one.message for one in caught if isinstance(one.message, ZerovarWarning)]
    return [str(one) for one in merge_warnings(own)]


def _of_ladder(ladder: Ladder) -> Evidence:
    with hold_warnings() as caught:
        found = evidence_of_ladder(ladder)
        plain = evidence_of_ladder(ladder, order=0, check=False)
    parts = tuple(
        Part(one.name, one.value, one.std_error, other.value, other.std_error, float(weight))
        for one, other, weight in zip(found.routes, plain.routes, found.weights, strict=True)
    )
    total = found.std_error**2
    return Evidence(
        log_z=found.log_z,
        std_error=found.std_error,
        plain_log_z=plain.log_z,
        plain_std_error=plain.std_error,
        title=f"ladder of {len(ladder.inverse_temperatures)} temperatures, "
        f"{ladder.log_likelihood.shape[1]} draws each, from the {found.reference}",
        target=found.target,
        parts=parts,
        shares={
            "draws": found.scatter**2 / total,
            "rules between temperatures": found.discretisation**2 / total,
            "routes that disagree": found.disagreement**2 / total,
        },
        overlap=None,
        evaluations=found.evaluations,
        relative=(),
        warnings=tuple(_repeat(caught)),
        traces=LadderTraces(
            found.temperatures,
            found.means,
            found.mean_errors,
            ladder.inverse_temperatures,
            found.shares,
        ),
    )


def _open(data: Any, log_density: DrawFunction | None) -> tuple[Session, Density]:
    """The draws, checked, and their log density."""
    if log_density is not None and recognise(data) is None:
        data = from_log_density(log_density, draws_in_chains(data), chain_axis=0)
    if log_density is None and isinstance(data, np.ndarray):
        raise ValueError(
            "data is an array: give log_density too, a JAX function of one draw (d,), with all its "
            "constants"
        )
    posterior = posterior_in_memory(data)
    density = posterior.density
    if log_density is not None and density is None:
        density = Density(log_density, lambda x: x)
    if density is None:
        raise ValueError(
            "evidence needs the log density itself, and these draws came without: use an adapter "
            "that has it (zv.from_numpyro, zv.from_pymc, zv.from_bridgestan, zv.from_log_density), "
            "or give log_density=, a JAX function of one unconstrained draw"
        )
    return Session.of(posterior), density


def _log_density(sample: Sample, density: Density) -> Vector:
    """At the draws, (n,), if it is theirs: its slopes along random directions are those that the
    scores say."""
    rng = np.random.default_rng(0)
    rows = np.unique(np.linspace(0, len(sample) - 1, COMPARED).astype(int))
    deviations = sample.draws.std(axis=0)
    steps = (
        STEP * rng.normal(size=(len(rows), sample.dim)) * np.where(deviations > 0, deviations, 1)
    )
    try:
        at_draws = density.at(sample.draws)
        ahead, behind = (density.at(sample.draws[rows] + side * steps) for side in (1, -1))
    except InSingleOnly as single:
        raise NumericalError(
            "the log density can be evaluated in single precision alone, whose seven digits are "
            f"too few for evidence: {single}. Let it keep the precision of its argument"
        ) from None
    if not np.isfinite(at_draws).all():
        raise ValueError(
            f"the log density is not finite at {np.sum(~np.isfinite(at_draws))} of {len(sample)} "
            "draws: it is that of other draws, or of draws on another scale. It takes one draw on "
            "the unconstrained scale"
        )
    parts = sample.scores[rows] * steps
    size = np.abs(parts).sum(axis=1) + STEP**2
    rounding = 64 * np.finfo(float).eps * np.abs(at_draws[rows])
    off = np.abs((ahead - behind) / 2 - parts.sum(axis=1)) > _APART * size + rounding
    if 2 * off.sum() > len(rows):
        raise ValueError(
            f"the log density does not belong to these draws: at {off.sum()} of {len(rows)} of "
            "them its slope is not what the scores say. Both must be of the same model, data and "
            "scale, with the Jacobian of the transformation in them"
        )
    return at_draws


def _conclude(
    session: Session,
    halves: list[Half],
    relative: tuple[str, ...],
    evaluations: int,
    warnings: list[str],
) -> Evidence:
    parts = tuple(
        Part(name, one.log_z, one.error, one.plain_log_z, one.plain_error, 0.5)
        for name, one in zip(("first half of the draws", "second half"), halves, strict=True)
    )
    count = len(halves)
    variances = {
        "draws": sum(one.posterior.error**2 for one in halves) / count**2,
        "points of the proposal": sum(one.points.error**2 for one in halves) / count**2,
    }
    total = sum(variances.values())
    if undefined := sum(one.undefined for one in halves):
        warnings.append(
            f"The log density is NaN at {undefined} points of the proposal; they count as points "
            "without density."
        )
    kinds = " and ".join(dict.fromkeys(one.proposal.name for one in halves))
    log_z = float(np.mean([one.log_z for one in halves]))
    return Evidence(
        log_z=log_z,
        std_error=float(np.sqrt(total)),
        plain_log_z=float(np.mean([one.plain_log_z for one in halves])),
        plain_std_error=float(np.sqrt(sum(one.plain_error**2 for one in halves)) / count),
        title=f"bridge to a proposal ({kinds}), {len(session.sample)} draws",
        target="log Z is the log of the integral of exp(log density)",
        parts=parts,
        shares={name: one / total for name, one in variances.items()},
        overlap=min(one.overlap for one in halves),
        evaluations=evaluations,
        relative=relative,
        warnings=tuple(warnings),
        traces=BridgeTraces(
            np.concatenate([one.ratios for one in halves]) - log_z,
            np.concatenate([one.point_ratios for one in halves]) - log_z,
        ),
    )
