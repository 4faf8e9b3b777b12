"""The pages of the paper's experiments against their tables, and the arithmetic behind verdicts:
lean fits, crossings, polynomials on the line."""

import csv
import re

import numpy as np
import pytest

import zerovar as zv
from experiments.paper import __main__ as program
from experiments.paper import cost_tables, front, lean, line, propositions, protocol
from experiments.paper.integrands import GENZ


def test_the_pages_follow_from_the_tables():
    pages = program.pages(program.HERE)
    assert set(pages) == {"RESULTS.md", "README.md"}
    for name, written in pages.items():
        assert (program.HERE / name).read_text() == written


def test_links_within_the_pages_lead_somewhere():
    pages = {name: (program.HERE / name).read_text() for name in ("RESULTS.md", "README.md")}
    heads = re.findall(r"^##+ (.*)$", pages["RESULTS.md"], re.MULTILINE)
    anchors = {front.anchor(title) for title in heads}
    links = [
        link for page in pages.values() for link in re.findall(r"\]\((?:RESULTS.md)?#(.*?)\)", page)
    ]
    assert len(links) > 10
    assert set(links) <= anchors


def test_the_front_page_is_one_page():
    page = (program.HERE / "README.md").read_text()
    assert len(page.splitlines()) < 60
    assert len(re.findall(r"^\d+\. ", page, re.MULTILINE)) == 10
    assert page.count("![") == 1


