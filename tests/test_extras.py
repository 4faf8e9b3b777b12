"""What an installation without extras says, that `make extras` and `make dist` try every extra that
users are told of, and that one version stands everywhere."""

import re
import sys
import tomllib
from importlib import metadata

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from pages import ROOT, text_of

import zerovar as zv
from zerovar import cli
from zerovar.errors import missing_package
from zerovar.summaries import calls as summaries


@pytest.mark.parametrize(("fmt", "package"), [("wide", "pandas"), ("xarray", "xarray")])
def test_a_missing_package_is_named_before_the_work(fmt, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(
        summaries.Session, "of", lambda *args, **kwargs: pytest.fail("this took time")
    )
    x = np.zeros((2, 10, 1))
    with pytest.raises(
        ImportError, match=rf"needs {package}: pip install '\.\[xarray\]' in a clone"
    ):
        zv.summary(x, -x, fmt=fmt)


def test_messages_name_extras_that_exist():
    with open(ROOT / "pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"missing_package\(\S+, \"(\w+)\"\)", sources))
    assert named
    assert named <= set(extras)
    assert (
        str(missing_package("numpyro", "numpyro"))
        == "this needs numpyro: pip install '.[numpyro]' in a clone of zerovar"
    )
    tried = set(re.findall(r'^    "([\w,]+)": ', text_of("scripts/extras.py"), flags=re.M))
    tried |= set(re.findall(r"wheel\}\[([\w,]+)\]", text_of("scripts/dist.py")))
    tried = {extra for extras in tried for extra in extras.split(",")}
    for page in ("README.md", "docs/start.ipynb"):  # where people read what to install
        told = {
            extra
            for extras in re.findall(r"\.\[([\w,]+)\]", text_of(page))
            for extra in extras.split(",")
        }
        assert told <= set(extras) & tried


def test_one_version_everywhere(capsys):
    """Code, metadata, citation and changelog say the same version and the same day."""
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"zerovar {zv.__version__}\n"
    cited = dict(
        line.split(": ", 1)
        for line in text_of("CITATION.cff").splitlines()
        if re.match(r"[\w-]+: \S", line)
    )
    assert cited["version"] == zv.__version__
    assert f"## [{cited['version']}] - {cited['date-released']}\n" in text_of("CHANGELOG.md")
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)
    assert project["project"]["license"] == cited["license"] == "MIT"
    assert project["tool"]["hatch"]["version"]["path"] == "src/zerovar/environment.py"
    assert "urls" not in project["project"]  # until there is a public home


def test_lowest_versions_are_the_floors_of_the_project():
    """`make lowest` tests what pyproject.toml promises, not something newer."""
    pinned = dict(line.split("==") for line in text_of("lowest.txt").splitlines() if "==" in line)
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    names = ("plots", "xarray", "arviz", "dask", "numpyro", "test")
    needed = [
        *project["dependencies"],
        *(requirement for name in names for requirement in extras[name]),
    ]
    floors = dict(
        re.fullmatch(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", each).groups()
        for each in needed
        if "zerovar[" not in each
    )
    assert floors.keys() >= {"jax", "numpy", "matplotlib", "dask", "pytest"}
    assert {
        name: floor
        for name, floor in floors.items()
        if not f"{pinned.get(name)}.".startswith(f"{floor}.")
    } == {}


def test_info_has_what_a_bug_report_needs(capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("OMP_SECRET_TOKEN", "hidden")
    assert cli.main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    told = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in lines)
    with open(ROOT / "pyproject.toml", "rb") as file:
        needed = tomllib.load(file)["project"]["dependencies"]
    packages = {re.match(r"[\w-]+", requirement)[0] for requirement in needed}
    assert packages <= set(told)
    assert all(told[name] == metadata.version(name) for name in packages)
    assert told["zerovar"] == zv.__version__
    assert {"Python", "platform", "processors", "devices", "blas"} <= set(told)
    assert "threads" in told["blas"]
    assert told["OMP_NUM_THREADS"] == "3"
    assert "hidden" not in str(lines)


def test_constraints_hold_both_lines_of_pymc_and_arviz():
    """Python 3.11 ends with PyMC 5 and ArviZ 0.x; one version of each package for every Python."""
    lines = text_of("constraints.txt").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    found = {}
    for python in ("3.11", "3.12", "3.13"):
        own = [pin for pin in pins if not pin.marker or pin.marker.evaluate(python_at(python))]
        found[python] = {pin.name: Version(str(pin.specifier).removeprefix("==")) for pin in own}
        assert len(found[python]) == len(own)
    assert [found["3.11"][name].release[:2] for name in ("pymc", "arviz", "nutpie")] == [
        (5, 28),
        (0, 23),
        (0, 16),
    ]
    for python in ("3.12", "3.13"):
        for name, least in (("pymc", "6"), ("arviz", "1.1"), ("nutpie", "0.16.9")):
            assert found[python][name] >= Version(least)


def python_at(version: str) -> dict[str, str]:
    return {"python_version": version, "python_full_version": f"{version}.0"}


def test_netcdf_comes_with_what_reads_it():
    """From 1.8 on h5netcdf brings h5py only if asked to."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    (asked,) = [one for one in map(Requirement, extras["arviz"]) if one.name == "h5netcdf"]
    assert asked.extras == {"h5py"}
