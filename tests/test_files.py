"""Saving and loading."""

import json
import os

import numpy as np
import pytest
from problems import gaussian, quadratic
from tables import FAMILIES

import zerovar as zv
from zerovar.io import archive, atomic

X, S = gaussian(200, 2)
VALUES = np.sin(X)

# objectives and kernels that a file may hold, besides every family of the table
FITS = {
    **{name: (family, zv.LeastSquares(zv.Ridge(1e-3))) for name, family in FAMILIES.items()},
    "variance": (zv.Polynomial(1, operator=zv.Langevin()), zv.Variance(zv.Ridge(1e-3))),
    "finite intercept": (zv.Kernel(zv.kernels.Matern(4.5)), zv.LeastSquares(zv.Ridge(1e-3), intercept_variance=4.0)),
    "translates": (zv.Kernel(zv.kernels.RationalQuadratic()), zv.LeastSquares(zv.L2(1e-3))),
    "lasso": (zv.Polynomial(2), zv.LeastSquares(zv.L1(1e-2))),
    "product": (zv.Kernel(zv.kernels.InverseMultiquadric(2.0) * zv.kernels.Gaussian(3.0)), zv.Variance(zv.Ridge(0.1))),
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


def test_files_from_strangers_run_no_code(tmp_path):
    path = tmp_path / "evil.zv"
    header = {"format": archive.FORMAT, "item": {"class": "os.system", "fields": {}}}
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
        np.savez(file, header=np.array(json.dumps({"format": 99, "zerovar": "9.0", "item": {}})))
    with pytest.raises(ValueError, match=r"format 99, written by zerovar 9\.0"):
        zv.load(path)


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
