"""Draws at several temperatures, as users have them, validated once."""

from __future__ import annotations

import dataclasses
import inspect
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike

from ..arguments import FLAG, NAMES, check_argument, instance, number, whole
from ..inputs.sample import Sample, as_float
from ..io.archive import name_files, read_arrays, require_known


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Ladder:
    """Draws of tempered distributions π_t ∝ π_0 · likelihoodᵗ, t from 0 to 1.

    inverse_temperatures: (T,) the exponents t, increasing, each in [0, 1].
    draws: (T, n, d), one chain a rung, or (T, chain, draw, d).
    log_likelihood: (T, n) or (T, chain, draw), the log-likelihood at the draws, without t. It may
        be −∞ at draws of t = 0.
    scores: of each rung's own target, ∇log π_0 + t ∇log-likelihood at its draws, of the draws'
        shape. Or, in its place:
    prior_scores, likelihood_scores: ∇log π_0 and ∇log-likelihood at the draws. They are needed
        where draws are weighted to serve other temperatures. Where the log-likelihood is −∞,
        likelihood_scores may be anything.
    evaluations: what the ladder cost, in log densities or their gradients, if that is known.
    log_z0: log of the integral of π_0, as it enters the draws' densities; 0 for a normalised prior.
    reference: what π_0 is, in a word.
    from_model: whether log-likelihoods and scores were computed from functions at the draws: that
        they belong together is not tested then.
    relative: reasons for which log Z is known up to a constant alone, as a prior that is no
        normalised density; what is made of the ladder says them.

    Arrays are kept with one axis of draws, chain after chain: (T, n, d) and (T, n).
    """

    inverse_temperatures: Float64[np.ndarray, " rungs"]
    draws: Float64[np.ndarray, "rungs n d"]
    log_likelihood: Float64[np.ndarray, "rungs n"]
    scores: Float64[np.ndarray, "rungs n d"] | None
    prior_scores: Float64[np.ndarray, "rungs n d"] | None
    likelihood_scores: Float64[np.ndarray, "rungs n d"] | None
    num_chains: int
    evaluations: int | None
    log_z0: float
    reference: str
    from_model: bool
    relative: tuple[str, ...]

    def __init__(
        self,
        inverse_temperatures: ArrayLike,
        draws: ArrayLike,
        log_likelihood: ArrayLike,
        scores: ArrayLike | None = None,
        *,
        prior_scores: ArrayLike | None = None,
        likelihood_scores: ArrayLike | None = None,
        evaluations: int | None = None,
        log_z0: float = 0.0,
        reference: str = "prior",
        from_model: bool = False,
        relative: Sequence[str] = (),
    ):
        temperatures = check_temperatures(inverse_temperatures)
        positions = as_float("draws", draws, power=4)
        if positions.ndim not in (3, 4) or len(positions) != len(temperatures):
            hint = " For one parameter use draws[..., None]" if positions.ndim == 2 else ""
            raise ValueError(
                "draws of a Ladder must be (T, n, d) or (T, chain, draw, d), with T = "
                f"{len(temperatures)} as there are inverse temperatures; got {positions.shape}."
                f"{hint}"
            )
        shape, d = positions.shape, positions.shape[-1]
        if d == 0 or shape[-2] < 4 or 0 in shape:
            raise ValueError(
                "draws must hold at least 4 draws a chain of at least one parameter at every "
                f"temperature; got {shape}"
            )
        values = _log_likelihood(log_likelihood, shape[:-1], temperatures)
        apart = (prior_scores, likelihood_scores)
        if (scores is None) == all(one is None for one in apart) or (
            scores is None and any(one is None for one in apart)
        ):
            raise ValueError(
                "a Ladder takes either scores, of each rung's own target prior · likelihoodᵗ, or "
                "both prior_scores and likelihood_scores, of the two factors; got "
                + (_list_kinds(scores, prior_scores, likelihood_scores) or "none of them")
            )
        kinds = {
            "scores": scores,
            "prior_scores": prior_scores,
            "likelihood_scores": likelihood_scores,
        }
        found = {
            name: None if array is None else _scores(name, array, shape, values)
            for name, array in kinds.items()
        }
        vars(self).update(
            inverse_temperatures=temperatures,
            draws=positions.reshape(len(positions), -1, d),
            log_likelihood=values.reshape(len(positions), -1),
            **found,
            num_chains=shape[1] if len(shape) == 4 else 1,
            evaluations=None
            if evaluations is None
            else check_argument("Ladder: evaluations", evaluations, whole(0)),
            log_z0=check_argument("Ladder: log_z0", log_z0, number("a finite number", np.isfinite)),
            reference=check_argument("Ladder: reference", reference, instance(str, "a string")),
            from_model=check_argument("Ladder: from_model", from_model, FLAG),
            relative=tuple(check_argument("Ladder: relative", relative, NAMES)),
        )

    def __len__(self) -> int:
        return len(self.inverse_temperatures)

    def __repr__(self) -> str:
        t, n = self.inverse_temperatures, self.draws.shape[1]
        return (
            f"Ladder({len(self)} temperatures from {t[0]:g} to {t[-1]:g}, {self.num_chains} × "
            f"{n // self.num_chains} draws each, d = {self.dim})"
        )

    @property
    def dim(self) -> int:
        """The number d of coordinates."""
        return self.draws.shape[2]

    @property
    def target(self) -> str:
        """What the ladder estimates, in words."""
        low, high = self.inverse_temperatures[[0, -1]]
        if low == 0 and high == 1:
            return "log Z"
        return f"log Z({high:g}) − log Z({low:g})" if low else f"log Z({high:g})"

    def scores_at(self, k: int, t: float) -> Float64[np.ndarray, "n d"]:
        """Return the scores of the target at inverse temperature t, at the draws of rung k."""
        if self.prior_scores is not None and self.likelihood_scores is not None:
            return self.prior_scores[k] + t * self.likelihood_scores[k]
        assert self.scores is not None
        if t != self.inverse_temperatures[k]:
            raise ValueError(
                "draws that are weighted to serve another temperature need prior_scores and "
                "likelihood_scores apart: scores of a rung's own target do not tell those of "
                "another"
            )
        return self.scores[k]

    def sample(self, k: int, scores: np.ndarray | None = None) -> Sample:
        """Return the draws of rung k with its own scores, or with others (n, d)."""
        some = self.scores_at(k, self.inverse_temperatures[k]) if scores is None else scores
        shape = (self.num_chains, -1, self.dim)
        return Sample(self.draws[k].reshape(shape), some.reshape(shape))

    def replace(self, **fields: Any) -> Ladder:
        """Return this ladder with some fields replaced, which are known to be valid."""
        other = object.__new__(Ladder)
        vars(other).update(vars(self) | fields)
        return other

    def take(self, rows: np.ndarray) -> Ladder:
        """Return the ladder with these draws of every rung, as one chain; (k,) row numbers for all
        rungs, or (T, k)."""
        rows = np.broadcast_to(rows, (len(self), np.shape(rows)[-1]))
        names = ("draws", "log_likelihood", "scores", "prior_scores", "likelihood_scores")
        arrays = {name: getattr(self, name) for name in names}
        fewer = {
            name: np.stack([one[some] for one, some in zip(array, rows, strict=True)])
            for name, array in arrays.items()
            if array is not None
        }
        return self.replace(**fewer, num_chains=1)


