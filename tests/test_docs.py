"""Every Python example of the README and the docs runs, and says what it says it prints.

Gains in tables and in pictures are those of the run, to a factor of two: `make pictures` makes
pictures and notebook anew.
"""

import json
import re
import runpy
import subprocess
import sys

import matplotlib.pyplot as plt
import nbformat
import pytest
from pages import (
    FACTOR,
    FOREST,
    NOTEBOOK,
    OF_ANOTHER_CHAIN,
    ROOT,
    estimates,
    examples,
    gains_in_picture,
    moved,
    printed_by,
    run_notebook,
    run_page,
    shown,
    tables,
    text_of,
)

import zerovar as zv

# the pages on samplers are run by test_samplers.py, which holds their posteriors to the truth, that
# on extending by test_extending.py with its classes in files
PAGES = [
    "README.md",
    *(
        str(p.relative_to(ROOT))
        for p in sorted((ROOT / "docs").glob("**/*.md"))
        if p.parent.name != "samplers"
    ),
]


RUN = [page for page in PAGES if page != "docs/extending.md" and "```python" in text_of(page)]


# each for ten seconds and more where nothing is compiled yet: `make whole` runs them
LONG = (
    "docs/api.md",
    "docs/choosing.md",
    "docs/evidence.md",
    "docs/guide.md",
    "docs/hierarchies.md",
    "docs/integrate.md",
    "docs/intervals.md",
    "docs/large.md",
    "docs/limits.md",
    "docs/sensitivity.md",
    "docs/when.md",
    "docs/gallery/bias_check.md",
    "docs/gallery/eight_schools.md",
    "docs/gallery/gaussian_process.md",
    "docs/gallery/lattice.md",
    "docs/gallery/logistic_regression.md",
    "docs/gallery/lotka_volterra.md",
    "docs/gallery/operators.md",
    "docs/gallery/states.md",
)
SAMPLED = (
    "README.md",
    "docs/evidence.md",
    "docs/sensitivity.md",
    "docs/gallery/eight_schools.md",
    "docs/gallery/gaussian_process.md",
    "docs/gallery/lattice.md",
)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.whole) if page in LONG else page for page in RUN]
)
def test_examples_run(page):
    text = text_of(page)
    names, printed = run_page(page)
    plt.close("all")
    for expected in re.findall(r"```text\n(.*?)```", text, flags=re.S):
        for line in expected.splitlines():
            assert line in printed
    factor = OF_ANOTHER_CHAIN if page in SAMPLED else FACTOR
    _assert_printed(tables(text), printed, factor)
    picture = (ROOT / page).parent / "images" / f"{(ROOT / page).stem}.png"
    if picture.exists():
        now = estimates(names)
        for variable, gains in gains_in_picture(picture).items():
            assert moved(gains, now[variable], factor) == ""


def _assert_printed(said, printed, factor=FACTOR):
    """Each table of a text is among those that were printed, in this order, with nearly the same
    gains."""
    now = iter(tables(printed))
    for table in said:
        same = next((other for other in now if other.keys() == table.keys()), {})
        assert moved(table, same, factor) == ""


@pytest.mark.whole
def test_notebook():
    """The first page runs in a fresh kernel, and gives the tables and pictures that are stored in
    it."""
    stored = nbformat.read(NOTEBOOK, as_version=4)
    fresh = run_notebook(NOTEBOOK)
    kinds = shown(stored)
    assert shown(fresh) == kinds
    assert {"text/html", "image/png"} <= {kind for cell in kinds for kind in cell}
    said = tables(printed_by(stored))
    assert said
    _assert_printed(said, printed_by(fresh))


def test_the_front_page_of_the_site_repeats_the_readme():
    (front,) = tables(text_of("docs/index.md"))
    assert front == tables(text_of("README.md"))[0]


@pytest.mark.parametrize("page", ["README.md", "docs/choosing.md"])
def test_gains_of_the_benchmarks_are_quoted_as_they_are(page):
    low, high = re.search(
        r"realised gains (?:ran )?from (\S+) \(hmm_drive_0\) to\s(\S+) \(kids", text_of(page)
    ).groups()
    measured = text_of("benchmarks/README.md")
    assert f"| {low} to {high} on eleven real posteriors |" in measured
    for name, gain in (("hmm_drive_0", low), ("kidscore_interaction", high)):
        assert re.search(rf"^\| {name} \| \w+ \|.*\| {gain} \(", measured, re.MULTILINE)


def test_the_readme_says_what_it_costs_as_measured():
    costs, measured = text_of("README.md"), text_of("benchmarks/README.md")
    first, later = re.search(
        r"\| (\S+) s at first, most of it compiling; (\S+) s from", costs
    ).groups()
    assert f"| ten integrands: first, imports aside | `automatic` | {first} |" in measured
    assert f"| ten integrands: warm, normal effort | `automatic` | {later}: " in measured
    assert (
        f"| NumPyro: {re.search(r'NumPyro: (.*) of the run', costs)[1]} with gradients kept"
        in measured
    )
    trust = re.search(r"\| trust \| (.*); \[where", costs)[1]
    assert f"| {trust} |" in measured


def test_the_page_on_limits_quotes_the_calibration():
    """Tables and shares on the page are those of the benchmark, row by row."""
    page, source = text_of("docs/limits.md"), text_of("benchmarks/README.md")
    quoted = [line for line in page.splitlines() if re.match(r"\|.*\d %", line)]
    assert len(quoted) > 20
    assert set(quoted) <= set(source.splitlines())
    share, count = re.search(r"(\d+ %) of (\d+) answers on eleven", page).groups()
    assert f"| {share} of {count} answers on eleven posteriors within 1.96 errors |" in source


