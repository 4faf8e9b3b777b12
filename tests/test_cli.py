"""The command line: files of every kind in, tables and pages out, errors in sentences."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from pages import FOREST, gains_in_picture, moved, tables
from problems import eight_schools_means, gaussian
from test_samplers import write_cmdstan

import zerovar as zv
from zerovar import cli

X, S = gaussian(200, 3)
VALUES = np.sin(X[:, :2])


@pytest.fixture
def npz(tmp_path):
    path = tmp_path / "posterior.npz"
    np.savez(
        path,
        draws=X.reshape(2, 100, 3),
        scores=S.reshape(2, 100, 3),
        values=VALUES.reshape(2, 100, 2),
        names=["a", "b"],
    )
    return path


def test_command_line_estimates(npz, tmp_path, capsys):
    assert (
        cli.main(
            [
                "estimate",
                str(npz),
                "--json",
                str(tmp_path / "a.json"),
                "--csv",
                str(tmp_path / "a.csv"),
            ]
        )
        == 0
    )
    answer = zv.estimate(X.reshape(2, 100, 3), S.reshape(2, 100, 3), VALUES, names=["a", "b"])
    record = json.loads((tmp_path / "a.json").read_text())
    assert [row["name"] for row in record["estimates"]] == ["a", "b"]
    np.testing.assert_allclose(
        [row["value"] for row in record["estimates"]], answer.value, rtol=1e-12
    )
    header, *rows = (tmp_path / "a.csv").read_text().splitlines()
    assert header == "name,value,std_error,plain_value,plain_std_error,gain,control_variate,reason"
    assert len(rows) == 2
    assert "worth (draws)" in capsys.readouterr().out
    assert (
        cli.main(
            ["estimate", str(npz), "--family", "kernel", "--split", "cross-fit", "--json", "-"]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["split"] == "cross-fitting in 5 folds"


@pytest.mark.filterwarnings("ignore::zerovar.ZerovarWarning")
def test_command_line_gives_quantiles(npz, tmp_path, capsys):
    """Of draws of N(0, 1), by scores alone; and says what does not go with them."""
    x = np.random.default_rng(0).normal(size=(200, 2))
    np.savez(tmp_path / "a.npz", draws=x, scores=-x, values=np.exp(x), names=["a", "b"])
    call = ["estimate", str(tmp_path / "a.npz"), "--var-names", "a", "--json", "-"]
    assert cli.main([*call, "--quantiles", "0.2", "0.5"]) == 0
    rows = json.loads(capsys.readouterr().out)["estimates"]
    assert [row["name"] for row in rows] == ["a 20%", "a 50%"]
    exact = np.exp([-0.8416212, 0.0])
    off = [(row["value"] - q) / row["std_error"] for row, q in zip(rows, exact, strict=True)]
    assert np.all(np.abs(off) < 4)
    assert all(row["gain"] > 10 for row in rows)
    assert cli.main(["estimate", str(npz), "--quantiles", "5"]) == 2
    assert "strictly between 0 and 1; got [5.0]" in capsys.readouterr().err
    assert cli.main(["estimate", str(npz), "--quantiles", "0.5", "--family", "linear"]) == 2
    assert "leave --family, --solver and --split out" in capsys.readouterr().err


def test_command_line_writes_where_it_can_and_warns_without_a_table(npz, tmp_path, capsys):
    assert cli.main(["estimate", str(npz), "--json", "-", "--csv", "-"]) == 2
    assert "only one" in capsys.readouterr().err
    np.savez(tmp_path / "wrong.npz", draws=X, scores=-S)
    assert (
        cli.main(["estimate", str(tmp_path / "wrong.npz"), "--family", "linear", "--csv", "-"]) == 0
    )
    assert "sign is flipped" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["no/out", ".", "protected"])
@pytest.mark.parametrize("option", ["--json", "--csv", "--figure", "--report", "demo"])
def test_what_cannot_be_written_is_said_before_the_work(option, place, tmp_path, capsys):
    (tmp_path / "protected").touch(0o444)
    out = str(tmp_path / place)
    arguments = (
        ["demo", "--figure", out]
        if option == "demo"
        else ["estimate", "not-even-there.npz", option, out]
    )
    assert cli.main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"zerovar: {out} cannot be written: it ")


def test_links_and_pipes_are_written_through_and_names_are_no_formulas(tmp_path, capsys):
    names = ["=cmd()", "+1", "-b", "@c", "\td", "plain"]
    np.savez_compressed(
        tmp_path / "p.npz", draws=X, scores=S, values=np.hstack([X, -X]), names=names
    )
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("target")
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    command = ["estimate", str(tmp_path / "p.npz"), "--family", "linear"]
    assert cli.main([*command, "--csv", str(pipe), "--json", str(link)]) == 0
    assert link.is_symlink()
    assert [
        row["name"] for row in json.loads((tmp_path / "target").read_text())["estimates"]
    ] == names
    _, *rows = reader.communicate(timeout=60)[0].splitlines()
    assert [row.split(",")[0] for row in rows] == ["'=cmd()", "'+1", "'-b", "'@c", "'\td", "plain"]
    assert any(float(row.split(",")[1]) < 0 for row in rows)  # a number stays one
    capsys.readouterr()
    # the same as "-": no table in between
    assert cli.main([*command, "--json", "/dev/stdout"]) == 0
    assert json.loads(capsys.readouterr().out)["num_draws"] == 200


def test_command_line_checks(npz, tmp_path, capsys):
    assert cli.main(["check", str(npz)]) == 0
    np.savez(tmp_path / "wrong.npz", draws=X, scores=-S)
    assert cli.main(["check", str(tmp_path / "wrong.npz")]) == 1
    assert "sign is flipped" in capsys.readouterr().out


BAD_FILES = {
    "missing": (None, "no such file"),
    "text": (b"a,b\n1,2\n", "none of the kinds of file that are read"),
    "other arrays": ({"x": X}, "no array draws or scores; it has x"),
    "pickled": ({"draws": np.array([None]), "scores": S}, "cannot be read: Object arrays"),
    "names of another number": (
        {"draws": X, "scores": S, "values": X, "names": ["a"]},
        "bad.npz cannot be read: names must be",
    ),
    "values without an axis": ({"draws": X, "scores": S, "values": 1.0}, "bad.npz cannot be read"),
    "wrong shapes": ({"draws": X, "scores": S[:5]}, "draws and scores must have the same shape"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_command_line_errors_are_sentences(kind, tmp_path, capsys):
    content, words = BAD_FILES[kind]
    path = tmp_path / "bad.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.savez(path, **content)
    assert cli.main(["estimate", str(path), "--json", str(tmp_path / "out.json")]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
    assert not (tmp_path / "out.json").exists()


def csv(path, names, columns, chain=None):
    if chain is not None:
        names, columns = ["chain", *names], np.column_stack([chain, columns])
    np.savetxt(path, columns, delimiter=",", header=",".join(names), comments="", fmt="%.17g")


@pytest.fixture
def kinds(tmp_path):
    """The same draws, scores and two values in every kind of file, as arguments of the command
    line."""
    import xarray as xr

    shape = (2, 100)
    values = (("chain", "draw", "part"), VALUES.reshape(*shape, 2))
    free = ("chain", "draw", "unconstrained_parameter")
    inner = {
        "unconstrained_draw": (free, X.reshape(*shape, 3)),
        "gradient": (free, S.reshape(*shape, 3)),
    }
    tree = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset({"f": values}, coords={"part": ["a", "b"]}),
            "sample_stats": xr.Dataset(inner),
        }
    )
    tree.to_netcdf(tmp_path / "trace.nc", engine="h5netcdf")
    tree.to_zarr(tmp_path / "trace.zarr", consolidated=False)
    chain = np.repeat([1, 2], 100)
    # rows of the two chains by turns, and the scores' columns in another order: names say what is
    # what
    turns = np.arange(200).reshape(2, 100).T.ravel()
    csv(tmp_path / "draws.csv", ["x", "y", "z"], X[turns], chain[turns])
    csv(tmp_path / "scores.csv", ["z", "x", "y"], S[turns][:, [2, 0, 1]], chain[turns])
    csv(tmp_path / "values.csv", ["f[a]", "f[b]"], VALUES[turns], chain[turns])
    tables = ["draws.csv", "--scores", "scores.csv", "--values", "values.csv"]
    return {"nc": ["trace.nc"], "zarr": ["trace.zarr"], "csv": tables}


@pytest.mark.filterwarnings("ignore:The data type")  # Zarr's, of the strings in ArviZ' coordinates
@pytest.mark.parametrize("kind", ["nc", "zarr", "csv"])
def test_every_kind_of_file_gives_the_same(kind, kinds, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["estimate", *kinds[kind], "--family", "quadratic", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)["estimates"]
    expected = zv.estimate(
        X.reshape(2, 100, 3), S.reshape(2, 100, 3), VALUES, family=zv.Polynomial(2)
    )
    assert [row["name"] for row in found] == ["f[a]", "f[b]"]
    np.testing.assert_allclose([row["value"] for row in found], expected.value, rtol=1e-9)
    np.testing.assert_allclose([row["std_error"] for row in found], expected.std_error, rtol=1e-6)
    assert cli.main(["check", *kinds[kind]]) == 0


def test_cmdstan_files(tmp_path, capsys):
    write_cmdstan(tmp_path)
    given = sorted(str(path) for path in tmp_path.glob("*.csv"))
    assert (
        cli.main(
            [
                "estimate",
                *given,
                "--var-names",
                "mu",
                "theta[7]",
                "--family",
                "quadratic",
                "--csv",
                "-",
            ]
        )
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["name", "mu", "theta[7]"]
    means = np.array([[float(cell) for cell in line.split(",")[1:3]] for line in lines[1:]])
    assert np.all(np.abs(means[:, 0] - eight_schools_means()[[0, 8]]) < 5 * means[:, 1])
    assert cli.main(["estimate", *[name for name in given if "output" in name]]) == 2
    assert "none is a diagnostic file" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::zerovar.ZerovarWarning")
def test_options_reach_the_estimate(npz, tmp_path, capsys):
    page = tmp_path / "out.html"
    choices = [
        "--family",
        "linear",
        "--solver",
        "sgd",
        "--split",
        "holdout",
        "--seed",
        "3",
        "--var-names",
        "~a",
    ]
    assert (
        cli.main(
            [
                "estimate",
                str(npz),
                *choices,
                "--json",
                str(tmp_path / "a.json"),
                "--report",
                str(page),
            ]
        )
        == 0
    )
    record = json.loads((tmp_path / "a.json").read_text())
    draws, scores = X.reshape(2, 100, 3), S.reshape(2, 100, 3)
    options = {
        "family": zv.Polynomial(1),
        "solver": zv.SGD(progress=False),
        "split": zv.holdout(),
        "seed": 3,
    }
    expected = zv.estimate(draws, scores, VALUES, **options)
    assert [row["name"] for row in record["estimates"]] == ["b"]
    np.testing.assert_allclose(record["estimates"][0]["value"], expected.value[1], rtol=1e-3)
    assert "The loss of the training" in page.read_text(encoding="utf-8")
    assert cli.main(["estimate", str(npz), "--report", "-"]) == 2
    assert "cannot go to standard output" in capsys.readouterr().err


BAD_TABLES = {
    "no scores": (["draws.csv"], "name the table of their scores"),
    "ragged": (
        ["ragged.csv", "--scores", "scores.csv"],
        r"ragged.csv, line 3: 1 entries under a header of 2 names",
    ),
    "words": (["words.csv", "--scores", "scores.csv"], "must have numbers under its line of names"),
    "other columns": (
        ["draws.csv", "--scores", "other.csv"],
        "must have the same columns; got x, y and x, z",
    ),
    "NaN": (["holes.csv", "--scores", "scores.csv"], "must be finite; got 1 NaN"),
    "an index": (["index.csv", "--scores", "scores.csv"], "a column has no name"),
    "another order": (
        ["draws.csv", "--scores", "shuffled.csv"],
        "the same draws of the same chains, row by row",
    ),
    "no chains": (
        ["chains.csv", "--scores", "chains.csv", "--values", "draws.csv"],
        r"draws.csv has no column chain, and chains.csv has: .* Its columns are x, y",
    ),
    "empty": (["empty.csv", "--scores", "scores.csv"], "must have a line of names"),
    "not a NetCDF": (["broken.nc"], "cannot be read by h5netcdf"),
    "two archives": (["broken.nc", "draws.csv"], "several files"),
    "no gradients": (
        ["plain.nc"],
        "sample_stats must have unconstrained_draw and gradient; it has neither",
    ),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_bad_tables_are_said(kind, tmp_path, monkeypatch, capsys):
    import xarray as xr

    monkeypatch.chdir(tmp_path)
    x, s = X[:50, :2], S[:50, :2]
    csv("draws.csv", ["x", "y"], x)
    csv("scores.csv", ["x", "y"], s)
    csv("other.csv", ["x", "z"], s)
    csv("index.csv", ["", "x", "y"], np.column_stack([np.arange(50), x]))
    csv("shuffled.csv", ["draw", "x", "y"], np.column_stack([np.arange(50)[::-1], s]))
    csv("chains.csv", ["chain", "x", "y"], np.column_stack([np.arange(50) // 25, x]))
    csv("holes.csv", ["x", "y"], np.where(np.arange(100).reshape(50, 2) == 7, np.nan, x))
    draws = (tmp_path / "draws.csv").read_bytes()
    # as spreadsheets write it: the mark is no name
    (tmp_path / "draws.csv").write_bytes(b"\xef\xbb\xbf" + draws)
    (tmp_path / "ragged.csv").write_text("x,y\n1,2\n3\n")
    (tmp_path / "words.csv").write_text("x,y\n1,2\n3,four\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "broken.nc").write_bytes(b"CDF nonsense")
    posterior = xr.Dataset({"x": (("chain", "draw"), x[:, :1].T)})
    xr.DataTree.from_dict({"posterior": posterior}).to_netcdf("plain.nc", engine="h5netcdf")
    arguments, words = BAD_TABLES[kind]
    assert cli.main(["estimate", *arguments, "--json", "out.json"]) == 2
    error = capsys.readouterr().err
    assert re.search(words, error)
    assert "Traceback" not in error
    assert not (tmp_path / "out.json").exists()


def test_killed_half_way_leaves_no_file(npz, tmp_path):
    """SIGTERM while it works: it ends at once, and nothing is in the folder that was not there
    before."""
    before = sorted(os.listdir(tmp_path))
    outputs = ["--json", str(tmp_path / "a.json"), "--report", str(tmp_path / "a.html")]
    command = [sys.executable, "-m", "zerovar", "estimate", str(npz), *outputs]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(3.5)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) in [
        (143, "zerovar: stopped; no file was left half-written\n"),
        (-signal.SIGTERM, ""),  # while it was still importing
    ]
    assert sorted(os.listdir(tmp_path)) == before


def test_stopped_while_a_file_is_written(tmp_path):
    script = """