def read_ladder(path: Path) -> Ladder | None:
    """Return the ladder in an .npz, or None if the file holds none."""
    if not (path.is_file() and zipfile.is_zipfile(path)):
        return None

    def choose(names: list[str]) -> list[str]:
        if "inverse_temperatures" not in names:
            return []
        require_known(path, names, tuple(inspect.signature(Ladder).parameters))
        return names

    with name_files(path):
        arrays = read_arrays(path, choose, compressed=True)
    if not arrays:
        return None
    if absent := [name for name in ("draws", "log_likelihood") if name not in arrays]:
        raise ValueError(f"{path} is a ladder without {' and '.join(absent)}")
    plain = ("evaluations", "log_z0", "reference", "from_model", "relative")
    given: dict[str, Any] = {
        name: one.tolist() if name in plain else one for name, one in arrays.items()
    }
    return Ladder(**given)


def check_temperatures(temperatures: ArrayLike) -> Float64[np.ndarray, " rungs"]:
    """Return inverse temperatures, or raise a ValueError that says what they must be."""
    found = as_float("inverse_temperatures", temperatures)
    if found.ndim != 1 or len(found) < 2:
        raise ValueError(
            f"inverse_temperatures must be a list of at least two numbers; got shape {found.shape}"
        )
    if found.min() < 0 or found.max() > 1:
        hint = " Are these temperatures? Give 1/temperature" if found.min() >= 1 else ""
        raise ValueError(
            "inverse_temperatures must lie in [0, 1], as exponents of the likelihood; got "
            f"{found.min():g} to {found.max():g}.{hint}"
        )
    if (steps := np.diff(found)).min() <= 0:
        k = int(np.argmax(steps <= 0))
        what = "repeated" if steps[k] == 0 else "not in increasing order"
        raise ValueError(
            f"inverse_temperatures must increase from rung to rung; {found[k]:g} and "
            f"{found[k + 1]:g} (numbers {k} and {k + 1}) are {what}. Sort all arrays along their "
            "first axis, and put draws of one temperature into one rung"
        )
    return found


def _log_likelihood(
    array: ArrayLike, shape: tuple[int, ...], temperatures: np.ndarray
) -> np.ndarray:
    """Return log-likelihoods at draws of this shape, or say what is wrong with them."""
    values = as_float("log_likelihood", array, finite=False)
    if values.shape != shape:
        raise ValueError(
            f"log_likelihood must have one number a draw, {shape} as the draws have; got "
            f"{values.shape}"
        )
    bad = np.isnan(values) | (values == np.inf)
    bad |= np.isneginf(values) & (temperatures > 0).reshape(-1, *(1 for _ in shape[1:]))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"log_likelihood is {values[where]} at index {where}, where t = "
            f"{temperatures[where[0]]:g}, and in {bad.sum()} places in all. It must be finite; "
            "−∞, a likelihood of zero, can only occur at draws of t = 0"
        )
    if np.isneginf(values[0]).all():
        raise ValueError("log_likelihood is −∞ at all draws of t = 0: nothing leads to the others")
    if np.ptp(values) == 0:
        raise ValueError(
            f"log_likelihood is {values.flat[0]:g} at every draw of every temperature; it must be "
            "that of each draw. Where the likelihood is constant indeed, log Z is that number, and "
            "no ladder is needed"
        )
    return values


def _scores(name: str, array: ArrayLike, shape: tuple[int, ...], values: np.ndarray) -> np.ndarray:
    """Return scores (T, n, d) of draws of this shape, or say what is wrong with them."""
    found = as_float(name, array, finite=False)
    if found.shape != shape:
        raise ValueError(f"{name} must have the shape of the draws, {shape}; got {found.shape}")
    if name == "likelihood_scores":  # where there is no likelihood, they count for nothing
        found[np.isneginf(values)] = 0.0
    return as_float(name, found, power=4).reshape(shape[0], -1, shape[-1])


def _list_kinds(*scores: object) -> str:
    names = ("scores", "prior_scores", "likelihood_scores")
    return " and ".join(n for n, one in zip(names, scores, strict=True) if one is not None)
