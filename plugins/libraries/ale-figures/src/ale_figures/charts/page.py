"""Pages that need no network, no server and no other file, made by Jinja templates."""

import base64
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from ale_figures.charts.rendering import (
    chart_data,
    chart_label,
    chart_table,
    chart_title,
    is_logarithmic,
    number,
    sparkline,
)

_FILTERS = (
    *(chart_data, chart_label, chart_table, chart_title),
    *(is_logarithmic, number, sparkline),
)


def render(
    package: str, template: str, *, style: str = "", script: str = "", **context: Any
) -> Iterator[str]:
    """A page, piece by piece.

    Args:
        package: import package with a folder ``templates``.
        template: file in it; it extends ``page.html``.
        style: CSS rules after the shared ones.
        script: statements after the shared ones; they can use `make` and `all`.
        context: values for the template. Text is escaped.
    """
    script = "\n".join([static("uplot/uPlot.iife.min.js"), static("charts.js"), script])
    style = "\n".join([static("uplot/uPlot.min.css"), static("charts.css"), style])
    # Nothing is loaded, and no script runs but this one: not even one that a model wrote.
    loaded = f"style-src 'unsafe-inline'; script-src '{_hash(script)}'; img-src data:"
    page = {"style": style, "script": script, "policy": f"default-src 'none'; {loaded}"}
    return _environment(package).get_template(template).generate(page=page, **context)


def static(name: str) -> str:
    """A file of this library's static files."""
    return (files("ale_figures.charts") / "static" / name).read_text(encoding="utf-8")


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("ale_figures.charts")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({each.__name__: each for each in _FILTERS})
    return environment


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
