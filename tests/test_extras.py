"""What an installation without extras says, and that `make extras` tries every extra that users are told of."""

import re
import sys
import tomllib

import numpy as np
import pytest
from pages import ROOT, text_of

import zerovar as zv
from zerovar import summaries
from zerovar.errors import missing


@pytest.mark.parametrize(("fmt", "package"), [("wide", "pandas"), ("xarray", "xarray")])
def test_a_missing_package_is_named_before_the_work(fmt, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(summaries, "estimate", lambda *args, **kwargs: pytest.fail("this took time"))
    x = np.zeros((2, 10, 1))
    with pytest.raises(ImportError, match=rf"needs {package}: pip install '\.\[xarray\]' in a clone"):
        zv.summary(x, -x, fmt=fmt)


def test_messages_name_extras_that_exist():
    with open(ROOT / "pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"missing\(\S+, \"(\w+)\"\)", sources))
    assert named
    assert named <= set(extras)
    assert str(missing("numpyro", "numpyro")) == "this needs numpyro: pip install '.[numpyro]' in a clone of zerovar"
    tried = text_of("scripts/extras.py")
    for page in ("README.md", "docs/start.ipynb"):  # where people read what to install
        told = {extra for extras in re.findall(r"\.\[([\w,]+)\]", text_of(page)) for extra in extras.split(",")}
        assert told <= set(extras)
        assert all(re.search(rf'"[\w,]*\b{extra}\b[\w,]*": ', tried) for extra in told), told