def test_gains_that_moved_are_found():
    """What the tests above rest on: both kinds of tables are read, and a gain that is off by more
    than two is named."""
    rich = "┃ name ┃ value ┃ gain ┃\n┡━━╇\n│ mu │ 1 ± 2 │ 44.6 │\n│ P(tau > 5) │ 1 ± 2 │ 7 │\n"
    wide = (
        "            mean     gain gain_sd\nmu          3.36  1.0e+08       9\nP(tau > 5)  1.68   "
        "     4\n"
    )
    assert tables(rich + wide) == [
        {"mu: gain": 44.6, "P(tau > 5): gain": 7},
        {"mu: gain": 1e8, "mu: gain_sd": 9, "P(tau > 5): gain": 4},
    ]
    assert moved({"mu": 10.0, "tau": 3.0}, {"mu": 19.0, "tau": 1.6}) == ""
    assert moved({"mu": 10.0, "tau": 3.0}, {"mu": 21.0}) == "mu was 10, is 21; tau is gone"
    assert moved({"mu": 10.0}, {"mu": float("nan")}) != ""
    assert gains_in_picture(FOREST)["demo"].keys() >= {"mu", "tau"}


def _without_example(names, code):
    """Public names that no line of code mentions: functions and modules as zv.name, classes also
    where they are imported."""
    return [name for name in names if not re.search(rf"\bzv\.{name}\b|\bimport .*\b{name}\b", code)]


def test_every_public_name_has_an_example_that_runs():
    """All of these pages run: here, in test_samplers.py, in test_extending.py, and the long ones
    and the notebook with `make whole`."""
    cells = [
        cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"
    ]
    pages = ["README.md", *(path.relative_to(ROOT) for path in (ROOT / "docs").glob("**/*.md"))]
    code = "\n".join(
        [
            *(example for page in pages for example in examples(text_of(page))),
            *(cell.source for cell in cells),
        ]
    )
    assert _without_example(dir(zv), code) == [], "add an example, as to docs/api.md"
    # the test can fail
    assert _without_example(["estimate", "estimat"], "zv.estimate(x)") == ["estimat"]
    reference = text_of("docs/api.md")
    modules = {"centres", "kernels", "metrics", "plots", "schedules", "spaces"}
    assert [
        name
        for name in dir(zv)
        if name not in modules and not re.search(rf"^\.\. auto\w+:: {name}$", reference, re.M)
    ] == [], "add an autoclass or autofunction to docs/api.md"


def test_links_point_to_files():
    samplers = [str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "samplers").glob("*.md")]
    for page in [
        *PAGES,
        *samplers,
        str(NOTEBOOK.relative_to(ROOT)),
        "DESIGN.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ]:
        folder = (ROOT / page).parent
        text = re.sub(r"```.*?```", "", text_of(page), flags=re.S)
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert (folder / target).exists(), f"{page} links to {target}"


def test_the_check_of_the_site_finds_what_leads_nowhere(tmp_path):
    check = runpy.run_path(str(ROOT / "scripts" / "site.py"))["problems"]
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="b.html#there">b</a><img src="a.html" alt="a"><a '
        'href="#top">up</a>'
    )
    (tmp_path / "b.html").write_text('<p id="there">b</p><a href="https://example.org/x">out</a>')
    assert check(tmp_path) == []
    (tmp_path / "b.html").write_text(
        '<a href="c.html">c</a><a href="a.html#bottom">a</a><img src="a.html">'
    )
    assert check(tmp_path) == [
        "a.html: b.html#there names no place in that page",
        "b.html: the picture a.html has no description",
        "b.html: c.html is no file of the site",
        "b.html: a.html#bottom names no place in that page",
    ]


def _python(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.whole
def test_benchmarks_that_sample_run():
    """Those that are not among the quick ones, because they wait for NUTS."""
    printed = _python(
        "-m", "benchmarks.effects", "--draws", "100", "--only", "batting", "--processes", "1"
    )
    assert re.search(r"batting.*\d", printed)
    printed = _python(
        "-m", "benchmarks.examples", "--only", "shares", "--runs", "1", "--long", "200"
    )
    assert re.search(r"shares.*%", printed)
    script = (
        "from benchmarks.dimensions import realised\nif __name__ == '__main__': "
        "print(*realised(3, 200, 2, 1))"
    )
    linear, chosen = map(float, _python("-c", script).split())
    assert linear > 1
    assert chosen > 1


@pytest.mark.whole
def test_quick_benchmarks_run(tmp_path):
    printed = _python("-m", "benchmarks", "--quick", "--out", str(tmp_path))
    assert "kernel fit, n = 300" in printed
    assert "kernel, corner peak" in printed
    assert "banana, random walk" in printed
    assert "Growth of time and memory" in printed
    assert "six Genz functions" in printed
    assert (tmp_path / "exact.json").exists()
    assert (tmp_path / "automatic.json").exists()
    accuracy = json.loads((tmp_path / "sgd.json").read_text(encoding="utf-8"))["results"][
        "accuracy"
    ]
    assert all(row["met"] for row in accuracy)  # two seeds of what the full run shows over twenty


@pytest.mark.whole
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")
def test_a_kernel_fit_peaks_under_four_matrices():
    matrices = float(
        _python("-c", "from benchmarks.exact import peak_memory; print(peak_memory(2000))")
    )
    assert 0.9 < matrices < 4