import os, signal, sys, pathlib
from zerovar import cli
from zerovar.io import atomic
signal.signal(signal.SIGTERM, cli._stop)
with atomic.atomic(pathlib.Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGTERM)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "out.txt")], capture_output=True, text=True
    )
    assert done.returncode == 143
    assert os.listdir(tmp_path) == []


@pytest.mark.whole
def test_demo(tmp_path):
    """As a user runs it: a process of its own, no global settings, a table and a picture; and its
    numbers are right."""
    done = subprocess.run(
        [sys.executable, "-m", "zerovar", "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": "100"},
    )
    assert done.stderr == ""
    assert (tmp_path / "zerovar-demo.png").stat().st_size > 10_000
    cells = re.findall(r"│ \S+ +│ +(\S+) ± (\S+) │ +(\S+) ± (\S+) │", done.stdout)
    value, error, plain, plain_error = np.array(cells, dtype=float).T
    truth = eight_schools_means()
    assert np.all(np.abs(value - truth) < 4 * error)
    assert np.all(np.abs(plain - truth) < 4 * plain_error)
    assert np.median(plain_error / error) > 30
    shown = {
        name.removesuffix(": gain"): gain
        for table in tables(done.stdout)
        for name, gain in table.items()
    }
    assert moved(gains_in_picture(FOREST)["demo"], shown) == ""
    assert np.sqrt(np.mean((value - truth) ** 2)) < np.sqrt(np.mean((plain - truth) ** 2)) / 10


def test_command_line_says_which_arrays_it_does_not_know(tmp_path, capsys):
    path = str(tmp_path / "p.npz")
    np.savez(path, draws=X, scores=S, log_weight=np.zeros(len(X)), tau=X[:, 0])
    for command in ("estimate", "check"):
        assert cli.main([command, path]) == 2
        said = capsys.readouterr().err
        assert "log_weight, tau" in said
        assert "log_weights" in said
        assert "quantities go into values" in said
    t, x = np.array([0.0, 1.0]), np.zeros((2, 20, 1))
    np.savez(path, inverse_temperatures=t, draws=x, log_likelihod=x[..., 0], scores=x)
    assert cli.main(["evidence", path]) == 2
    assert "log_likelihod" in capsys.readouterr().err
