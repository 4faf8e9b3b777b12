"""Stan: CmdStan's files, and BridgeStan models."""

import csv
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..arguments import MORE_VALUES, PATH, several, takes, where
from ..inputs.coordinates import CLOSE
from ..inputs.density import Constants, Density, OfPoints
from ..inputs.integrands import DrawFunction, map_draws, run_in_double
from ..inputs.points import Matrix, Vector
from ..inputs.sample import Posterior
from .base import CHAIN_AXIS, extra_values, merge_values, put_chains_first

StanFile = str | PathLike[str]
DIAGNOSE = "Run CmdStan with output diagnostic_file=…, or CmdStanPy with save_latent_dynamics=True"


# those of CmdStan, of which there is one a chain
_FILES = several(
    where("a file", lambda path: PATH.read(path) and Path(path).is_file()),
    f"paths of CSV files that are there, one a chain. {DIAGNOSE}",
    empty=False,
)


def parse_table(path: StanFile, lines: Iterable[str]) -> tuple[list[str], np.ndarray]:
    """Return the names in the first line of a CSV table, and the numbers below, (row, column)."""
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines) if row]
    if len(rows) < 2:
        raise ValueError(
            f"{path} must have a line of names and then one line a draw; it has {len(rows)} lines"
        )
    names, *cells = rows
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise ValueError(
                f"{path}, line {number}: {len(row)} entries under a header of {len(names)} names. "
                "Was the run killed? Delete the broken line, and the same draw in other files"
            )
    try:
        return names, np.array(cells, dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"{path} must have numbers under its line of names: {error}") from error


