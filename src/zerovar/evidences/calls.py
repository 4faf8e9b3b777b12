"""evidence(): log Z of a model, from the chain one has or from a ladder, with an error."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..adapters.log_density import slopes_apart
from ..arguments import FLAG, OF_A_DRAW, read_numbers, takes, where, whole
from ..choice import CHOICE, Automatic, Policy, Request
from ..errors import (
    hold_warnings,
    repeat_warnings,
)
from ..inference.cautions import Cautions
from ..inputs.density import Density
from ..inputs.integrands import DrawFunction
from ..inputs.points import Vector
from ..inputs.sample import Sample
from ..output import BridgeTraces, Evidence, LadderTraces, Part
from ..progress import stages
from ..session import Session
from .bridge import Half, cross
from .combination import evidence_of_ladder
from .ladders import Ladder
from .opening import open_density, require_double

# Points of the proposal, or twice as many as draws: their error is then below that of the draws on
# nine of ten models
_POINTS = 8000
# How far the slopes of the log density may be from the scores, which may be in single precision
_APART = 0.02
# What tunes kernels as long again is half of the time (a profile of the pines), and gains nothing:
# six samples of gp_regr are off by 2.6e-4 with it and without
_QUICKER = Policy(polished=0)
_FEWEST = 20  # draws, of which a half is fitted to: as many as the errors of a mean need


@takes(
    log_density=OF_A_DRAW,
    evaluations=whole(2),
    temperatures=where("numbers, one or more", lambda t: t.ndim == 1 and t.size, read_numbers),
    family=CHOICE,
    progress=FLAG,
    seed=whole(0),
)
def evidence(
    data: Any,
    log_density: DrawFunction | None = None,
    *,
    evaluations: int = 20,
    temperatures: Any = None,
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
    temperatures: of a ladder, inverse temperatures other than its own, from its lowest to its
        highest: its draws serve them by importance weights, which needs scores of prior and
        likelihood apart.
    family, seed: as in `zv.estimate`. A ladder chooses its own, and draws no numbers.

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
        _refuse("a Ladder", log_density=log_density, family=family)
        return _of_ladder(data, temperatures)
    _refuse("draws without a ladder", temperatures=temperatures)
    posterior, density = open_density(data, log_density)
    session = Session.of(posterior)
    family = Automatic(policy=_QUICKER) if family is None else family
    n = len(session.sample)
    if n < _FEWEST:
        raise ValueError(f"evidence needs at least {_FEWEST} draws; got {n}")
    count = min((evaluations - 1) * n, max(_POINTS, 2 * n))
    with hold_warnings() as caught, stages("evidence", 4, progress) as tell:
        Cautions().add_divergences(session.divergences, n)
        tell("log density at the draws")
        at_draws, used = _log_density(session.sample, density)
        # no stream that draws may have been made of
        rng = np.random.default_rng(seed).spawn(1)[0]
        halves, together = cross(
            session, at_draws, density, count, Request(family, seed=seed), rng, tell
        )
    texts = repeat_warnings(caught)
    return _conclude(session, halves, together, density.constants().relative, used + count, texts)


def _refuse(what: str, **given: Any) -> None:
    """Raise a ValueError if arguments were given that make no sense for such data."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} is not for {what}: leave it out")


def _of_ladder(ladder: Ladder, temperatures: np.ndarray | None) -> Evidence:
    with hold_warnings() as caught:
        found = evidence_of_ladder(ladder, temperatures=temperatures)
        plain = evidence_of_ladder(ladder, temperatures=temperatures, order=0, check=False)
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
        relative=ladder.relative,
        warnings=tuple(repeat_warnings(caught)),
        traces=LadderTraces(
            found.temperatures,
            found.means,
            found.mean_errors,
            ladder.inverse_temperatures,
            found.shares,
        ),
    )


def _log_density(sample: Sample, density: Density) -> tuple[Vector, int]:
    """At the draws, (n,), if it is theirs, as its slopes along random directions tell; and how
    often it was evaluated."""
    at_draws = require_double(lambda: density.at(sample.draws))
    if not np.isfinite(at_draws).all():
        raise ValueError(
            f"the log density is not finite at {np.sum(~np.isfinite(at_draws))} of {len(sample)} "
            "draws: it is that of other draws, or of draws on another scale. It takes one draw on "
            "the unconstrained scale"
        )
    off = slopes_apart(density.at, sample.draws, sample.scores, _APART)
    if 2 * off.sum() > len(off):
        raise ValueError(
            f"the log density does not belong to these draws: at {off.sum()} of {len(off)} of "
            "them its slope is not what the scores say. Both must be of the same model, data and "
            "scale, with the Jacobian of the transformation in them"
        )
    return at_draws, len(at_draws) + 2 * len(off)


def _conclude(
    session: Session,
    halves: list[Half],
    together: float,
    relative: tuple[str, ...],
    evaluations: int,
    warnings: list[str],
) -> Evidence:
    parts = tuple(
        Part(name, one.log_z, one.error, one.plain_log_z, one.plain_error, 0.5)
        for name, one in zip(("first half of the draws", "second half"), halves, strict=True)
    )

    def combine(draws: list[float], points: list[float]) -> dict[str, float]:
        """The variances of the mean of two, whose errors by draws are correlated."""
        return {
            "draws": (np.sum(np.square(draws)) + 2 * together * np.prod(draws)) / 4,
            "points of the proposal": np.sum(np.square(points)) / 4,
        }

    variances = combine(
        [one.posterior.error for one in halves], [one.points.error for one in halves]
    )
    plain = combine(
        [one.posterior.plain_error for one in halves], [one.points.plain_error for one in halves]
    )
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
        plain_std_error=float(np.sqrt(sum(plain.values()))),
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
