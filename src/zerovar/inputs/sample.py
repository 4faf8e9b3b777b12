"""Draws and scores as users have them, validated once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool
from numpy.typing import ArrayLike

from ..arguments import FLAG, instance, takes
from ..spaces import REALS, SPACE, Space
from .points import ChainOrder, Matrix, PointData, Points, RowNumbers, Vector, sum_to_one


def as_float(
    name: str, array: ArrayLike, finite: bool = True, power: int = 2, impossible: bool = False
) -> np.ndarray:
    """Return `array` as float64, finite and so small that powers of it are finite, or raise a
    ValueError that names the argument and the first bad entry; `finite=False` lets any float pass,
    `impossible` also −∞, for log ratios to what cannot be."""
    if isinstance(array, np.ma.MaskedArray) and array.mask.any():
        raise ValueError(
            f"{name} is a masked array with {array.mask.sum()} masked entries; leave those draws "
            "out of all arrays"
        )
    try:
        out = np.asarray(array)
        if out.dtype.kind == "O":
            # a table of numbers kept as objects; anything else fails here
            out = out.astype(np.float64)
    except Exception as error:
        raise ValueError(
            f"{name} cannot be read as a rectangular array of numbers (ragged, or non-numeric?): "
            f"{error}"
        ) from error
    if out.dtype.kind not in "fiub":
        kind = "ragged or non-numeric" if out.dtype.kind in "OSU" else f"of dtype {out.dtype}"
        raise ValueError(
            f"{name} must be a rectangular array of real numbers; got an array that is {kind}"
        )
    # a copy: a Sample does not change under its owner's feet
    out = np.array(out, dtype=np.float64, order="C")
    if not finite:
        return out
    bad = ~np.isfinite(out)
    if impossible:
        bad &= out != -np.inf
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        if impossible:
            raise ValueError(
                f"{name} must be log ratios log p(x′) − log p(x), finite or -inf where a neighbour "
                f"is impossible; got {bad.sum()} NaN or +inf entries, the first at index {where}. "
                "+inf says that the draw itself is impossible: is the sign flipped?"
            )
        raise ValueError(
            f"{name} must be finite; got {bad.sum()} NaN or infinite entries, the first at index "
            f"{where}. "
            "Remove those draws or mend the log density there: zerovar does not drop them for you"
        )
    if impossible:
        return out
    if out.size and (largest := np.abs(out).max()) > 1e300 ** (1 / power):
        where = tuple(int(i) for i in np.argwhere(np.abs(out) == largest)[0])
        raise ValueError(
            f"{name} must be at most 1e{300 // power} in size, or squares and products overflow; "
            f"got {largest:.3g} at index {where}. Leave that draw out of all arrays, or use other "
            "units"
        )
    return out


def underflows(array: np.ndarray, power: int = 2) -> Bool[np.ndarray, " k"]:
    """Return the columns that move, but by so little that such powers are zero to rounding."""
    spread = np.ptp(array, axis=0)
    return (spread > 0) & (spread < np.finfo(np.float64).tiny ** (1 / power))


@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """Draws x_i of a distribution and the scores s_i = ∇log π(x_i) there.

    `draws` and `scores` are (n, d), one chain in order, or (chain, draw, d); both are kept flat,
    (n, d), chain after chain. `log_weights`, (n,) or (chain, draw), are unnormalised log importance
    weights; without them every draw counts alike. `from_model` says that the scores are those that
    a model's log density has at the draws, computed by an adapter or a sampler, and not numbers of
    unknown origin; `as_chains`, that draws came with an axis of chains. `space` is where they live,
    by default Rᵈ, and says what scores are there.
    """

    draws: Matrix
    scores: PointData
    num_chains: int
    weights: Vector | None
    names: tuple[str, ...] | None = None
    from_model: bool = False
    as_chains: bool = False
    space: Space = REALS

    @takes(from_model=FLAG, space=SPACE)
    def __init__(
        self,
        draws: ArrayLike,
        scores: ArrayLike,
        log_weights: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        from_model: bool = False,
        space: Space | None = None,
    ):
        space = REALS if space is None else space
        draws = as_float("draws", draws, power=4)
        scores = as_float("scores", scores, power=4, impossible=space.is_countable)
        if draws.shape != scores.shape and (space.is_flat or draws.shape[:-1] != scores.shape[:-1]):
            hint = "; the axes look swapped" if draws.shape == scores.shape[::-1] else ""
            raise ValueError(
                "draws and scores must have the same shape, (n, d) or (chain, draw, d); "
                f"got {draws.shape} and {scores.shape}{hint}"
            )
        if draws.ndim not in (2, 3):
            hint = " For one parameter use draws[:, None]" if draws.ndim == 1 else ""
            raise ValueError(
                f"draws must be (n, d) or (chain, draw, d); got shape {draws.shape}.{hint}"
            )
        as_chains = draws.ndim == 3
        chains = draws.shape[0] if as_chains else 1
        d = draws.shape[-1]
        if d == 0 or chains == 0 or draws.shape[-2] < 4:
            raise ValueError(
                f"draws must hold at least 4 draws a chain of at least one parameter; got "
                f"{chains} chain(s) of {draws.shape[-2]} draws in {d} dimensions. If the axes are "
                "(parameter, draw), transpose"
            )
        draws, scores = draws.reshape(-1, d), scores.reshape(-1, scores.shape[-1])
        space.check(draws, scores)
        labels = check_names(names, d)
        for name, array in (("draws", draws), ("scores", scores)) if space.is_flat else ():
            constant = np.flatnonzero(np.ptp(array, axis=0) == 0)
            if constant.size:
                raise ValueError(
                    f"{name}: {coordinate_name(labels, constant[0])} is the same number, "
                    f"{array[0, constant[0]]:g}, at every draw ({constant.size} such of {d}). A "
                    "fixed parameter is not sampled: leave it out of draws and scores"
                )
            if (small := np.flatnonzero(underflows(array, power=4))).size:
                raise ValueError(
                    f"{name}: {coordinate_name(labels, small[0])} moves by only "
                    f"{np.ptp(array[:, small[0]]):.2g}, and squares underflow. Use other units"
                )
        weights = _weights(log_weights, chains, len(draws))
        vars(self).update(
            draws=draws,
            scores=scores,
            num_chains=chains,
            weights=weights,
            names=labels,
            from_model=bool(from_model),
            as_chains=as_chains,
            space=space,
        )

    def __len__(self) -> int:
        return len(self.draws)

    def __repr__(self) -> str:
        weighted = ", weighted" if self.weights is not None else ""
        where = "" if self.space.is_flat else f", {self.space.describe()}"
        return (
            f"Sample({self.num_chains} × {len(self) // self.num_chains} draws, d = "
            f"{self.dim}{weighted}{where})"
        )

    @property
    def dim(self) -> int:
        """The number d of coordinates."""
        return self.draws.shape[1]

    @property
    def probabilities(self) -> Vector:
        """What each draw counts, (n,), summing to one."""
        return np.full(len(self), 1 / len(self)) if self.weights is None else self.weights

    def points(self, rows: RowNumbers | None = None) -> Points:
        """Return all draws, or those with these row numbers, in increasing order."""
        if rows is None:
            segment = np.repeat(np.arange(self.num_chains), len(self) // self.num_chains)
            order = ChainOrder(np.arange(len(self)), segment)
            return Points(self.draws, self.scores, self.probabilities, order, self.space)
        chain = rows // (len(self) // self.num_chains)
        breaks = (np.diff(rows, prepend=-2) != 1) | (np.diff(chain, prepend=-1) != 0)
        order = ChainOrder(np.arange(len(rows)), np.cumsum(breaks) - 1)
        p = sum_to_one(self.probabilities[rows])
        return Points(self.draws[rows], self.scores[rows], p, order, self.space)

    def thin(self, most: int) -> tuple[Sample, RowNumbers]:
        """Return about `most` draws, equally spaced within every chain, and their row numbers; all
        of them if they are fewer."""
        draws = len(self) // self.num_chains
        kept = min(draws, max(round(min(most, len(self)) / self.num_chains), 4))
        every = np.linspace(0, draws - 1, kept).round().astype(int)
        rows = (draws * np.arange(self.num_chains)[:, None] + every).ravel()
        return (self if kept == draws else self.take(rows, self.num_chains)), rows

    def along(self, kept: Bool[np.ndarray, " d"]) -> Sample:
        """Return the draws with some of their coordinates: by Stein's identity along these, and
        none along the others."""
        names = tuple(coordinate_name(self.names, j) for j in np.flatnonzero(kept))
        return self.replace(draws=self.draws[:, kept], scores=self.scores[:, kept], names=names)

    def chains(self, some: Bool[np.ndarray, " chain"]) -> Sample:
        """Return some of the chains."""
        rows = self.by_chain(np.arange(len(self)))[some].ravel()
        return self.take(rows, int(some.sum()))

    def take(self, rows: RowNumbers, num_chains: int) -> Sample:
        """Return the draws with these row numbers, as so many chains of equal length."""
        return self.replace(
            draws=self.draws[rows],
            scores=self.scores[rows],
            num_chains=num_chains,
            weights=None if self.weights is None else sum_to_one(self.weights[rows]),
        )

    def replace(self, **fields: Any) -> Sample:
        """Return this sample with some fields replaced. They are known to be valid: nothing is
        checked or copied."""
        other = object.__new__(Sample)
        vars(other).update(vars(self) | fields)
        return other

    def by_chain(self, array: np.ndarray) -> np.ndarray:
        """Return (n, ...) as (chain, draw, ...)."""
        return array.reshape(self.num_chains, -1, *array.shape[1:])


SAMPLE = instance(Sample, "a zv.Sample(draws, scores)")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """A sampler's output as `zv.estimate`, `zv.summary` and `zv.check` take it: what every adapter
    returns.

    draws, scores: (chain, draw, d), both on the unconstrained scale, the Jacobian of the
        transformation in the log density.
    values: name → (chain, draw), the quantities of interest on their natural scale; None for the
        draws themselves.
    names: of the d coordinates of the draws, for messages.
    log_weights: unnormalised log importance weights, (chain, draw).
    coordinates: name → `Coordinates` in which the same draws may do better:
        `posterior.coordinates[name](posterior)`.
    from_model: whether the scores were computed from the model's log density, by the adapter or the
        sampler; scores of arrays and tables are as given.
    density: the log density and the quantities as functions of a draw, where the adapter has them:
        probabilities and quantiles then gain most. Files and arrays do without.
    divergences: how many of the sampler's transitions diverged, as far as it tells.
    space: where the draws live, by default Rᵈ.

    Arrays are NumPy's, or Dask's where they stay on disk.
    """

    draws: Any
    scores: Any
    values: Any
    names: tuple[str, ...] | None = None
    log_weights: Any = None
    coordinates: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)
    from_model: bool = False
    density: Any = None
    divergences: int = 0
    space: Space = REALS

    def __repr__(self) -> str:
        weighted = "" if self.log_weights is None else ", weighted"
        *chains, draws, d = self.draws.shape
        count = d if self.values is None else len(self.values)
        return (
            f"Posterior({chains[0] if chains else 1} × {draws} draws, d = {d}, {count} "
            f"values{weighted})"
        )

    def __iter__(self) -> Iterator[Any]:
        """Give draws, scores and values, as `zv.estimate(*posterior)` takes them by place."""
        if self.log_weights is not None:
            raise ValueError(
                "this posterior has weights, which are lost when it is unpacked: give it whole"
            )
        return iter((self.draws, self.scores, self.values))

    @property
    def sample(self) -> Sample:
        """The draws and scores, checked."""
        about = (self.log_weights, self.names, self.from_model, self.space)
        return Sample(self.draws, self.scores, *about)


def require_reals(data: Sample | Posterior, what: str) -> None:
    """Raise a ValueError if these draws live in another space than Rᵈ, for which `what` is not
    made."""
    if not data.space.is_flat:
        raise ValueError(
            f"{what} is for draws in Rᵈ, and these live on a {data.space.describe()}. There, "
            "zv.estimate gives means and zv.probability probabilities"
        )


def _weights(log_weights: ArrayLike | None, chains: int, n: int) -> Vector | None:
    """Return normalised weights, or raise a ValueError if these are not logarithms of such."""
    if log_weights is None:
        return None
    raw = as_float("log_weights", log_weights, finite=False)
    if raw.shape not in ((n,), (chains, n // chains)):
        raise ValueError(
            f"log_weights must be (n,) = ({n},) or (chain, draw) = ({chains}, {n // chains}); got "
            f"{raw.shape}"
        )
    if np.isnan(raw).any() or (raw == np.inf).any() or not np.isfinite(raw).any():
        raise ValueError(
            "log_weights must be logarithms of weights: finite, or -inf for a weight of zero; got "
            "NaN, +inf or only -inf"
        )
    if (raw == -np.inf).any():
        raise ValueError(
            f"log_weights: {np.sum(raw == -np.inf)} draws have weight zero; leave those draws out "
            "of all arrays"
        )
    weights = sum_to_one(np.exp(raw.ravel() - raw.max()))
    if not weights.all():
        raise ValueError(
            f"log_weights: {np.sum(weights == 0)} draws have a weight that is zero to rounding "
            "next to the largest; leave those draws out of all arrays"
        )
    return weights


def coordinate_name(names: tuple[str, ...] | None, j: int | np.integer) -> str:
    """Return what the j-th coordinate of the draws is called in messages."""
    return f"coordinate {j}" if names is None else names[j]


def check_names(names: object, d: int) -> tuple[str, ...] | None:
    """Return the names of d coordinates, or raise a ValueError if these are not such."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Sequence) or len(names) != d:
        raise ValueError(f"names of a Sample must be {d} strings, one a coordinate; got {names!r}")
    return tuple(str(name) for name in names)
