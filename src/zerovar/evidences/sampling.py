"""ladder(): draws of distributions that lead from one that is known to the posterior."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..arguments import FLAG, OF_A_DRAW, PATH, SHARE, takes, whole
from ..errors import NumericalError, SampleWarning, warn
from ..inputs.integrands import DrawFunction
from ..inputs.points import Matrix, Vector
from ..io.archive import load, storable, write
from ..io.atomic import destination
from ..progress import stages
from ..statistics.series import standard_error
from .feet import Foot, NormalDensity, make_foot
from .ladders import Ladder
from .tempering import Moved, Tempering, fit_frame, next_temperature, pick

_SHORTEST = 4  # draws of a chain, as everywhere
# Draws of a rung: so many, or for each term of a quadratic, up to so many terms (30 dimensions),
# which cost more than they are worth beyond. For a normal in 20 dimensions, with control variates,
# 1000 draws gave log Z to 0.04 and 1850, eight a term, to 0.003
_FEWEST, _A_TERM, _MOST_TERMS = 500, 8, 500
# More rungs are a sign that the ladder goes nowhere: a normal in 20 dimensions that begins two
# deviations off and half as wide in each takes 18
_MOST_RUNGS = 500
_LEAST_FINITE = 20  # draws of the first rung that the second can begin from, as of a mean
_SLOW = 0.3  # acceptance below which chains stay where they were: steps are adapted to 0.9
_ROUNDS = 10  # of moves in the prior, each with the coordinates of the one before
_APART = 6.0  # joint errors between the draws given and those of the last rung
_ALIKE = 1e-6  # relative, of log densities that are the same on another machine


@storable
@dataclasses.dataclass(frozen=True, eq=False)
class StoredRung:
    """Draws (n, d) of one inverse temperature, all that is known there, and how they came about."""

    inverse_temperature: float
    draws: Matrix
    first_scores: Matrix
    rest: Vector
    rest_scores: Matrix
    step: float
    acceptance: float
    evaluations: int


@storable
@dataclasses.dataclass(frozen=True, eq=False)
class StoredLadder:
    """The rungs that are done, and the arguments that they belong to."""

    arguments: dict[str, Any]
    centre: Vector
    root: Matrix
    rungs: tuple[StoredRung, ...]


@takes(
    log_density=OF_A_DRAW,
    log_prior=OF_A_DRAW,
    draws=whole(20),
    chains=whole(2),
    overlap=SHARE,
    progress=FLAG,
    seed=whole(0),
    path=PATH,
)
def ladder(
    data: Any,
    log_density: DrawFunction | None = None,
    *,
    log_prior: DrawFunction | None = None,
    prior_draws: Any = None,
    start: Any = None,
    args: Sequence[object] | None = None,
    kwargs: Mapping[str, object] | None = None,
    draws: int | None = None,
    chains: int = 50,
    overlap: float = 0.5,
    progress: bool = True,
    seed: int = 0,
    path: str | os.PathLike[str] | None = None,
) -> Ladder:
    """Draw from distributions between one whose integral is known and the posterior, for
    `zv.evidence`: where a chain and a proposal do not overlap enough for a bridge.

    data: what an adapter returns, or an array of draws (n, d) or (chain, draw, d) with
        `log_density`: the ladder begins from a normal fitted to the draws. Or a model, as in
        `zv.integrate`: a JAX log density with its `start`, a NumPyro model with its `args` and
        `kwargs`, a PyMC model. The ladder then begins from a normal of unit deviations at `start`,
        or, where that has several points (s, d), one fitted to them.
    log_density: a JAX function of one unconstrained draw (d,), constants in it.
    log_prior: a normalised JAX log density of one draw. The ladder then begins from it, and `data`
        is the log-likelihood, a JAX function of one draw.
    prior_draws: independent draws of the prior (n, d), at least `draws`. Without them chains draw
        from the prior, which begin at `start`.
    draws: of each rung, by so many `chains`. By default 500, or as many as control variates that
        are quadratic need: 1848 in 20 dimensions; in more than 30, where these are too many, 1000.
    overlap: the effective share of a rung's draws for the next rung, which makes the temperatures.
    seed: the same seed gives the same ladder.
    path: a file for the rungs that are done. A call that was interrupted goes on from there if it
        is made again, with the same arguments and the same answer.

    Draws of a rung are weighted for the next temperature; chains begin from some of them, and are
    moved by BlackJAX's Hamiltonian Monte Carlo, twenty moves that are not kept and then those that
    are. Steps and coordinates are adapted to each rung. `ladder.evaluations` is what it cost, in
    gradients of the log density.
    """
    foot = make_foot(data, log_density, log_prior, prior_draws, start, args, kwargs)
    kept = -(-(_default_draws(len(foot.frame.centre)) if draws is None else draws) // chains)
    if kept < _SHORTEST:
        raise ValueError(
            f"ladder: {chains} chains make {kept} draws each; at least {_SHORTEST} are needed. "
            "Give more draws or fewer chains"
        )
    tempering = Tempering(foot.factors, chains, kept)
    arguments = {
        "draws": kept * chains,
        "chains": chains,
        "overlap": overlap,
        "seed": seed,
        "reference": foot.reference,
    }
    file = None if path is None else Path(path)
    if file is not None:
        destination(file)  # says at once that it cannot be written
    rungs = [] if file is None else _resume(file, arguments, foot, tempering)
    frame = foot.frame
    with stages("ladder", None, progress) as tell:
        while not rungs or rungs[-1].inverse_temperature < 1:
            rungs.append(_climb(foot, tempering, rungs, arguments, tell))
            if file is not None:
                write(file, StoredLadder(arguments, frame.centre, frame.root, tuple(rungs)))
            if len(rungs) > _MOST_RUNGS:
                raise NumericalError(
                    f"{len(rungs)} temperatures led to t = {rungs[-1].inverse_temperature:g} only. "
                    "Begin from a distribution that is nearer to the posterior"
                )
    _caution(rungs, foot)
    return Ladder(
        [one.inverse_temperature for one in rungs],
        np.stack([one.draws for one in rungs]),
        np.stack([one.rest for one in rungs]),
        prior_scores=np.stack([one.first_scores for one in rungs]),
        likelihood_scores=np.stack([one.rest_scores for one in rungs]),
        evaluations=sum(one.evaluations for one in rungs),
        reference=foot.reference,
        from_model=True,
        relative=foot.relative,
    )


def _default_draws(d: int) -> int:
    terms = math.comb(d + 2, 2)
    return max(_FEWEST, _A_TERM * terms) if terms <= _MOST_TERMS else 2 * _FEWEST


def _climb(
    foot: Foot,
    tempering: Tempering,
    rungs: Sequence[StoredRung],
    arguments: Mapping[str, Any],
    tell: Any,
) -> StoredRung:
    """The next rung. All randomness is that of its number, so that it does not matter whether the
    rungs below were made just now."""
    k = len(rungs)
    # spawned, so that it is no stream that a user of the same seed has: a normal that is fitted to
    # draws by these very numbers, and drawn from by them, is not what it seems
    rng = np.random.default_rng(np.random.SeedSequence(arguments["seed"], spawn_key=(k,)))
    if not rungs:
        tell(f"{foot.reference}, t = 0")
        return _first(foot, tempering, arguments, rng)
    last = rungs[-1]
    t, probabilities = next_temperature(last.inverse_temperature, last.rest, arguments["overlap"])
    tell(f"rung {k}, t = {t:.3g}")
    frame = fit_frame(last.draws, probabilities, foot.frame)
    starts = last.draws[pick(probabilities, arguments["chains"], rng)]
    moved = tempering.move(starts, t, frame, last.step, _seed(rng))
    return _store(t, moved, tempering)


def _first(
    foot: Foot,
    tempering: Tempering,
    arguments: Mapping[str, Any],
    rng: np.random.Generator,
) -> StoredRung:
    """Rung zero: independent draws where these can be had, else chains that forget their starts."""
    n, d = arguments["draws"], len(foot.frame.centre)
    step = d**-0.25  # as the acceptance of a normal has it
    if foot.draws is not None:
        if len(foot.draws) < n:
            raise ValueError(
                f"prior_draws must be at least {n}, as there are draws of each rung; got "
                f"{len(foot.draws)}. Give more, or fewer draws="
            )
        rows = np.linspace(0, len(foot.draws) - 1, n).astype(int)
        moved = Moved(foot.draws[rows][None], step, 1.0, 0)
    elif isinstance(foot.factors.first, NormalDensity):
        moved = Moved(foot.frame.x(rng.normal(size=(n, d)))[None], step, 1.0, 0)
    else:
        frame, cost = foot.frame, 0
        x = foot.points[rng.integers(len(foot.points), size=arguments["chains"])]
        for _ in range(_ROUNDS):
            moved = tempering.move(x, 0.0, frame, step, _seed(rng))
            flat = moved.draws.reshape(-1, d)
            frame = fit_frame(flat, np.full(len(flat), 1 / len(flat)), foot.frame)
            x, step, cost = moved.draws[:, -1], moved.step, cost + moved.evaluations
        moved = moved._replace(evaluations=cost)
    found = _store(0.0, moved, tempering)
    if (share := np.isfinite(found.rest).mean()) * n < _LEAST_FINITE:
        raise NumericalError(
            f"the log density is finite at {share:.1%} of {n} draws of the {foot.reference}, too "
            "few to go on from. Begin elsewhere, or give more draws"
        )
    return found


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def _store(t: float, moved: Moved, tempering: Tempering) -> StoredRung:
    # chain after chain, as one series: neighbours that are alike make the errors larger
    x = moved.draws.reshape(-1, moved.draws.shape[-1])
    found = tempering.at(x)
    if not all(np.isfinite(one).all() for one in (found.first_scores, found.rest_scores)):
        raise ValueError(
            f"gradients of the log density are not finite at some draws of t = {t:g}, where it is "
            "finite itself. Mend it there"
        )
    return StoredRung(
        t,
        x,
        found.first_scores,
        found.rest,
        found.rest_scores,
        moved.step,
        moved.acceptance,
        moved.evaluations + len(x),
    )


def _resume(
    file: Path, arguments: Mapping[str, Any], foot: Foot, tempering: Tempering
) -> list[StoredRung]:
    """The rungs that an earlier call with these arguments has left in a file."""
    if not file.exists():
        return []
    stored = load(file)
    if not isinstance(stored, StoredLadder):
        raise ValueError(f"path: {file} holds a {type(stored).__name__}, and no rungs of a ladder")
    other = [
        f"{name} = {stored.arguments.get(name)!r}, not {value!r}"
        for name, value in arguments.items()
        if stored.arguments.get(name) != value
    ]
    if not other and not (
        np.array_equal(stored.centre, foot.frame.centre)
        and np.array_equal(stored.root, foot.frame.root)
    ):
        other = ["draws or start are others"]
    if not other:
        first = stored.rungs[0]
        found = tempering.at(first.draws).rest
        if not np.allclose(found, first.rest, rtol=_ALIKE, atol=_ALIKE):
            other = ["the log density is another"]
    if other:
        raise ValueError(
            f"path: {file} holds rungs that were made with other arguments ({'; '.join(other)}). "
            "Name another file, or remove this one"
        )
    return list(stored.rungs)


def _caution(rungs: Sequence[StoredRung], foot: Foot) -> None:
    """Warn where chains hardly moved, and where the last rung is not like the draws given."""
    slow = [one.inverse_temperature for one in rungs if one.acceptance < _SLOW]
    if slow:
        warn(
            f"Chains hardly moved at {len(slow)} of {len(rungs)} temperatures, the first of them "
            f"t = {slow[0]:.3g}: the density varies on scales that are far apart. Errors may be "
            "too small",
            SampleWarning,
        )
    if foot.given is None or foot.given.shape[1] < _SHORTEST:
        return
    frame, d = foot.frame, foot.given.shape[-1]
    moments = []
    for array in (foot.given, rungs[-1].draws[None]):
        z = frame.z(array.reshape(-1, d)).reshape(array.shape)
        both = np.concatenate([z, z**2], axis=-1)
        mean = both.mean(axis=(0, 1))
        moments.append((mean, standard_error(both - mean, np.zeros(2 * d))))
    (one, error), (other, other_error) = moments
    apart = np.abs(one - other) / np.hypot(error, other_error)
    if (most := apart.max()) > _APART:
        warn(
            f"Draws of the last rung are not like those given: coordinate {apart.argmax() % d} is "
            f"{most:.0f} joint errors apart. One of them has missed a part of the posterior, and "
            "log Z may be off. More draws and chains may tell",
            SampleWarning,
        )
