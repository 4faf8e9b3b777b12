"""Draw which part of zerovar imports which, from the imports themselves:
docs/images/architecture.svg (`make drawing`).

Parts stand on the diagonal, in the order of the table "The layout" in DESIGN.md. A dot means that
the part at the end of its line imports the part above it, and is the larger, the more modules do.
Imports go one way: all dots are below the diagonal. `tests/test_architecture.py` fails if the
drawing is not that of the code.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "zerovar"
DRAWING = ROOT / "docs" / "images" / "architecture.svg"
STEP, MARGIN, NAME = 22, 16, 118  # between parts; around; for the longest name
STYLE = """
  .paper { fill: #ffffff } .band { fill: #eef4f9 }
  .line { stroke: #c3cad1; fill: none } .dot { fill: #0072b2 } .part { fill: #d55e00 }
  text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #1c1f23 }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #16191d } .band { fill: #1f2a33 } .line { stroke: #4a525b }
    .dot { fill: #6fb7f0 } .part { fill: #f0a060 }
    text { fill: #e6e6e6 }
  }
"""


def rows() -> list[list[str]]:
    """The parts, row by row, as the table of DESIGN.md has them."""
    table = (
        (ROOT / "DESIGN.md")
        .read_text(encoding="utf-8")
        .partition("## The layout")[2]
        .partition("\n## ")[0]
    )
    return [
        re.findall(r"`(\w+)`", line.split("|")[1])
        for line in table.splitlines()
        if line.startswith("| `")
    ]


def imports() -> dict[str, Counter[str]]:
    """For each part (a module or a folder of the package): how many of its modules import each
    other one, also in functions."""
    parts = {
        path.stem
        for path in SOURCE.iterdir()
        if (path.is_dir() or path.suffix == ".py") and not path.stem.startswith("__")
    }
    found: dict[str, Counter[str]] = {part: Counter() for part in parts - {"data"}}
    for path in sorted(SOURCE.rglob("*.py")):
        part, *inner = path.relative_to(SOURCE).with_suffix("").parts
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            # from the package itself
            if isinstance(node, ast.ImportFrom) and node.level == len(inner) + 1:
                names |= (
                    {node.module.split(".")[0]}
                    if node.module
                    else {alias.name for alias in node.names}
                )
        if part in found:
            found[part].update(names & found.keys() - {part})
    return found


def drawn() -> str:
    layout, graph = rows(), imports()
    parts = [part for row in layout for part in row]
    if sorted(parts) != sorted(graph):
        raise ValueError(
            "the table of DESIGN.md and the package differ in "
            f"{', '.join(sorted({*parts} ^ {*graph}))}"
        )
    size = STEP * len(parts)
    at = {part: MARGIN + STEP * (k + 0.5) for k, part in enumerate(parts)}
    width, height = size + 2 * MARGIN + NAME, size + 2 * MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-labelledby="title">',
        '<title id="title">Which part of zerovar imports which: all dots are below the diagonal, '
        "imports go one way</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
    ]
    for row in layout[::2]:  # every other row of the table has a band
        top = at[row[0]] - STEP / 2
        out.append(
            f'<rect class="band" x="{MARGIN}" y="{top:g}" width="{size + NAME}" '
            f'height="{STEP * len(row)}"/>'
        )
    for here in at.values():
        out.append(f'<path class="line" d="M{MARGIN} {here:g}H{here:g}V{height - MARGIN}"/>')
    for part, here in at.items():
        for other, count in sorted(graph[part].items()):
            radius = 3 + 1.5 * min(count, 4) ** 0.5 if count > 1 else 3.5
            out.append(f'<circle class="dot" cx="{at[other]:g}" cy="{here:g}" r="{radius:.1f}"/>')
        out.append(f'<rect class="part" x="{here - 5:g}" y="{here - 5:g}" width="10" height="10"/>')
        out.append(f'<text x="{here + 10:g}" y="{here + 4.5:g}">{part}</text>')
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    DRAWING.write_text(drawn(), encoding="utf-8")
    print(DRAWING.relative_to(ROOT))
