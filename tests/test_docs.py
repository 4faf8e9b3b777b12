"""Every Python example of the README and the docs runs, and says what it says it prints."""

import re
import warnings
from pathlib import Path

import pytest

import zerovar as zv

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "docs/guide.md"]


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page, capsys):
    text = (ROOT / page).read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    assert examples
    names: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        for example in examples:
            exec(compile(example, page, "exec"), names)
    printed = capsys.readouterr().out
    for expected in re.findall(r"```text\n(.*?)```", text, flags=re.S):
        for line in expected.splitlines():
            assert line in printed


def test_links_point_to_files():
    for page in [*PAGES, "DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md"]:
        folder = (ROOT / page).parent
        for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8")):
            assert (folder / target).exists(), f"{page} links to {target}"


def test_quick_benchmarks_run(tmp_path):
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "kernel fit, n = 300" in done.stdout
    assert (tmp_path / "exact.json").exists()
