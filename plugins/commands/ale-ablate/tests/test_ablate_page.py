"""`report.html` of a grid: contents, no loaded resources, and escaped text."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ale_ablate.comparing import Comparison
from ale_ablate.page import page
from ale_figures.charts.testing import ReadPage

Make = Callable[..., Comparison]
HOSTILE = "a=<script>alert(1)</script>&\"'><img src=x onerror=alert(1)>"


def read(comparison: Comparison) -> ReadPage:
    return ReadPage("".join(page(comparison)))


@pytest.fixture
def two(compared: Make) -> Comparison:
    """Two cells of three seeds; one run is missing."""
    ipa = [[0.1, 0.5, 0.8], [0.1, 0.6, 0.9], [0.2, 0.7, 0.9]]
    return compared({"credit.type=ipa": ipa, HOSTILE: [[0.1, 0.2, 0.5], [0.1, 0.3, 0.6]]}, every=5)


def test_a_page_shows_progress_and_results(two: Comparison) -> None:
    text = read(two).text
    for expected in (
        "study 5 of 6 runs completed · 2 cells × 3 seeds",
        "86.7%",  # (0.8 + 0.9 + 0.9) / 3
        "Differences to credit.type=ipa",
        "-30.0",  # of both pairs: then there is no spread
        "success on held-out tasks in the last evaluation",
        "20260101-000000-0000-run",
        "missing",
        "config study.yaml",
        "ale-core 0.1.0",
    ):
        assert expected in text, expected


def test_a_page_links_every_run_and_its_report_where_it_has_one(two: Comparison) -> None:
    first = two.runs[0].path
    assert first is not None
    first.mkdir(parents=True)
    (first / "report.html").touch()
    links = [attrs["href"] or "" for tag, attrs in read(two).tags if tag == "a"]
    runs = [link for link in links if link.endswith("-run/")]
    assert runs[0] == "cells/01-credit.type-ipa/seed-0/20260101-000000-0000-run/"
    assert len(runs) == 5
    assert [link for link in links if link.endswith("report.html")] == [f"{runs[0]}report.html"]
    assert links[0] == "#runs"
    assert all(not re.match(r"[a-z]+:|/", link) for link in links)


def test_values_are_escaped(two: Comparison) -> None:
    made = read(two)
    tags = [tag for tag, _ in made.tags]
    assert tags.count("script") == 1
    assert "img" not in tags
    assert made.text.count(HOSTILE) >= 3
    assert not [name for _, attrs in made.tags for name in attrs if name.startswith("on")]


def test_a_page_loads_nothing_and_can_be_read_with_the_keyboard(two: Comparison) -> None:
    text = "".join(page(two))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    assert policy[1].startswith(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-"
    )
    assert {*re.findall(r"https?://[^ ]+", text)} == {"https://github.com/leeoniya/uPlot"}
    assert not re.search(r"@import|url\(", text)
    plots = [attrs for _, attrs in read(two).tags if attrs.get("class") == "plot"]
    assert [plot["tabindex"] for plot in plots] == ["0", "0"]
    assert "credit.type=ipa: 13.3% at step 0, 86.7% at step 10" in (plots[0]["aria-label"] or "")
    scrolled = [a for _, a in read(two).tags if (a.get("class") or "") == "scroll all"]
    assert scrolled
    assert all(each["tabindex"] == "0" for each in scrolled)


def test_a_grid_without_completed_runs_has_a_page(compared: Make) -> None:
    text = read(compared({"a=1": [], "a=2": [[0.5]]})).text
    assert "1 of 2 runs completed" in text
    none = read(compared({"a=1": [[0.5]]}, held_out=False)).text
    assert "Differences" not in none
    assert "Over training" not in none


def test_a_folder_with_special_characters_is_linked(compared: Make, tmp_path: Path) -> None:
    links = [a["href"] for tag, a in read(compared({"ä ?#=1": [[0.5]]})).tags if tag == "a"]
    assert "cells/01-1/config.yaml" in links
