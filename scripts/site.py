"""Check the built site: every link inside it leads somewhere, every picture is there and described,
words are spelt as codespell has them (`make docs` runs this).

Links out of the site are not followed: there is no network where this runs. Spelling is that of the
sources, which have no markup of a theme; words that codespell does not know are listed in
pyproject.toml.
"""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "docs"
SPELT = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "DESIGN.md",
    "CITATION.cff",
    "docs",
    "benchmarks",
    "scripts",
    "src",
]


class Page(HTMLParser):
    """What a page links to and shows, and the places in it that can be linked to."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.places: set[str] = set()
        self.undescribed: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.places |= {value for name, value in attrs if name in ("id", "name") and value}
        target = (
            given.get("href")
            if tag in ("a", "link")
            else given.get("src")
            if tag in ("img", "script")
            else None
        )
        if target:
            self.targets.append(target)
        if tag == "img" and not given.get("alt"):
            self.undescribed.append(target or "?")


def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def problems(site: Path) -> list[str]:
    """Links and pictures of a site that lead nowhere."""
    pages = {path: read(path) for path in sorted(site.rglob("*.html"))}
    wrong = [] if pages else [f"{site} has no pages"]
    for path, page in pages.items():
        here = path.relative_to(site)
        wrong += [f"{here}: the picture {name} has no description" for name in page.undescribed]
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if not file.exists():
                wrong.append(f"{here}: {target} is no file of the site")
            elif (
                parts.fragment
                and file in pages
                and unquote(parts.fragment) not in pages[file].places
            ):
                wrong.append(f"{here}: {target} names no place in that page")
    return wrong


def main() -> int:
    wrong = problems(SITE)
    spelling = subprocess.run(
        [sys.executable, "-m", "codespell_lib", *SPELT], cwd=ROOT, capture_output=True, text=True
    )
    wrong += (spelling.stdout + spelling.stderr).splitlines() if spelling.returncode else []
    print(
        "\n".join(wrong)
        or f"links and spelling are right in {len(list(SITE.rglob('*.html')))} pages"
    )
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
