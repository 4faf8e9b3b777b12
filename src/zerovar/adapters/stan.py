"""Stan: CmdStan's files, and BridgeStan models."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..inputs.sample import Posterior
from .base import extra_values, merge_values, put_chains_first

StanFile = str | PathLike[str]
DIAGNOSE = "Run CmdStan with output diagnostic_file=…, or CmdStanPy with save_latent_dynamics=True"


class StanTable:
    """One CSV file of CmdStan: the names of its columns, its draws (draw, column), and what its
    comments say."""

    def __init__(self, path: StanFile):
        with open(path, encoding="utf-8", newline="") as file:
            lines = [line for line in file if line.strip()]
        comments = [line[1:].strip() for line in lines if line.startswith("#")]
        names, *rows = [
            next(csv.reader([line.strip()])) for line in lines if not line.startswith("#")
        ] or [[]]
        for cells in rows:
            if len(cells) != len(names):
                raise ValueError(
                    f"{path}: a line of {len(cells)} numbers under a header of {len(names)} names. "
                    "Was the run killed? "
                    "Delete the broken line in this file and the same draw in the others"
                )
        try:
            table = np.array(rows, dtype=np.float64)
        except ValueError as error:
            raise ValueError(f"{path} has entries that are not numbers: {error}") from error
        if not names or table.size == 0:
            raise ValueError(f"{path} has no draws")
        self.path, self.names, self.comments = Path(path), names, comments
        self.table = table[self._warmup(len(table)) :]

    def _warmup(self, rows: int) -> int:
        """How many of the rows are warm-up: those that `save_warmup` put in front."""
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
        first, momenta, gradients = (
            [self.names[k] for k in part]
            for part in (places[:d], places[d : 2 * d], places[2 * d :])
        )
        if (
            not d
            or momenta != [f"p_{name}" for name in first]
            or gradients != [f"g_{name}" for name in first]
        ):
            return None
        return places[:d], places[2 * d :]


def is_cmdstan(path: StanFile) -> bool:
    """Whether a CSV file is one of CmdStan's: they begin with a comment on the version of Stan."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.readline().startswith("# stan_version")


def from_cmdstan(
    diagnostics: StanFile | Sequence[StanFile],
    output: StanFile | Sequence[StanFile] | None = None,
    *,
    values: Mapping[str, Any] | None = None,
) -> Posterior:
    """Draws and free scores of CmdStan's diagnostic files, and the natural parameters of its output
    files.

    diagnostics: one file a chain, from `sample(save_latent_dynamics=True, sig_figs=17)` in
        CmdStanPy or `output diagnostic_file=… sig_figs=17` in CmdStan. Fewer digits cost precision.
    output: the ordinary output files of the same chains, in the same order; without them the values
        are the unconstrained parameters.
    values: more quantities, name → function of one draw (a dict of all columns of the output files,
        such as "theta.1"), or array (chain, draw).
    """
    outputs = [] if output is None else [StanTable(path) for path in _paths(output)]
    return from_tables([StanTable(path) for path in _paths(diagnostics)], outputs, values)


def from_tables(
    tables: list[StanTable], outputs: list[StanTable], values: Mapping[str, Any] | None = None
) -> Posterior:
    """The diagnostic tables of all chains, and the output tables of the same chains if there are
    any."""
    for table in tables:
        if table.thirds is None:
            raise ValueError(
                f"{table.path} is not a diagnostic file: it has no columns p_… and g_…. {DIAGNOSE}"
            )
    assert tables[0].thirds is not None
    inner, slopes = tables[0].thirds
    draws = _chains(tables, inner)
    scores = -_chains(tables, slopes)  # of the potential, −log π
    columns, shown = draws, [tables[0].names[k] for k in inner]
    if outputs:
        kept = [k for k, name in enumerate(outputs[0].names) if not name.endswith("__")]
        shown = [outputs[0].names[k] for k in kept]
        columns = _chains(outputs, kept)
        advice = "give files of the same chains, in the same order"
        if columns.shape[:2] != draws.shape[:2]:
            out, own = (f"{len(array)} × {array.shape[1]}" for array in (columns, draws))
            raise ValueError(
                f"the output files have {out} draws, the diagnostic files {own}: {advice}"
            )
        there, here = (
            _chains(files, [files[0].names.index("lp__")]) for files in (outputs, tables)
        )
        if not np.allclose(there, here, rtol=1e-4, atol=1e-4):
            raise ValueError(f"the output and the diagnostic files have other lp__: {advice}")
    natural = {name: columns[..., k] for k, name in enumerate(shown)}
    named = {_bracket(name): column for name, column in natural.items()}
    coordinates = tuple(_bracket(tables[0].names[k]) for k in inner)
    return Posterior(draws, scores, merge_values(named, extra_values(values, natural)), coordinates)


def from_bridgestan(
    model: Any,
    draws: Any,
    *,
    chain_axis: int | None = None,
    values: Mapping[str, Any] | None = None,
) -> Posterior:
    """Draws and scores of a BridgeStan model at draws of its constrained parameters.

    model: a `bridgestan.StanModel`; only `param_unconstrain` and `log_density_gradient` are used,
        and `param_names` and `param_unc_names` if they are there.
    draws: the parameters block in the order of the model, (draw, k), or with `chain_axis` (chain,
    draw, k) or (draw, chain, k). values: more quantities, name → function of one draw (k,), or
    array (chain, draw).
    """
    natural = put_chains_first(draws, chain_axis).astype(np.float64)
    if natural.ndim != 3:
        raise ValueError(
            "draws must be (draw, k), or with chain_axis have a chain's axis too; got shape "
            f"{np.shape(draws)}"
        )
    chains, length, k = natural.shape
    names = (
        list(model.param_names())
        if hasattr(model, "param_names")
        else [f"x.{i + 1}" for i in range(k)]
    )
    if len(names) != k:
        raise ValueError(
            f"the model has {len(names)} parameters, {', '.join(names)}; the draws have {k} columns"
        )
    free = np.array(
        [model.param_unconstrain(np.ascontiguousarray(row)) for row in natural.reshape(-1, k)]
    )
    scores = np.array([model.log_density_gradient(row)[1] for row in free])
    shape = (chains, length, free.shape[1])
    named = {_bracket(name): natural[..., i] for i, name in enumerate(names)}
    coordinates = (
        tuple(map(_bracket, model.param_unc_names())) if hasattr(model, "param_unc_names") else None
    )
    return Posterior(
        free.reshape(shape),
        scores.reshape(shape),
        merge_values(named, extra_values(values, natural)),
        coordinates,
    )


def _paths(paths: StanFile | Sequence[StanFile]) -> list[StanFile]:
    found = (
        [paths]
        if isinstance(paths, (str, PathLike))
        else list(paths)
        if isinstance(paths, Iterable)
        else [paths]
    )
    if not found or not all(isinstance(path, (str, PathLike)) for path in found):
        raise ValueError(
            f"files must be paths of CSV files, one a chain; got {paths!r}. {DIAGNOSE}"
        )
    return found


def _chains(tables: list[StanTable], places: list[int]) -> np.ndarray:
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
    """theta.1.2 as theta[1, 2]: Stan counts from one, and so do its own summaries."""
    match = re.fullmatch(r"(.*?)((?:\.\d+)+)", name)
    return name if match is None else f"{match[1]}[{', '.join(match[2][1:].split('.'))}]"
