"""The frame of a page: it loads nothing, and runs its own script alone."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ale_figures.charts import Chart, Series, render

TEMPLATE = """\
{% extends "page.html" %}
{% from "charts.html" import figure, interval %}
{% block title %}{{ title }}{% endblock %}
{% block body %}{{ figure(chart) }}{{ interval(50, 40, 60, zero=10) }}{% endblock %}
"""
Make = Callable[..., str]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Renders a page of a package that has one template."""
    package = tmp_path / "charts_demo"
    (package / "templates").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "templates" / "demo.html").write_text(TEMPLATE)
    monkeypatch.syspath_prepend(tmp_path)

    def page(title: str = "t", script: str = "", style: str = "") -> str:
        series = Series(name=title, xs=(0, 1), ys=(0.0, 1.0), low=(0.0, 0.5), high=(0.5, 1.0))
        chart = Chart(title=title, series=(series,), note=title)
        pieces = render(
            "charts_demo", "demo.html", title=title, chart=chart, script=script, style=style
        )
        return "".join(pieces)

    yield page
    sys.modules.pop("charts_demo", None)


def test_the_only_script_that_may_run_is_the_pages_own(make: Make) -> None:
    page = make(script="all('p');")
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "default-src 'none'" in page
    assert script.endswith("all('p');")


def test_nothing_is_loaded_in_light_or_dark(make: Make) -> None:
    page = make()
    assert {*re.findall(r"https?://[^ ]+", page)} == {"https://github.com/leeoniya/uPlot"}
    assert not re.search(r"@import|url\(|src=", page)
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport" content="width=device-width' in page


def test_rules_of_a_page_come_after_the_shared_ones(make: Make) -> None:
    page = make(style=".plot { height: 1rem; }")
    assert page.index(".plot { --plot-height") < page.index(".plot { height: 1rem; }")


def test_text_is_never_markup(make: Make) -> None:
    bad = "<script>'\"&</script>"
    page = make(title=bad)
    assert page.count("<script") == 1

    class Attributes(HTMLParser):
        data = ""

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.data = dict(attrs).get("data-chart") or self.data

    parser = Attributes()
    parser.feed(page)
    assert json.loads(parser.data)["series"][0]["name"] == bad


def test_a_page_has_the_numbers_for_browsers_without_scripts(make: Make) -> None:
    (fallback,) = re.findall(r"<noscript><div.*?</noscript>", make(title="loss"), re.S)
    assert re.findall(r"<td>([^<]*)</td>", fallback) == ["0", "0 (0 to 0.5)", "1", "1 (0.5 to 1)"]


def test_a_row_without_a_value_comes_last_in_both_directions(tmp_path: Path, make: Make) -> None:
    """A real browser clicks on the column's head twice."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs chromium")
    values = {"none": "", "low": "-2.5", "high": "0.5", "middle": "-1"}
    rows = "".join(f'<tr><td data-value="{v}">{name}</td></tr>' for name, v in values.items())
    head = "<thead><tr><th>reward</th></tr></thead>"
    table = f'<table class="sortable">{head}<tbody>{rows}</tbody></table>'
    clicks = """
      for (const way of ["up", "down"]) {
        document.querySelector(".sortable button").click();
        document.body.dataset[way] = all(".sortable td").map((cell) => cell.textContent).join(" ");
      }"""
    page = tmp_path / "page.html"
    page.write_text(make(script=clicks).replace("<body>", f"<body>{table}"))
    fresh = [f"--user-data-dir={tmp_path / 'profile'}", "--disable-gpu", "--no-sandbox"]
    command = [browser, "--headless", *fresh, "--dump-dom", page.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert 'data-up="low middle high none"' in shown
    assert 'data-down="high middle low none"' in shown


def test_the_licence_of_the_chart_library_is_shipped_with_it() -> None:
    from importlib.resources import files

    licence = (files("ale_figures.charts") / "static" / "uplot" / "LICENSE").read_text()
    assert licence.startswith("The MIT License")


def test_listing_the_plugins_does_not_import_jinja() -> None:
    code = (
        "import sys\nfrom ale._registry import KINDS, Registry\nregistry = Registry.installed()\n"
        "[registry.registrations(kind) for kind in KINDS]\n"
        "print([name for name in ('jinja2', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
