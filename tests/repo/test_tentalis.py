"""The page that compares with Tentalis: each capability once, and what it names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tentalis.md"
CAPABILITIES = 58
OPEN = ("not yet", "left out")


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_capability_has_one_line() -> None:
    assert [int(row[0]) for row in rows()] == list(range(1, CAPABILITIES + 1))


def test_what_is_there_has_a_test_and_what_is_not_has_none() -> None:
    for number, capability, here, test in rows():
        assert bool(test) != here.startswith(OPEN), f"{number} {capability}"
        for target in re.findall(r"\]\(([^)]+\.py)\)", test):
            assert (PAGE.parent / target).is_file(), f"{number}: {target}"


def test_what_is_named_as_a_component_is_installed() -> None:
    known = "".join(
        page.read_text() for page in (ROOT / "docs" / "reference" / "components").glob("*.md")
    )
    for number, _, here, _ in rows():
        for name in re.findall(r"type: ([\w-]+)", here):
            assert f"`{name}`" in known, f"{number}: no component '{name}'"
