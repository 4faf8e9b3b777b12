"""Posterior means from long runs, with their standard errors: `python -m experiments.paper NAME
--reference` makes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zerovar.io.atomic import atomic

_PATH = Path(__file__).with_name("references.json")


def truths(key: str, names: Sequence[str]) -> np.ndarray:
    """(len(names),)."""
    return np.array([_read()[key][name][0] for name in names])


def errors(key: str, names: Sequence[str]) -> np.ndarray:
    """Their standard errors, (len(names),)."""
    return np.array([_read()[key][name][1] for name in names])


def keep(means: dict[str, dict[str, tuple[float, float]]]) -> None:
    """For each key, name → (mean, standard error)."""
    found = _read() | means
    with atomic(_PATH) as temporary:
        temporary.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def _read() -> dict[str, dict[str, tuple[float, float]]]:
    return json.loads(_PATH.read_text()) if _PATH.exists() else {}
