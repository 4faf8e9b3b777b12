"""Sphinx: `make docs` builds the site, and warnings are errors."""

import re

from zerovar import __version__

project = html_title = "zerovar"
author = copyright = "The zerovar authors"
version = release = __version__

# formulas without a network too
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx-mathjax-offline"]
exclude_patterns = ["_build", "data"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
highlight_language = "none"
# outputs are stored: `make pictures` writes them, a test runs the notebook
nb_execution_mode = "off"

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say shapes, which types do not

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072b2", "color-brand-content": "#0072b2"},
    "dark_css_variables": {"color-brand-primary": "#6fb7f0", "color-brand-content": "#6fb7f0"},
}


def _as_rst(app, what, name, obj, options, lines):
    """Docstrings are plain paragraphs with `names` in single backquotes, and a line for each
    argument."""
    parts = "\n".join(lines).replace("``", "`").split("`")
    for k in range(0, len(parts), 2):  # what is not quoted must not be taken for markup
        parts[k] = re.sub(r"([*|]|_(?!\w)|_(?=_))", r"\\\1", parts[k])
    text = "``".join(parts)
    out, term = [], None
    for line in text.split("\n"):
        head, colon, rest = line.partition(": ")
        names = head.split(", ")
        if (
            colon
            and all(part.isidentifier() for part in names)
            and len(names) <= 4
            and not line.startswith(" ")
        ):
            out += ["", f"*{head}*", f"   {rest}"]
            term = True
        elif term and line.startswith("    "):
            out.append(f"   {line.strip()}")
        else:
            if term and line.strip():
                out.append("")
            term = None
            out.append(line)
    lines[:] = out


def setup(app):
    app.connect("autodoc-process-docstring", _as_rst)