def table(name: str) -> list[dict[str, str]]:
    """A committed table as text, read by nothing of the experiments."""
    with open(program.HERE / "results" / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_numbers_of_the_claims_are_those_of_the_tables():
    """Counted again from the files, by other means."""
    page = (program.HERE / "RESULTS.md").read_text()
    # costs: where lean steps of five epochs cross the kernel's solve, in logarithms
    here = [
        (float(r["m"]), float(r["ratio"]))
        for r in table("costs")
        if (r["family"], r["over"], r["method"]) == ("kernel", "m", "lean steps, 5 epochs")
    ]
    m, ratio = np.array(here).T
    crossed = np.exp(np.interp(0, -np.log(ratio), np.log(m)))
    assert f"kernel in m: {crossed:.0f}, " in page
    # Proposition 3: the slope against γ + t
    inside = [r for r in table("propositions") if r["rate"] == "inside"]
    gamma = float(inside[0]["gamma"])
    t, excess = np.array([(float(r["size"]), float(r["excess"])) for r in inside]).T
    late = t >= 10 * gamma
    slope = np.polyfit(np.log(gamma + t[late]), np.log(excess[late]), 1)[0]
    assert f"slope {slope:.3f} ± " in page
    assert abs(slope + 1) < 0.05
    # Table 5, by the recipe alone
    errors: dict[tuple, list] = {}
    for r in table("genz"):
        if (r["part"], r["d"], r["method"], r["epochs"]) == (
            "paper",
            "1",
            "kernel, as in the paper",
            "5",
        ):
            errors.setdefault((r["integrand"], r["split"]), []).append(
                abs(float(r["value"]) - float(r["truth"]))
            )
    mean = {place: np.mean(found) for place, found in errors.items()}
    half = {name: mean[name, "50/50"] for name in GENZ}
    larger = [
        mean[name, split] < half[name] for name in GENZ for split in ("70/30", "90/10", "100/0")
    ]
    assert f"{sum(larger)} of {len(larger)} larger shares beat 50/50" in page
    # Madelon, m = 1000: the network's gain on the repetitions that ended, and those that did not
    rows = [r for r in table("logistic") if (r["part"], r["set"]) == ("paper", "madelon")]
    off = {
        (r["method"], r["m"], r["repetition"], r["integrand"]): float(r["value"])
        - float(r["truth"])
        for r in rows
    }
    ended = sorted(
        {k[2] for k in off if k[0].startswith("network") and k[1] == "1000" and np.isfinite(off[k])}
    )
    points = sorted({k[3] for k in off})
    gain = np.median(
        [
            np.divide(
                *(
                    sum(off[w, "1000", r, p] ** 2 for r in ended)
                    for w in ("MC", "network, as in the paper")
                )
            )
            for p in points
        ]
    )
    assert f"network {gain:.3g} ± " in page
    fits = {(k[1], k[2]): np.isfinite(off[k]) for k in off if k[0].startswith("network")}
    assert f"{sum(not good for good in fits.values())} of {len(fits)} fits" in page
    # the unpaired gain, which counts plain means of fits that diverged, is another number
    unpaired = np.median(
        [
            np.mean([v**2 for k, v in off.items() if k[0] == "MC" and k[1] == "1000" and k[3] == p])
            / np.mean([off["network, as in the paper", "1000", r, p] ** 2 for r in ended])
            for p in points
        ]
    )
    assert abs(unpaired - gain) > 0.1


def test_the_gallery_repeats_the_page():
    page = (program.HERE / "RESULTS.md").read_text()
    gallery = (program.HERE.parents[1] / "docs" / "gallery" / "paper.md").read_text()
    rows = [line.removesuffix("|") for line in gallery.splitlines() if line.startswith("| ")]
    assert len(rows) > 40
    assert all(row in page for row in rows)
    drawn, shown = (
        program.HERE / "results" / "genz.png",
        program.HERE.parents[1] / "docs" / "images" / "paper.png",
    )
    assert drawn.read_bytes() == shown.read_bytes()


def test_lean_fits_are_those_of_the_library():
    """The lean solve gives the library's exact g, of features, of a kernel and of both; many lean
    steps come close, and a rate beyond the safe one does not."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    f = np.sin(x).sum(axis=1)
    f = (f - f.mean()) / f.std()
    kernel = zv.Kernel(zv.kernels.Gaussian(2.0))
    for family in (zv.Polynomial(2), kernel, zv.Polynomial(2) + kernel):
        blocks = lean.features(family, x, -x)
        phi = lean.side_by_side(blocks).copy()
        thetas, c = lean.solve(blocks, f)
        penalised = zv.LeastSquares(zv.Ridge(lean.RIDGE))
        fitted = zv.fit(family, zv.Sample(x, -x), f, penalised, zv.Exact(), standardise=False)
        assert phi @ np.concatenate(thetas) == pytest.approx(fitted.at(x, -x)[:, 0], abs=1e-4)
        assert c == pytest.approx(fitted.intercept[0], abs=1e-4)
    phi = lean.side_by_side(lean.features(zv.Polynomial(2), x, -x))
    best = np.linalg.lstsq(np.hstack([np.ones((120, 1)), phi]), f, rcond=None)[0]
    rate = protocol.first_step(phi)
    theta, c = lean.steps(phi, f, rate, 20_000)
    assert np.append(c, theta) == pytest.approx(best, abs=0.05)
    compiled, constant = lean.compiled_steps(phi, f, rate, 500)
    theta, c = lean.steps(phi, f, rate, 500)
    assert np.append(constant, compiled) == pytest.approx(np.append(c, theta), abs=1e-12)
    with np.errstate(all="ignore"):
        assert not np.abs(lean.steps(phi, f, 50 * rate, 2000)[0]).max() < 10


def test_where_times_cross():
    places = np.array([1.0, 2.0, 4.0, 8.0])
    assert cost_tables.slope(places, places**1.5) == pytest.approx(1.5)
    assert cost_tables.crossing(places, 3 / places) == "3"
    assert cost_tables.crossing(places, 100 / places) == "not up to 8"
    assert cost_tables.crossing(places, 0.5 / places) == "below 1"
    assert cost_tables.crossing(places, 1 + 0.01 * places) == "equal within a tenth"


def test_polynomials_on_the_line():
    """Under a normal what degree k leaves is the tail of f's Hermite series; Stein's equation is
    solved; a limit above zero is seen."""
    found = line.Line.of(propositions.TARGETS["N(0, 1)"], lambda x: np.sin(x[:, 0]), 16.0, 2001)
    # sin x = e^{-1/2} Σ ± He_k / k! over odd k, of squared norm e^{-1} / k!
    share = np.array([1 / np.prod(np.arange(1.0, k + 1)) if k % 2 else 0 for k in range(1, 30)])
    tail = 1 - np.cumsum(share)[:6] / share.sum()
    assert found.reached(6) == pytest.approx(tail, rel=1e-6, abs=1e-12)
    u = found.solution()
    assert found.image(u) == pytest.approx(found.centred, abs=1e-12)
    assert np.linalg.norm(found.image(u)) < found.bound() * found.norm(u)
    falling = [{"size": k, "left": np.exp(-np.sqrt(k))} for k in range(1, 61)]
    assert propositions.trend(falling).to_zero
    stuck = [{"size": row["size"], "left": row["left"] + 1e-2} for row in falling]
    assert not propositions.trend(stuck).to_zero
