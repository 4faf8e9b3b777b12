"""Every Python example of the README and the docs runs, and says what it says it prints."""

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import zerovar as zv

ROOT = Path(__file__).parent.parent
# the pages on samplers are run by test_samplers.py, which holds their posteriors to the truth, that on extending by
# test_extending.py with its classes in files
PAGES = [
    "README.md",
    *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").glob("**/*.md")) if p.parent.name != "samplers"),
]


RUN = [page for page in PAGES if page != "docs/extending.md" and "```python" in (ROOT / page).read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", RUN)
def test_examples_run(page, capsys):
    text = (ROOT / page).read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    names: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        for example in examples:
            exec(compile(example, page, "exec"), names)
    plt.close("all")
    printed = capsys.readouterr().out
    for expected in re.findall(r"```text\n(.*?)```", text, flags=re.S):
        for line in expected.splitlines():
            assert line in printed


def test_links_point_to_files():
    samplers = [str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "samplers").glob("*.md")]
    for page in [*PAGES, *samplers, "DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md"]:
        folder = (ROOT / page).parent
        text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.S)
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert (folder / target).exists(), f"{page} links to {target}"


def _python(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_quick_benchmarks_run(tmp_path):
    printed = _python("-m", "benchmarks", "--quick", "--out", str(tmp_path))
    assert "kernel fit, n = 300" in printed
    assert "kernel, corner peak" in printed
    assert "banana, random walk" in printed
    assert "Growth of time and memory" in printed
    assert "six Genz functions" in printed
    assert (tmp_path / "exact.json").exists()
    assert (tmp_path / "automatic.json").exists()
    accuracy = json.loads((tmp_path / "sgd.json").read_text(encoding="utf-8"))["results"]["accuracy"]
    assert all(row["met"] for row in accuracy)  # two seeds of what the full run shows over twenty


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")
def test_a_kernel_fit_peaks_under_four_matrices():
    matrices = float(_python("-c", "from benchmarks.exact import peak_memory; print(peak_memory(2000))"))
    assert 0.9 < matrices < 4
