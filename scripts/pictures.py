"""Run what the documentation shows, and write its pictures and the outputs of its notebook anew:
`make pictures`.

Each picture carries the gains of its run. tests/test_docs.py compares them with those of its own
run of the same page, and fails when one has moved by more than a factor of two. Look at what this
script has written before you commit it.

    python scripts/pictures.py                     # all
    python scripts/pictures.py forest start        # the picture of the front page, the notebook
    python scripts/pictures.py intervals           # density curves, on the page of that name
    python scripts/pictures.py evidence            # the bridge, on the page of that name
    python scripts/pictures.py sensitivity         # three pictures, on the page of that name
    python scripts/pictures.py lotka_volterra      # a page of the gallery
"""

from __future__ import annotations

import sys
from importlib.resources import files

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import nbformat
import numpy as np
from pages import FOREST, NOTEBOOK, ROOT, estimates, is_empty, run_notebook, run_page, save_picture

import zerovar as zv

GALLERY = sorted(path.stem for path in (ROOT / "docs" / "gallery" / "images").glob("*.png"))


def forest() -> None:
    """What `zerovar demo` draws; with seconds enough for every candidate, so that no slow machine
    changes the picture."""
    with np.load(files("zerovar") / "data" / "eight_schools.npz") as file:
        draws, scores, values, names = (
            file[name] for name in ("draws", "scores", "values", "names")
        )
    answer = zv.estimate(draws, scores, values, names=names)
    print(answer)
    save_picture(answer.plot(), FOREST, estimates({"demo": answer}))


def intervals() -> None:
    """Curves have no gains: the picture carries those of the quantiles by scores alone."""
    names, printed = run_page("docs/intervals.md")
    print(printed)
    gains = estimates({"by_scores": names["by_scores"]})
    save_picture(names["figure"], ROOT / "docs" / "images" / "intervals.png", gains)


def evidence() -> None:
    """The bridge to the better of the two models."""
    names, printed = run_page("docs/evidence.md")
    print(printed)
    save_picture(names["picture"], ROOT / "docs" / "images" / "evidence.png", {})


def sensitivity() -> None:
    """What moves most, each observation, and curves along powers."""
    names, printed = run_page("docs/sensitivity.md")
    print(printed)
    for end, figure in (("", "bars"), ("_influence", "influence"), ("_curve", "figure")):
        save_picture(names[figure], ROOT / "docs" / "images" / f"sensitivity{end}.png", {})


def gallery(page: str) -> None:
    """A page's picture is the last that its examples draw."""
    names, printed = run_page(f"docs/gallery/{page}.md")
    print(printed)
    save_picture(plt.gcf(), ROOT / "docs" / "gallery" / "images" / f"{page}.png", estimates(names))


def notebook() -> None:
    """Outputs without what differs from run to run: execution times, and the version of Python that
    ran it."""
    made = run_notebook(NOTEBOOK)
    for cell in made.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not is_empty(output)]
    made.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    }
    nbformat.write(made, NOTEBOOK)


def main(wanted: list[str]) -> None:
    made = {"forest": forest, "start": notebook, "intervals": intervals, "evidence": evidence}
    made |= {"sensitivity": sensitivity}
    made |= {page: lambda page=page: gallery(page) for page in GALLERY}
    unknown = [name for name in wanted if name not in made]
    if unknown:
        raise SystemExit(f"no such picture: {', '.join(unknown)}; there are {', '.join(made)}")
    for name in wanted or made:
        print(f"== {name}", flush=True)
        made[name]()
        plt.close("all")


if __name__ == "__main__":
    main(sys.argv[1:])
