"""Pages of the documentation as code: their examples, the notebook, and the gains that they
show."""

import contextlib
import io
import json
import re
import warnings
from pathlib import Path
from typing import Any

import zerovar as zv

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "docs" / "start.ipynb"
FOREST = ROOT / "docs" / "images" / "forest.png"  # the picture of `zerovar demo`
# by which a gain may differ from what a page says: other processors round differently, and searches
# end elsewhere
FACTOR = 2.0
# the same where a page runs its own chain of a few hundred draws, which is another on each
# processor
OF_ANOTHER_CHAIN = 10.0
Gains = dict[str, float]


def text_of(page: str | Path) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def examples(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.S)


def run_page(page: str) -> tuple[dict[str, Any], str]:
    """Run a page's examples in order: the variables that they leave, and what they print."""
    names: dict[str, Any] = {}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()) as out:
        warnings.simplefilter("ignore", zv.ZerovarWarning)
        for example in examples(text_of(page)):
            exec(compile(example, page, "exec"), names)
    return names, out.getvalue()


def estimates(names: dict[str, Any]) -> dict[str, Gains]:
    """The gains of all estimates among the variables."""
    found = {key: each for key, each in names.items() if isinstance(each, zv.Estimate)}
    return {
        key: dict(zip(each.names, map(float, each.gain), strict=True))
        for key, each in found.items()
    }


def tables(text: str) -> list[Gains]:
    """The gains in each table of a text, by row and column: those that `print` makes of estimates
    and of summaries."""
    found: list[Gains] = []
    ends: dict[str, int] = {}
    place: int | None = None
    for line in text.splitlines():
        if line.startswith(("┃", "│")):
            cells = [cell.strip() for cell in line.strip("┃│").split(line[0])]
            if line.startswith("┃"):
                place = cells.index("gain") if "gain" in cells else None
                found.append({})
            elif place is not None:
                found[-1] |= _entry(f"{cells[0]}: gain", cells[place])
            continue
        headings = {match[1]: match.end() for match in re.finditer(r"\s(gain\w*)(?=\s|$)", line)}
        if headings and line.startswith(" "):  # columns are aligned at their ends
            ends = headings
            found.append({})
        elif ends and line[:1].strip() and line.rstrip().endswith(tuple("0123456789")):
            name = re.split(r"\s{2,}", line)[0]
            for heading, end in ends.items():
                if line[end - 1 : end].strip():
                    found[-1] |= _entry(f"{name}: {heading}", line[:end].split()[-1])
        else:
            ends = {}
    return [table for table in found if table]


def _entry(key: str, cell: str) -> Gains:
    try:
        return {key: float(cell)}
    except ValueError:
        return {}


def moved(said: Gains, now: Gains, factor: float = FACTOR) -> str:
    """What of `said` is no longer so, by more than a factor; nothing if all of it is."""
    lost = [key for key in said if key not in now]
    both = [(key, said[key], now[key]) for key in said if key in now]
    far = [
        f"{key} was {a:.3g}, is {b:.3g}"
        for key, a, b in both
        if not (a <= factor * b and b <= factor * a)
    ]
    return "; ".join([*far, *(f"{key} is gone" for key in lost)])


def save_picture(figure: Any, path: Path, gains: dict[str, Gains]) -> None:
    """A picture that carries the gains of its run, so that a test can tell when it is out of
    date."""
    figure.savefig(path, dpi=160, metadata={"Description": json.dumps(gains)})


def gains_in_picture(path: Path) -> dict[str, Gains]:
    from PIL import Image

    with Image.open(path) as picture:
        return json.loads(picture.info["Description"])


def run_notebook(path: Path) -> Any:
    """The notebook after a run in a kernel of its own; nothing is written."""
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute(
        cwd=str(path.parent)
    )
    return notebook


def is_empty(output: Any) -> bool:
    """Whether it shows nothing, as a bar that has taken itself away."""
    if output.output_type != "display_data":
        return False
    return not output.data.get("text/plain") or output.data.get("text/html") == ""


def shown(notebook: Any) -> list[list[str]]:
    """For each cell of code the kinds of output that it has."""
    cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    kept = ([output for output in cell.outputs if not is_empty(output)] for cell in cells)
    return [
        [kind for output in outputs for kind in sorted(output.get("data", [output.get("name")]))]
        for outputs in kept
    ]


def printed_by(notebook: Any) -> str:
    outputs = [
        output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    ]
    text = "\n".join(
        output.get("text") or output.get("data", {}).get("text/plain") or "" for output in outputs
    )
    return re.sub(r"\x1b\[[0-9;]*m", "", text)  # bold
