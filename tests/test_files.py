"""Saving and loading, and the command line."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from problems import gaussian, quadratic

import zerovar as zv
from zerovar import cli, files, storage

X, S = gaussian(200, 3)
VALUES = np.sin(X[:, :2])

# every family and objective that a file may hold
FITS = {
    "polynomial": (zv.Polynomial(2, coordinates=(0, 1)), zv.LeastSquares()),
    "vector field": (zv.Polynomial(1, operator=zv.Langevin(), weight=(np.inf, 2.0)), zv.Variance(zv.Ridge(1e-3))),
    "kernel": (zv.Kernel(zv.kernels.Matern(4.5), order=2), zv.LeastSquares(zv.Ridge(1e-3), intercept_variance=4.0)),
    "semi-exact": (
        zv.Polynomial(1, weight=np.inf) + zv.Kernel(2.0 * zv.kernels.Decaying(0.1) + zv.kernels.Gaussian()),
        zv.LeastSquares(zv.Ridge(1e-3)),
    ),
    "translates": (zv.Kernel(zv.kernels.RationalQuadratic()), zv.LeastSquares(zv.L2(1e-3))),
    "lasso": (zv.Polynomial(2), zv.LeastSquares(zv.L1(1e-2))),
    "product": (zv.Kernel(zv.kernels.InverseMultiquadric(2.0) * zv.kernels.Gaussian(3.0)), zv.Variance(zv.Ridge(0.1))),
}


@pytest.mark.parametrize("name", FITS)
def test_a_saved_fit_gives_the_same_numbers(name, tmp_path):
    family, objective = FITS[name]
    fitted = zv.fit(family, zv.Sample(X, S), VALUES, objective)
    fitted.save(tmp_path / "fit.zv")
    loaded = zv.load(tmp_path / "fit.zv")
    new = zv.Sample(*gaussian(50, 3, seed=9))
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


def test_files_from_strangers_run_no_code(tmp_path):
    path = tmp_path / "evil.zv"
    header = {"format": storage.FORMAT, "kind": "fitted", "state": {"class": "os.system", "fields": {}}}
    with open(path, "wb") as file:
        np.savez(file, header=np.array(json.dumps(header)))
    with pytest.raises(ValueError, match="does not know"):
        zv.load(path)
    with open(path, "wb") as file:
        np.savez(file, header=np.array([{"pickled": True}], dtype=object))
    with pytest.raises(ValueError, match="not a file written by zerovar"):
        zv.load(path)
    path.write_text("hello")
    with pytest.raises(ValueError, match="not a file written by zerovar"):
        zv.load(path)


def test_newer_formats_are_refused(tmp_path):
    path = tmp_path / "new.zv"
    with open(path, "wb") as file:
        np.savez(file, header=np.array(json.dumps({"format": 99, "zerovar": "9.0", "kind": "fitted", "state": {}})))
    with pytest.raises(ValueError, match=r"format 99, written by zerovar 9\.0"):
        zv.load(path)


def test_files_are_written_whole_or_not_at_all(tmp_path):
    target = tmp_path / "out.txt"
    target.write_text("before")

    def interrupted():
        with files.atomic(target) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "before"
    assert os.listdir(tmp_path) == ["out.txt"]


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


@pytest.fixture
def npz(tmp_path):
    path = tmp_path / "posterior.npz"
    np.savez(path, draws=X.reshape(2, 100, 3), scores=S.reshape(2, 100, 3), values=VALUES.reshape(2, 100, 2), names=["a", "b"])
    return path


def test_command_line_estimates(npz, tmp_path, capsys):
    assert cli.main(["estimate", str(npz), "--json", str(tmp_path / "a.json"), "--csv", str(tmp_path / "a.csv")]) == 0
    answer = zv.estimate(X.reshape(2, 100, 3), S.reshape(2, 100, 3), VALUES, names=["a", "b"])
    record = json.loads((tmp_path / "a.json").read_text())
    assert [row["name"] for row in record["estimates"]] == ["a", "b"]
    np.testing.assert_allclose([row["value"] for row in record["estimates"]], answer.value, rtol=1e-12)
    header, *rows = (tmp_path / "a.csv").read_text().splitlines()
    assert header == "name,value,std_error,plain_value,plain_std_error,gain,control_variate,reason"
    assert len(rows) == 2
    assert "worth (draws)" in capsys.readouterr().out
    assert cli.main(["estimate", str(npz), "--family", "kernel", "--split", "cross-fit", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["split"] == "cross-fitting in 5 folds"


def test_command_line_writes_where_it_can_and_warns_without_a_table(npz, tmp_path, capsys):
    assert cli.main(["estimate", str(npz), "--json", "-", "--csv", "-"]) == 2
    assert "only one" in capsys.readouterr().err
    assert cli.main(["estimate", str(npz), "--json", str(tmp_path / "no" / "a.json")]) == 2
    assert "folder that exists" in capsys.readouterr().err
    np.savez(tmp_path / "wrong.npz", draws=X, scores=-S)
    assert cli.main(["estimate", str(tmp_path / "wrong.npz"), "--family", "linear", "--csv", "-"]) == 0
    assert "sign is flipped" in capsys.readouterr().err


def test_command_line_checks(npz, tmp_path, capsys):
    assert cli.main(["check", str(npz)]) == 0
    np.savez(tmp_path / "wrong.npz", draws=X, scores=-S)
    assert cli.main(["check", str(tmp_path / "wrong.npz")]) == 1
    assert "sign is flipped" in capsys.readouterr().out


BAD_FILES = {
    "missing": (None, "no such file"),
    "text": (b"a,b\n1,2\n", "not an .npz file"),
    "other arrays": ({"x": X}, "no array draws or scores; it has x"),
    "pickled": ({"draws": np.array([None]), "scores": S}, "cannot be read"),
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


def eight_schools() -> np.ndarray:
    """Exact posterior means by one-dimensional quadrature over log τ (μ and θ integrate in closed form)."""
    y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    sigma = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
    log_tau = np.linspace(-20, 8, 20001)[:, None]
    tau = np.exp(log_tau)
    variance = sigma**2 + tau**2
    precision = np.sum(1 / variance, axis=1) + 1 / 25
    mu = np.sum(y / variance, axis=1) / precision
    log_density = (
        -0.5 * np.sum(np.log(variance) + y**2 / variance, axis=1)
        + 0.5 * mu**2 * precision
        - 0.5 * np.log(precision)
        - np.log1p((tau[:, 0] / 5) ** 2)
        + log_tau[:, 0]
    )
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    shrink = sigma**2 / variance
    theta = (1 - shrink) * y + shrink * mu[:, None]
    return np.concatenate([[weight @ mu, weight @ tau[:, 0]], weight @ theta])


def test_demo(tmp_path):
    """As a user runs it: a process of its own, no global settings, a table and a picture; and its numbers are right."""
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
    truth = eight_schools()
    assert np.all(np.abs(value - truth) < 4 * error)
    assert np.all(np.abs(plain - truth) < 4 * plain_error)
    assert np.median(plain_error / error) > 30
    assert np.sqrt(np.mean((value - truth) ** 2)) < np.sqrt(np.mean((plain - truth) ** 2)) / 10
