"""Estimate.report(): one HTML page that needs nothing else, for someone who was not there."""

import base64
import re
import tempfile
from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from ..environment import versions
from ..io.atomic import atomic
from ..statistics.series import INDEPENDENT
from . import plots
from .formatting import EXACT, format_count, plus_minus, worth
from .record import EstimateRecord, by_integrand

_HEADS = (
    ("name", "what is estimated"),
    ("value", "by control variates ± its standard error"),
    ("error", "standard error by control variates"),
    ("plain", "by plain Monte Carlo ± its standard error"),
    ("gain", "how many times more draws plain Monte Carlo would need"),
    ("worth", "plain draws that these are worth"),
)


def write_page(estimate: EstimateRecord, path: str | PathLike[str]) -> None:
    """Write the page, whole or not at all."""
    template = Template((files("zerovar") / "data" / "report.html").read_text(encoding="utf-8"))
    sections = {"title": _title, "lead": _lead, "table": _table, "pictures": _pictures}
    sections |= {"diagnostics": _diagnostics, "choice": _choice, "settings": _settings}
    # first, so that a path that cannot be written is refused before the work
    with atomic(Path(path)) as temporary:
        page = template.substitute({name: section(estimate) for name, section in sections.items()})
        temporary.write_text(page, encoding="utf-8")


def write_evidence(evidence: Any, path: str | PathLike[str]) -> None:
    """Write a page of an `Evidence`: its table, what it rests on, its picture; whole or not at
    all."""
    title = f"log Z = {plus_minus(evidence.log_z, evidence.std_error)}"
    draw = plots.temperatures if evidence.overlap is None else plots.bridge
    write_short(evidence, path, title, [(draw, "what log Z is made of")])


def write_short(
    found: Any, path: str | PathLike[str], title: str, pictures: Sequence[tuple[Any, str]]
) -> None:
    """Write a page of what has a table for notebooks: that, and pictures with what they show; whole
    or not at all."""
    style = "body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    style += "td,th{padding:.2rem .8rem;text-align:right}td:first-child{text-align:left}"
    style += "caption{text-align:left}img{max-width:100%}"
    title = escape(title)
    with atomic(Path(path)) as temporary:
        drawn = "".join(_figure(found, draw, (), words) for draw, words in pictures)
        temporary.write_text(
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
            f"<style>{style}</style><h1>{title}</h1>{found._repr_html_()}{drawn}"
            f"<p>zerovar {escape(versions()['zerovar version'])}</p></html>\n",
            encoding="utf-8",
        )


def _title(estimate: EstimateRecord) -> str:
    count = len(estimate.names)
    what = f"An estimate of {estimate.names[0]}" if count == 1 else f"{count} estimates"
    return escape(f"{what} from {estimate.num_draws} draws, by control variates")


def _lead(estimate: EstimateRecord) -> str:
    """Return the answer in a sentence or two."""
    gain = estimate.gain
    middle = float(np.median(gain))
    first = by_integrand(estimate)[:3]
    shown = [
        f"<strong>{escape(name)}</strong> is {escape(plus_minus(value, error))}"
        for name, value, error, *_ in first
    ]
    text = ", ".join(shown) + (
        "." if len(gain) <= 3 else f", and {len(gain) - 3} more in the table."
    )
    if middle < 1.05:
        return (
            f"<p>{text} Control variates hardly help here: the errors are those of plain Monte "
            "Carlo.</p>"
        )
    draws = (
        f"worth {format_count(middle * estimate.num_draws)} plain ones"
        if middle < EXACT
        else "exact to rounding"
    )
    text += f" With control variates the {estimate.num_draws} draws are {draws} (at the median)."
    if len(gain) > 1:
        least, best = (
            f"{escape(estimate.names[k])}, {worth(gain[k])}"
            for k in (np.argmin(gain), np.argmax(gain))
        )
        text += f" The gain is least for {least}, and largest for {best}."
    return f"<p>{text}</p>"


def _table(estimate: EstimateRecord) -> str:
    head = "".join(
        f'<th scope="col" title="{escape(meaning)}">{escape(name)}</th>' for name, meaning in _HEADS
    )
    rows = []
    for name, value, error, plain, plain_error, gain in by_integrand(estimate):
        draws = gain * estimate.num_draws
        keys = (value, error, plain, gain, draws)
        texts = (
            plus_minus(value, error),
            f"{error:.2g}",
            plus_minus(plain, plain_error),
            worth(gain),
            format_count(draws) or "exact",
        )
        body = "".join(
            f'<td data-key="{key!r}">{escape(text)}</td>'
            for key, text in zip(keys, texts, strict=True)
        )
        rows.append(
            '<tr><th scope="row" '
            f'data-key="{escape(name, quote=True)}">{escape(name)}</th>{body}</tr>'
        )
    return f"<thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>"


