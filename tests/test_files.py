"""Saving and loading."""

import io
import json
import os
import stat
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import jax
import jaxlib
import numpy as np
import pytest
from problems import gaussian, quadratic
from tables import FAMILIES

import zerovar as zv
from zerovar.io import archive, atomic, programs
from zerovar.output import report

X, S = gaussian(200, 2)
VALUES = np.sin(X)

# objectives and kernels that a file may hold, besides every family of the table
FITS = {
    **{name: (family, zv.LeastSquares(zv.Ridge(1e-3))) for name, family in FAMILIES.items()},
    "variance": (zv.Polynomial(1, operator=zv.Langevin()), zv.Variance(zv.Ridge(1e-3))),
    "finite intercept": (
        zv.Kernel(zv.kernels.Matern(4.5)),
        zv.LeastSquares(zv.Ridge(1e-3), intercept_variance=4.0),
    ),
    "translates": (zv.Kernel(zv.kernels.RationalQuadratic()), zv.LeastSquares(zv.L2(1e-3))),
    "lasso": (zv.Polynomial(2), zv.LeastSquares(zv.L1(1e-2))),
    "product": (
        zv.Kernel(zv.kernels.InverseMultiquadric(2.0) * zv.kernels.Gaussian(3.0)),
        zv.Variance(zv.Ridge(0.1)),
    ),
    "moving sums": (zv.Polynomial(1), zv.SpectralVariance(5)),
}


@pytest.mark.parametrize("name", FITS)
def test_a_saved_fit_gives_the_same_numbers(name, tmp_path):
    family, objective = FITS[name]
    fitted = zv.fit(family, zv.Sample(X, S), VALUES, objective)
    fitted.save(tmp_path / "fit.zv")
    loaded = zv.load(tmp_path / "fit.zv")
    new = zv.Sample(*gaussian(50, 2, seed=9))
    np.testing.assert_array_equal(loaded(new), fitted(new))
    np.testing.assert_array_equal(loaded.intercept, fitted.intercept)
    assert loaded.family.describe() == fitted.family.describe()
    assert loaded.result is fitted.result
    assert loaded.stats == fitted.stats
    with pytest.raises(ValueError, match=r"call zv\.fit again"):
        loaded.refit(VALUES)


def test_a_saved_estimate_gives_the_same_numbers(tmp_path):
    answer = quadratic(X, S, VALUES, names=["a", "b"])
    answer.save(tmp_path / "answer.zv")
    loaded = zv.load(tmp_path / "answer.zv")
    assert str(loaded) == str(answer)
    np.testing.assert_array_equal(loaded.covariance, answer.covariance)


def npy(descr, shape, content=b""):
    """An array as files hold it, whatever its header claims."""
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