class StanTable:
    """One CSV file of CmdStan: the names of its columns, its draws (draw, column), and what its
    comments say."""

    def __init__(self, path: StanFile):
        with open(path, encoding="utf-8", newline="") as file:
            lines = [line.strip() for line in file]
        self.path = Path(path)
        self.comments = [line[1:].strip() for line in lines if line.startswith("#")]
        self.names, table = parse_table(path, (line for line in lines if line[:1] not in ("", "#")))
        self.table = table[self._warmup(len(table)) :]

    def _warmup(self, rows: int) -> int:
        """Return how many of the rows are warm-up: those that `save_warmup` put in front."""
        pairs = (comment.partition("=") for comment in self.comments)
        said = {key.strip(): value.split("(")[0].strip().lower() for key, _, value in pairs}
        if said.get("save_warmup") not in ("1", "true"):
            return 0
        warmup = -(-int(said.get("num_warmup", 1000)) // int(said.get("thin", 1)))
        if warmup >= rows:
            raise ValueError(
                f"{self.path} has {rows} draws, all of them of the warm-up of {warmup}: was the "
                "run killed?"
            )
        return warmup

    @property
    def thirds(self) -> tuple[list[int], list[int]] | None:
        """The columns of a diagnostic file with the unconstrained parameters, and those with their
        gradients: by their places, a third of all each, since a parameter may itself be called
        g_rate. None in other files."""
        places = [k for k, name in enumerate(self.names) if not name.endswith("__")]
        d = len(places) // 3
        names = [self.names[k] for k in places]
        others = [f"{mark}_{name}" for mark in "pg" for name in names[:d]]
        return (places[:d], places[2 * d :]) if d and names[d:] == others else None


def is_cmdstan(path: StanFile) -> bool:
    """Return whether a CSV file is one of CmdStan's: they begin with a comment on the version of
    Stan."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.readline().startswith("# stan_version")


@takes(diagnostics=_FILES, output=_FILES, values=MORE_VALUES)
def from_cmdstan(
    diagnostics: StanFile | Sequence[StanFile],
    output: StanFile | Sequence[StanFile] | None = None,
    *,
    values: Mapping[str, object] | None = None,
) -> Posterior:
    """Return draws and free scores of CmdStan's diagnostic files, and the natural parameters of its
    output files.

    diagnostics: one file a chain, from `sample(save_latent_dynamics=True, sig_figs=17)` in
        CmdStanPy or `output diagnostic_file=… sig_figs=17` in CmdStan. Fewer digits cost precision.
    output: the ordinary output files of the same chains, in the same order; without them the values
        are the unconstrained parameters.
    values: more quantities, name → function of one draw (a dict of all columns of the output files,
        such as "theta.1"), or array (chain, draw).
    """
    found: tuple[Any, Any] = (diagnostics, output or ())
    tables, outputs = ([StanTable(path) for path in paths] for paths in found)
    return from_tables(tables, outputs, values)


def from_tables(
    tables: list[StanTable], outputs: list[StanTable], values: Mapping[str, Any] | None = None
) -> Posterior:
    """Return the posterior of the diagnostic tables of all chains, and of the output tables of the
    same chains if there are any."""
    for table in tables:
        if table.thirds is None:
            raise ValueError(
                f"{table.path} is not a diagnostic file: it has no columns p_… and g_…. {DIAGNOSE}"
            )
    assert tables[0].thirds is not None
    inner, slopes = tables[0].thirds
    draws = _chains(tables, inner)
    scores = -_chains(tables, slopes)  # of the potential, −log π
    free = [tables[0].names[k] for k in inner]
    columns, shown = draws, free
    if outputs:
        kept = [k for k, name in enumerate(outputs[0].names) if not name.endswith("__")]
        columns, shown = _chains(outputs, kept), [outputs[0].names[k] for k in kept]
        advice = "give files of the same chains, in the same order"
        if columns.shape[:2] != draws.shape[:2]:
            out, own = (f"{len(array)} × {array.shape[1]}" for array in (columns, draws))
            raise ValueError(
                f"the output files have {out} draws, the diagnostic files {own}: {advice}"
            )
        there, here = (
            _chains(files, [files[0].names.index("lp__")]) for files in (outputs, tables)
        )
        if not np.allclose(there, here, rtol=CLOSE, atol=CLOSE):
            raise ValueError(f"the output and the diagnostic files have other lp__: {advice}")
    natural = {name: columns[..., k] for k, name in enumerate(shown)}
    named = {_bracket(name): column for name, column in natural.items()}
    return Posterior(
        draws,
        scores,
        merge_values(named, extra_values(values, natural)),
        tuple(map(_bracket, free)),
        from_model=True,
        divergences=sum(int(table.table[:, k].sum()) for table, k in _divergent(tables)),
    )


def _divergent(tables: list[StanTable]) -> Iterator[tuple[StanTable, int]]:
    """Give the tables that say which transitions diverged, and in which column."""
    for table in tables:
        if (name := "divergent__") in table.names:
            yield table, table.names.index(name)


@takes(
    model=where(
        "a bridgestan.StanModel, with param_unconstrain and log_density_gradient",
        lambda model: callable(model.param_unconstrain) and callable(model.log_density_gradient),
    ),
    chain_axis=CHAIN_AXIS,
    values=MORE_VALUES,
)
def from_bridgestan(
    model: Any,
    draws: ArrayLike,
    *,
    chain_axis: int | None = None,
    values: Mapping[str, object] | None = None,
) -> Posterior:
    """Return draws and scores of a BridgeStan model at draws of its constrained parameters.

    model: a `bridgestan.StanModel`; `param_unconstrain` and `log_density_gradient` are used,
        and `param_names`, `param_unc_names`, `log_density` and `param_constrain` if they are there.
    draws: the parameters block in the order of the model, (draw, k), or with `chain_axis` (chain,
        draw, k) or (draw, chain, k).
    values: more quantities, name → function of one draw (k,), or array (chain, draw).
    """
    natural = put_chains_first("draws", draws, chain_axis)
    if natural.ndim != 3:
        raise ValueError(
            "draws must be (draw, k), or with chain_axis have a chain's axis too; got shape "
            f"{np.shape(draws)}"
        )
    shape, k = natural.shape[:2], natural.shape[2]
    if hasattr(model, "param_names"):
        names = list(model.param_names())
    else:
        names = [f"x.{i + 1}" for i in range(k)]
    if len(names) != k:
        raise ValueError(
            f"the model has {len(names)} parameters, {', '.join(names)}; the draws have {k} columns"
        )
    rows = np.ascontiguousarray(natural).reshape(-1, k)
    free = np.array([model.param_unconstrain(row) for row in rows])
    scores = np.array([model.log_density_gradient(row)[1] for row in free])
    named = {_bracket(name): natural[..., i] for i, name in enumerate(names)}
    free_names = getattr(model, "param_unc_names", None)
    known = callable(getattr(model, "log_density", None)) and hasattr(model, "param_constrain")
    more = {name: each for name, each in (values or {}).items() if callable(each)}
    return Posterior(
        free.reshape(*shape, -1),
        scores.reshape(*shape, -1),
        merge_values(named, extra_values(values, natural)),
        None if free_names is None else tuple(map(_bracket, free_names())),
        from_model=True,
        density=StanDensity(model, tuple(named), more) if known else None,
    )


class StanDensity(Density):
    """The log density of a BridgeStan model and its parameters, which are no JAX functions: point
    after point, by Stan's own program."""

    def __init__(self, model: Any, names: tuple[str, ...], more: Mapping[str, DrawFunction]):
        # its own default leaves constants out
        kept = "propto" in inspect.signature(model.log_density).parameters
        log_density = partial(model.log_density, propto=False) if kept else model.log_density
        dropped = Constants(("the model drops constants, and has no option propto",))
        constants = Constants if kept else lambda: dropped
        super().__init__(log_density, model.param_constrain, more, constants=constants)
        vars(self)["_names"] = {name: k for k, name in enumerate([*names, *more])}

    def at(self, points: Matrix) -> Vector:
        return np.array([self.log_density(row) for row in points])

    def quantity(self, function: DrawFunction) -> OfPoints:
        return lambda points: np.asarray(
            run_in_double("values", lambda: map_draws(function, self._constrain(points))), float
        )

    def find(self, name: str, draw: Vector) -> OfPoints | None:
        if name in self.more:
            return self.quantity(self.more[name])
        number = self._places(draw).get(name)
        return None if number is None else lambda points: self._constrain(points)[:, number]

    def _constrain(self, points: Matrix) -> Matrix:
        return np.array([self.natural(row) for row in np.ascontiguousarray(points)])


def _chains(tables: list[StanTable], places: list[int]) -> np.ndarray:
    """Return columns of the tables of all chains, (chain, draw, column)."""
    first = tables[0]
    for table in tables:
        if table.names != first.names:
            raise ValueError(
                f"{table.path} and {first.path} have other columns: are they chains of one model?"
            )
        here, there = len(table.table), len(first.table)
        if here != there:
            raise ValueError(
                f"{table.path} has {here} draws, {first.path} has {there}: chains must be equally "
                "long"
            )
    return np.stack([table.table[:, places] for table in tables])


def _bracket(name: str) -> str:
    """Return theta.1.2 as theta[1, 2]: Stan counts from one, and so do its own summaries."""
    match = re.fullmatch(r"(.*?)((?:\.\d+)+)", name)
    return name if match is None else f"{match[1]}[{', '.join(match[2][1:].split('.'))}]"
