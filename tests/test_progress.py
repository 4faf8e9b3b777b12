"""A bar where people look, on a terminal and in a notebook; none in a pipe or for what is quick."""

import io
import sys
import time
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import zerovar as zv
from zerovar import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(seconds=0.05):
    with progress.stages("choosing", 2, True) as say:
        for stage in ("first", "second"):
            say(stage)
            time.sleep(seconds)


def test_a_terminal_shows_what_takes_long(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    run()
    assert terminal.getvalue() == "", "done before anyone has read it"
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    run(0.3)
    assert "choosing" in terminal.getvalue()
    assert "second" in terminal.getvalue()


@pytest.fixture
def cell(monkeypatch):
    """What a notebook's cell shows, one picture after the other."""
    shown = []
    handle = SimpleNamespace(update=shown.append)
    package, display = ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = lambda: SimpleNamespace(kernel=None)
    display.HTML = str
    display.display = lambda html, display_id: shown.append(html) or handle
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return shown


def test_a_notebook_shows_it_and_clears_it(cell, monkeypatch):
    run()
    assert cell == []
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    run()
    assert 'choosing <progress value="1" max="2"></progress> second' in cell
    assert cell[-1] == ""


@pytest.mark.filterwarnings("ignore::zerovar.ZerovarWarning")
def test_estimate_and_summary_show_what_they_try(cell, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    x = np.random.default_rng(0).normal(size=(1, 200, 1))
    zv.estimate(x, -x, family=zv.Automatic("low", progress=False))
    assert cell == []
    for call in (zv.estimate, zv.summary):
        cell.clear()
        call(zv.Posterior(x, -x, {"f": np.exp(x[..., 0])}), family=zv.Automatic("low"))
        assert any("choosing control variates" in html and "Polynomial" in html for html in cell)
        assert cell[-1] == ""


def test_a_pipe_shows_nothing(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    run()
    assert screen.getvalue() == ""
