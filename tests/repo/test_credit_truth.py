"""The table of docs/credit-truth.md is what the command makes of the data beside it."""

import re
from pathlib import Path

import pytest

from ale.runs import Registry, RunReader
from ale_look.inspect.against import against_values

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "credit-truth.md"
DATA = ROOT / "docs" / "credit-truth" / "find"


def made(text: str) -> list[str]:
    schemes = re.findall(r"--scheme (\S+)", text)
    return "\n".join(against_values(RunReader(DATA), schemes, Registry.installed(), None)).split(
        "\n"
    )


def test_the_table_is_made_of_the_stored_counts() -> None:
    text = PAGE.read_text()
    shown = re.search(r"```\n(64 episodes.*?)```", text, re.S)
    assert shown is not None
    assert [line.rstrip() for line in made(text)] == shown[1].rstrip("\n").split("\n")


@pytest.mark.parametrize("name", ["episodes.jsonl", "manifest.json", "values.jsonl"])
def test_the_data_are_small(name: str) -> None:
    assert (DATA / name).stat().st_size < 200_000