def _pictures(estimate: EstimateRecord) -> str:
    count, most = len(estimate.names), 40
    intervals = (
        "95 % intervals of plain Monte Carlo and of control variates, in units of the "
        "plain standard errors."
    )
    intervals += (
        f" {most} of {count}, from the least gain to the largest; the table has all."
        if count > most
        else ""
    )
    wanted: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [(plots.forest, (), intervals)]
    if estimate.traces is not None:
        middle = estimate.names[plots.typical_index(estimate)]
        falls = (
            f"How the standard error of {middle} falls with draws, and how many plain ones it "
            "would take."
        )
        left = f"{middle} at each draw against its control variate, and what is left of it."
        wanted += [(plots.errors, (middle,), falls), (plots.scatter, (middle,), left)]
    if "loss" in estimate.stats:
        wanted.append((plots.training, (), "The loss of the training, by epochs."))
    return "\n".join(_figure(estimate, *picture) for picture in wanted)


def _figure(
    estimate: Any, draw: Callable[..., Any], arguments: tuple[Any, ...], caption: str
) -> str:
    """Return a picture twice, for light and dark pages, to stand inside the page."""
    text, sources = escape(caption), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.svg"
        try:
            for dark in (False, True):
                draw(estimate, *arguments, path, dark=dark)
                sources.append(
                    "data:image/svg+xml;base64,"
                    + base64.b64encode(_lighten(path.read_bytes())).decode("ascii")
                )
        except Exception as error:  # a page without one picture is better than none
            return f"<p>A picture is missing ({text}): {escape(str(error))}</p>"
    return (
        '<figure><picture><source media="screen and (prefers-color-scheme: dark)" '
        f'srcset="{sources[1]}">'
        f'<img src="{sources[0]}" alt="{text}"></picture><figcaption>{text}</figcaption></figure>'
    )


def _lighten(svg: bytes) -> bytes:
    """Return the same picture in two thirds of the bytes: most of it says where each letter stands,
    to a millionth of a point. Factors of scales keep their digits."""
    svg = re.sub(rb"(scale\([^)]*\))|(\d\.\d\d)\d+", lambda found: found[1] or found[2], svg)
    svg = re.sub(
        rb'(<use xlink:href="[^"]*") transform="translate\(([-\d.]+) 0\)"', rb'\1 x="\2"', svg
    )
    return re.sub(rb"^ +|DejaVuSans(?=[\w-]*-\w+\")", b"", svg, flags=re.M)


def _diagnostics(estimate: EstimateRecord) -> str:
    """Return what was looked at and what was found, in words."""
    cautions = "".join(f"<li>{escape(text)}</li>" for text in estimate.warnings)
    head = f'<ul class="cautions">{cautions}</ul>' if cautions else "<p>Nothing to warn of.</p>"
    told = []
    slowest = estimate.stats.get("autocorrelation_time")
    if slowest is not None:
        slow = (
            f"The slowest quantity needs about {slowest:.3g} draws for one independent one; the "
            "errors count that."
        )
        told.append("Successive draws are nearly independent." if slowest < INDEPENDENT else slow)
    repeated = estimate.stats.draws - estimate.stats.distinct_draws
    if repeated > 0:
        told.append(
            f"{repeated} draws repeat an earlier one (rejected proposals); they count, and were "
            "merged for the fit."
        )
    apart = np.abs(estimate.value - estimate.plain_value) / np.hypot(
        estimate.plain_std_error, estimate.std_error
    )
    which = f" ({escape(estimate.names[int(apart.argmax())])})" if len(apart) > 1 else ""
    told.append(
        f"The controlled and the plain estimates are at most {apart.max():.2g} joint standard "
        f"errors apart{which}."
    )
    if estimate.unhelped:
        told.append(escape(estimate.unhelped))
    told += map(escape, estimate.limits)
    return head + "<p>" + " ".join(told) + "</p>"


def _choice(estimate: EstimateRecord) -> str:
    chosen = estimate.selection
    if chosen is None:
        family = "" if estimate.family is None else estimate.family.describe()
        return f"<p>One family for all: {escape(family)}; {escape(estimate.split)}.</p>"
    cells = [(name, chosen.describe(k), chosen.reasons[k]) for k, name in enumerate(estimate.names)]
    row = '<tr><th scope="row">{}</th><td>{}</td><td>{}</td></tr>'
    rows = "".join(row.format(*map(escape, each)) for each in cells)
    told = [f"Found: {text}" for text in chosen.found]
    told += [f"Not used: {text}" for text in chosen.skipped]
    skipped = "".join(f"<p>{escape(text)}.</p>" for text in told)
    head = '<tr><th scope="col">name</th><th scope="col">taken</th><th scope="col">why</th></tr>'
    return (
        "<p>Chosen for each estimate from candidates that run from none to tuned sums of "
        "polynomials and kernels.</p>"
        '<div class="wide" tabindex="0" role="region" aria-label="Choices"><table class="words">'
        f"<thead>{head}</thead><tbody>{rows}</tbody></table></div>{skipped}"
    )


def _settings(estimate: EstimateRecord) -> str:
    told = {name: str(value) for name, value in estimate.settings.items()} | versions()
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in told.items())
    return f"<dl>{rows}</dl>"
