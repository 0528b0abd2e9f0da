"""The commands that read stored runs work on runs of ale 0.1."""

import shutil
from pathlib import Path
from typing import Any

import pytest

STORED = Path(__file__).parents[1] / "core" / "data" / "run-0.1"


@pytest.fixture(params=["scripted", "starts"])
def stored(request: pytest.FixtureRequest, workshop: Any) -> Path:
    """A copy of a run of 0.1."""
    return Path(shutil.copytree(STORED / request.param, workshop.folder / "stored"))


@pytest.mark.parametrize("command", ["show", "report", "show results"])
def test_a_run_of_0_1_can_be_looked_at(workshop: Any, stored: Path, command: str) -> None:
    ended = workshop.ale(*command.split(), str(stored))
    assert (ended.code, ended.err) == (0, "")
    assert "basics-ls" in (ended.out + _page(stored))


def _page(stored: Path) -> str:
    page = stored / "report.html"
    return page.read_text() if page.exists() else ""


def test_a_run_of_0_1_is_credited_with_two_schemes(workshop: Any, stored: Path) -> None:
    ended = workshop.succeeds("show", "credit", str(stored), "--scheme", "ipa", "--scheme", "grpo")
    assert "0-basics-ls-0: reward" in ended.out


def test_the_credits_of_0_1_are_computed_again_to_the_digit(workshop: Any, stored: Path) -> None:
    """With the chunker and the scheme of the stored config."""
    ended = workshop.succeeds("show", "credit", str(stored), "--scheme", "ipa:gamma=0.95")
    for row in workshop.lines("credits/00000.jsonl", run=stored):
        for weight in row["credit"]["weights"]:
            assert f"{weight:+.4f}" in ended.out
