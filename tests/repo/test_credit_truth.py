"""The tables of docs/credit-truth.md are what the command makes of the data beside it."""

import re
from pathlib import Path

import pytest

from ale.runs import Registry, RunReader
from ale_look.inspect.against import against_values

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "credit-truth.md"
DATA = PAGE.with_suffix("")
LARGEST = 250_000


@pytest.mark.parametrize("name", ["find", "sort", "sort-3"])
def test_a_table_is_made_of_the_stored_counts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    block = rf"ale show credit docs/credit-truth/{name} (.*?)```\n\n```\n(.*?)\n```"
    shown = re.search(block, PAGE.read_text(), re.S)
    assert shown is not None
    schemes = re.findall(r"--scheme (\S+)", shown[1])
    made = "\n".join(against_values(RunReader(DATA / name), schemes, Registry.installed(), None))
    assert [line.rstrip() for line in made.split("\n")] == shown[2].split("\n")


def test_the_data_are_small() -> None:
    files = [path for path in DATA.rglob("*") if path.is_file()]
    assert len(files) == 10
    assert max(path.stat().st_size for path in files) < LARGEST
