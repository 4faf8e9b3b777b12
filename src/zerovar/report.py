"""Estimate.report(): one HTML page that needs nothing else, for someone who was not there."""

from __future__ import annotations

import base64
import html
import platform
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from . import plots
from .files import atomic
from .result import EXACT, Estimate, human, plus_minus, worth

_PACKAGES = ("zerovar", "jax", "equinox", "optax", "numpy", "scipy", "arviz-stats")
_HEADS = (
    ("name", "what is averaged"),
    ("value", "mean by control variates ± its standard error"),
    ("error", "standard error by control variates"),
    ("plain", "plain Monte Carlo mean ± its standard error"),
    ("gain", "how many times more draws plain Monte Carlo would need"),
    ("worth", "plain draws that these are worth"),
)


def write(estimate: Estimate, path: str | PathLike[str]) -> None:
    """The page, written whole or not at all."""
    page = render(estimate)
    with atomic(Path(path)) as temporary:
        temporary.write_text(page, encoding="utf-8")


def render(estimate: Estimate) -> str:
    """The page as text."""
    template = Template((files("zerovar") / "data" / "report.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=html.escape(_headline(estimate)),
        lead=_lead(estimate),
        table=_table(estimate),
        pictures=_pictures(estimate),
        diagnostics=_diagnostics(estimate),
        choice=_choice(estimate),
        settings=_settings(estimate),
    )


def _headline(estimate: Estimate) -> str:
    count = len(estimate.names)
    means = f"The mean of {estimate.names[0]}" if count == 1 else f"{count} means"
    return f"{means} from {estimate.num_draws} draws, by control variates"


def _lead(estimate: Estimate) -> str:
    """The answer in a sentence or two."""
    gain = estimate.gain
    middle = float(np.median(gain))
    best, least = int(np.argmax(gain)), int(np.argmin(gain))
    shown = [f"<strong>{html.escape(estimate.names[k])}</strong> is {_number(estimate, k)}" for k in range(min(len(gain), 3))]
    text = ", ".join(shown) + ("." if len(gain) <= 3 else f", and {len(gain) - 3} more in the table.")
    if middle < 1.05:
        return f"<p>{text} Control variates hardly help here: the errors are those of plain Monte Carlo.</p>"
    draws = f"worth {human(middle * estimate.num_draws)} plain ones" if middle < EXACT else "exact to rounding"
    text += f" With control variates the {estimate.num_draws} draws are {draws} (at the median)."
    if len(gain) > 1:
        text += f" The gain is least for {html.escape(estimate.names[least])}, {worth(gain[least])},"
        text += f" and largest for {html.escape(estimate.names[best])}, {worth(gain[best])}."
    return f"<p>{text}</p>"


def _number(estimate: Estimate, k: int) -> str:
    return html.escape(plus_minus(float(estimate.value[k]), float(estimate.std_error[k])))


def _table(estimate: Estimate) -> str:
    head = "".join(
        f'<th scope="col" title="{html.escape(meaning)}"><button type="button">{html.escape(name)}</button></th>'
        for name, meaning in _HEADS
    )
    rows = []
    for k, name in enumerate(estimate.names):
        value, error = float(estimate.value[k]), float(estimate.std_error[k])
        plain, plain_error, gain = float(estimate.plain_value[k]), float(estimate.plain_std_error[k]), float(estimate.gain[k])
        cells = (
            (value, plus_minus(value, error)),
            (error, f"{error:.2g}"),
            (plain, plus_minus(plain, plain_error)),
            (gain, worth(gain)),
            (gain * estimate.num_draws, human(gain * estimate.num_draws) or "exact"),
        )
        body = "".join(f'<td data-key="{key!r}">{html.escape(text)}</td>' for key, text in cells)
        rows.append(f'<tr><th scope="row" data-key="{html.escape(name, quote=True)}">{html.escape(name)}</th>{body}</tr>')
    return f"<thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>"


def _pictures(estimate: Estimate) -> str:
    count, most = len(estimate.names), 40
    intervals = "95 % intervals of plain Monte Carlo and of control variates, in units of the plain standard errors."
    intervals += f" {most} of {count}, from the least gain to the largest; the table has all." if count > most else ""
    wanted: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [(plots.forest, (), intervals)]
    if estimate.traces is not None:
        middle = estimate.names[plots.typical(estimate)]
        falls = f"How the standard error of {middle} falls with draws, and how many plain ones it would take."
        left = f"{middle} at each draw against its control variate, and what is left of it."
        wanted += [(plots.errors, (middle,), falls), (plots.scatter, (middle,), left)]
    if "loss" in estimate.stats:
        wanted.append((plots.training, (), "The loss of the training, by epochs."))
    return "\n".join(_figure(estimate, *picture) for picture in wanted)


def _figure(estimate: Estimate, draw: Callable[..., Any], arguments: tuple[Any, ...], caption: str) -> str:
    """A picture twice, for light and dark pages, inside the page."""
    text, sources = html.escape(caption), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.svg"
        try:
            for dark in (False, True):
                draw(estimate, *arguments, path, dark=dark)
                sources.append("data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode("ascii"))
        except Exception as error:  # a page without one picture is better than none
            return f"<p>A picture is missing ({text}): {html.escape(str(error))}</p>"
    return (
        f'<figure><picture><source media="screen and (prefers-color-scheme: dark)" srcset="{sources[1]}">'
        f'<img src="{sources[0]}" alt="{text}"></picture><figcaption>{text}</figcaption></figure>'
    )


def _diagnostics(estimate: Estimate) -> str:
    """What was looked at and what was found, in words."""
    cautions = "".join(f"<li>{html.escape(text)}</li>" for text in estimate.warnings)
    head = f'<ul class="cautions">{cautions}</ul>' if cautions else "<p>Nothing to warn of.</p>"
    told = []
    time = estimate.stats.get("autocorrelation_time")
    if time is not None:
        told.append(
            "Successive draws are nearly independent."
            if time < 1.5
            else f"The slowest quantity needs about {time:.3g} draws for one independent one; the errors count that."
        )
    repeated = estimate.stats.get("draws", 0) - estimate.stats.get("distinct_draws", estimate.stats.get("draws", 0))
    if repeated > 0:
        told.append(f"{repeated} draws repeat an earlier one (rejected proposals); they count, and were merged for the fit.")
    apart = np.abs(estimate.value - estimate.plain_value) / np.hypot(estimate.plain_std_error, estimate.std_error)
    told.append(
        f"The controlled and the plain means are at most {apart.max():.2g} joint standard errors apart"
        + (f" ({html.escape(estimate.names[int(apart.argmax())])})." if len(apart) > 1 else ".")
    )
    if estimate.unhelped:
        told.append(html.escape(estimate.unhelped))
    return head + "<p>" + " ".join(told) + "</p>"


def _choice(estimate: Estimate) -> str:
    if estimate.selection is None:
        family = "" if estimate.family is None else estimate.family.describe()
        return f"<p>One family for all: {html.escape(family)}; {html.escape(estimate.split)}.</p>"
    rows = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td>{html.escape(estimate.selection.describe(k))}</td>'
        f"<td>{html.escape(estimate.selection.reasons[k])}</td></tr>"
        for k, name in enumerate(estimate.names)
    )
    skipped = "".join(f"<p>Not tried: {html.escape(text)}.</p>" for text in estimate.selection.skipped)
    head = '<tr><th scope="col">name</th><th scope="col">taken</th><th scope="col">why</th></tr>'
    return (
        "<p>Chosen for each mean from candidates that run from none to tuned sums of polynomials and kernels.</p>"
        '<div class="wide" tabindex="0" role="region" aria-label="Choices"><table class="words">'
        f"<thead>{head}</thead><tbody>{rows}</tbody></table></div>{skipped}"
    )


def _settings(estimate: Estimate) -> str:
    told = {name: str(value) for name, value in estimate.settings.items()}
    told |= {f"{name} version": _version(name) for name in _PACKAGES}
    told |= {"Python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    rows = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>" for name, text in told.items())
    return f"<dl>{rows}</dl>"


def _version(name: str) -> str:
    try:
        return version(name)
    except ImportError:
        return "not installed"