def of_array(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def of_item(item, form=archive.FORMAT):
    return of_array(np.array(json.dumps({"format": form, "zerovar": "9.0", "item": item})))


def of_class(name, **fields):
    return of_item({"class": f"zerovar.{name}", "fields": fields})


def written(path, method=zipfile.ZIP_STORED, **members):
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path.read_bytes()


ONE, TERMS = of_array(np.ones(1)), {"list": [{"array": 0}, {"array": 0}], "tuple": True}
DEEP = of_array(np.array('{"format": 2, "item": ' + "[" * 100_000 + "]" * 100_000 + "}"))
PICKLED = npy("|O", (1,), b"\x80\x04N.")
LANGEVIN = {"header": of_class("Langevin")}
# what stands in a file that zerovar did not write: (its members, words of the message)
STRANGE = {
    "a class to call": (
        {"header": of_item({"class": "os.system", "fields": {}})},
        "does not know: 'os.system'",
    ),
    "a pickle": (
        {"header": PICKLED},
        "not a file written by zerovar: Object arrays cannot be loaded",
    ),
    "a newer format": ({"header": of_item({}, 99)}, r"has format 99, written by zerovar 9\.0"),
    "nothing": ({}, "not a file written by zerovar"),
    "no header": ({"a0": ONE}, "not a file written by zerovar"),
    "a member that is not needed": (LANGEVIN | {"b": ONE}, "a0"),
    "a header that is a number": (
        {"header": of_array(np.array(3))},
        "not a file written by zerovar",
    ),
    "a header that is no JSON": (
        {"header": of_array(np.array("{"))},
        "not a file written by zerovar",
    ),
    "a deep header": ({"header": DEEP}, "RecursionError"),
    "no object": ({"header": of_item(None)}, "cannot be loaded"),
    "a number": ({"header": of_item({"value": 3})}, "cannot be loaded"),
    "fields that are none": (
        {"header": of_item({"class": "zerovar.Ridge", "fields": 3})},
        "cannot be loaded",
    ),
    "fields of another class": ({"header": of_class("Ridge", height={"value": 3})}, "height"),
    "a field that is none": ({"header": of_class("Ridge", strength=3)}, "cannot be loaded"),
    "a bad value": ({"header": of_class("Ridge", strength={"value": -1.0})}, "strength must be"),
    "an abstract class": ({"header": of_class("Wrapper")}, "abstract"),
    "an unknown function": (
        {"header": of_class("MLP", activation={"function": "exec"})},
        "KeyError",
    ),
    "an enumeration that is none": (
        {"header": of_class("Sum", parts={"enum": "zerovar.Sum", "member": "x"})},
        "subscriptable",
    ),
    "an array that is not there": ({"header": of_class("Sum", parts={"array": 0})}, "'a0'"),
    "an array used twice": ({"header": of_class("Sum", parts=TERMS), "a0": ONE}, "'a0'"),
    "7 PiB": (
        LANGEVIN | {"a0": npy("<f8", (2**50,))},
        r"claims shape \(1125899906842624,\) of float64",
    ),
    "empty, but long": (LANGEVIN | {"a0": npy("<f8", (0, 2**50))}, "claims shape"),
    "much of nothing": (LANGEVIN | {"a0": npy("<U0", (2**50,))}, "claims shape"),
    "a negative shape": (LANGEVIN | {"a0": npy("<f8", (-1, -1), bytes(8))}, "claims shape"),
    "a header that does not end": (
        LANGEVIN | {"a0": npy("<f8", "(1,", bytes(8))},
        "not a file written by zerovar",
    ),
    "a later version": (
        LANGEVIN | {"a0": ONE.replace(b"NUMPY\x01", b"NUMPY\x02", 1)},
        "another version",
    ),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_files_from_strangers_are_refused(kind, tmp_path):
    """By one ValueError that names the file, no code is run and no memory taken."""
    members, words = STRANGE[kind]
    path = tmp_path / "strange.zv"
    written(path, **members)
    with pytest.raises(ValueError, match=words) as caught:
        zv.load(path)
    assert str(path) in str(caught.value)


def patched(content, place, size):
    """With another length of the first member in the directory of the zip, `place` bytes into its
    entry."""
    at = content.index(b"PK\x01\x02") + place
    return content[:at] + size.to_bytes(4, "little") + content[at + 4 :]


def test_broken_files_are_refused(tmp_path):
    path = tmp_path / "broken.zv"
    whole = written(path, **LANGEVIN)
    assert isinstance(zv.load(path), zv.Langevin)
    packed = written(path, zipfile.ZIP_DEFLATED, **LANGEVIN)
    bomb = written(path, zipfile.ZIP_DEFLATED, header=npy("<f8", (2**21,), bytes(2**24)))
    longer = patched(patched(whole, 20, 2**31), 24, 2**31)
    for content in (
        b"hello",
        b"",
        whole[:-1],
        whole[1:],
        packed,
        bomb,
        patched(whole, 24, 2**31),
        longer,
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"broken\.zv is not a file written by zerovar"):
            zv.load(path)
    with pytest.raises(FileNotFoundError, match=r"none\.zv"):
        zv.load(tmp_path / "none.zv")


def test_files_are_written_whole_or_not_at_all(tmp_path):
    target = tmp_path / "out.txt"
    target.write_text("before")

    def interrupted():
        with atomic.atomic(target) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "before"
    assert os.listdir(tmp_path) == ["out.txt"]


@pytest.mark.parametrize("writer", ["save", "plot", "report"])
def test_links_stay_modes_are_kept_and_pipes_are_written_through(writer, tmp_path, monkeypatch):
    write = getattr(quadratic(X, S, VALUES, names=["a", "b"]), writer)
    # they take long, and are written as the plot is
    monkeypatch.setattr(report, "_pictures", lambda estimate: "")
    (tmp_path / "there").mkdir()
    target, link, pipe = tmp_path / "there" / "target.png", tmp_path / "link.png", tmp_path / "pipe"
    target.write_text("before")
    target.chmod(0o640)
    link.symlink_to(tmp_path / "chain.png")
    (tmp_path / "chain.png").symlink_to(target)
    write(link)
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert os.listdir(target.parent) == ["target.png"]
    os.mkfifo(pipe)
    received = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    write(pipe)
    reader.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert received == [target.read_bytes()]
    assert sorted(os.listdir(tmp_path)) == ["chain.png", "link.png", "pipe", "there"]
    target.chmod(0o444)  # also for root, who could
    with pytest.raises(
        PermissionError, match=r"link\.png cannot be written: it or its folder is write-protected"
    ):
        write(link)
    assert [target.read_bytes()] == received


def test_a_link_to_nothing_makes_what_it_names(tmp_path):
    link = tmp_path / "link"
    link.symlink_to("new.txt")
    with atomic.atomic(link) as temporary:
        temporary.write_text("content")
    assert link.is_symlink()
    assert (tmp_path / "new.txt").read_text() == "content"
    link.unlink()
    link.symlink_to(link)
    with pytest.raises(OSError, match="link"):
        atomic.destination(link)


def test_tables(tmp_path):
    answer = quadratic(X, S, VALUES, names=["alpha", "<b>"])
    bracketed = str(quadratic(X, S, VALUES, names=["theta[choate]", "a[/b]"]))
    assert "theta[choate]" in bracketed
    assert "a[/b]" in bracketed
    text = str(answer)
    assert "alpha" in text
    assert "±" in text
    assert "\x1b" not in text
    assert "&lt;b&gt;" in answer._repr_html_()
    dataset = answer.to_dataset()
    np.testing.assert_array_equal(dataset["value"].sel(integrand="alpha"), answer.value[0])
    assert dataset["covariance"].shape == (2, 2)
    answer.plot(tmp_path / "forest.png")
    assert (tmp_path / "forest.png").stat().st_size > 5000


_KEPT = """
import sys, jax, zerovar as zv
from zerovar.io import programs
programs._WORTH_SECONDS = 0.0  # on a fast machine a small program takes less to compile than that
folder = zv.keep_compiled(sys.argv[1])
assert zv.keep_compiled() == folder
print(folder, float(jax.jit(lambda x: jax.numpy.linalg.eigh(x)[0].sum())(jax.numpy.eye(5))))
"""


def test_compiled_programs_are_kept_and_bad_ones_made_anew(tmp_path):
    def run():
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("JAX_")
        }
        command = [sys.executable, "-c", _KEPT, str(tmp_path)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=environment | {"JAX_PLATFORMS": "cpu"},
            check=True,
        )
        folder, answer = done.stdout.split()
        assert float(answer) == 5.0
        return Path(folder)

    folder = run()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    kept = {path.name: path.read_bytes() for path in folder.glob("*-cache")}
    assert kept
    for name in kept:
        (folder / name).write_bytes(b"not a program")
    assert run() == folder


@pytest.fixture
def no_folder_is_set():
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.usefixtures("no_folder_is_set")
def test_programs_of_others_are_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "_processor", lambda: "any")
    folder = tmp_path / f"jax-{jax.__version__}-{jaxlib.__version__}-{jax.default_backend()}-any"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="chmod 700"):
        zv.keep_compiled(tmp_path)
    assert jax.config.jax_compilation_cache_dir is None
