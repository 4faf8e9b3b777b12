"""A bar where people look, on a terminal and in a notebook; none in a pipe or for what is quick.
And Ctrl-C."""

import io
import os
import signal
import subprocess
import sys
import time
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import zerovar as zv
from zerovar import progress
from zerovar.interrupts import postpone_interrupts


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


# What sends SIGINT at a moment at which it did harm
MOMENTS = {
    "an import": """
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "scipy.linalg._decomp":
                    sys.meta_path.remove(self)
                    signal.raise_signal(signal.SIGINT)
        sys.meta_path.insert(0, Finder())
        """,
    "compilation": """
        def watch(main):
            def compiling(frame):
                return frame is not None and (
                    frame.f_code.co_name.startswith("backend_compile") or compiling(frame.f_back)
                )
            while not (slow and compiling(sys._current_frames()[main])):
                time.sleep(0.001)
            time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=watch, args=[threading.get_ident()], daemon=True).start()
        """,
    "garbage collection": """
        def _xla_gc_callback(phase, info):
            if slow and gc.callbacks.count(_xla_gc_callback):
                gc.callbacks.remove(_xla_gc_callback)
                signal.raise_signal(signal.SIGINT)
        gc.callbacks.append(_xla_gc_callback)
        """,
}
CALL = """
import gc, os, signal, sys, textwrap, threading, time
import jax.numpy as jnp
import numpy as np
import zerovar as zv

x, slow = np.random.default_rng(0).normal(size=(4, 100, 2)), []
exec(textwrap.dedent(sys.argv[1]))

def values(draw):
    slow.append(True)
    gc.collect()
    for k in range(150):  # takes a while to compile
        draw = jnp.sort(jnp.sin(draw)) + k
    return draw

family = zv.Polynomial(1)
try:
    zv.estimate(x, -x, values, family=family)
except KeyboardInterrupt:
    print("stopped")
if sys.argv[2] != "an import":
    sys.exit()
zv.estimate(x, -x, family=family)
print("fine again")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT of POSIX")
@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_does_no_harm(moment):
    environment = {k: one for k, one in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", CALL, MOMENTS[moment], moment],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    expected = "stopped\n" + ("fine again\n" if moment == "an import" else "")
    assert done.stdout == expected


def test_a_handler_of_the_users_own_is_left_alone():
    x, seen = np.random.default_rng(0).normal(size=(1, 100, 1)), []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(True))
    try:
        zv.estimate(x, -x, {"f": x[..., 0]}, family=zv.Polynomial(1))
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [True]


def test_an_interrupt_that_is_caught_does_not_spend_the_next():
    seen = 0
    with postpone_interrupts():
        for _ in range(2):
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                seen += 1
    assert seen == 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
