"""Search by regular expressions: what is found, what is refused, and that none holds the server."""

from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

from ale_look.store import patterns
from ale_look.store.patterns import split_pattern
from ale_look.view import searching

from .conftest import Page, attempt, write_run
from .test_view_api import got
from .test_view_browser import address


@pytest.mark.parametrize(
    ("text", "words", "pattern"),
    [
        ("no such file", "no such file", None),
        (r"/port \d+/", "", r"port \d+"),
        (r"refused /port \d+/ again", "refused again", r"port \d+"),
        ("/usr/bin/ls", "/usr/bin/ls", None),
        ("a/b/ c", "a/b/ c", None),
        ("/", "/", None),
        ("//", "//", None),
    ],
)
def test_a_pattern_stands_between_slashes(text: str, words: str, pattern: str | None) -> None:
    assert split_pattern(text) == (words, pattern)


def found(client: TestClient, q: str) -> list[str]:
    """The ids that a search finds, in order."""
    rows = got(client, f"search.json?order=oldest&q={q}")["rows"]
    return [row["episode_id"] for row in rows]


def test_a_pattern_finds_what_words_do_not(client: TestClient, runs: Path) -> None:
    write_run(runs / "second", attempt(0, id="early", seen="Port 8443 refused\nCafé ok"))
    write_run(runs / "third", attempt(0, id="late", seen="port eight refused"))
    assert found(client, r"/[Pp]ort [0-9]%2B/") == ["early"]
    assert found(client, r"/(?i)PORT (\d%2B|eight) r/") == ["early", "late"]
    assert found(client, r"/(?m)^Caf. ok$/") == ["early"]
    assert found(client, r"refused /8443/") == ["early"]
    assert found(client, r"nowhere /8443/") == []
    assert found(client, r"/no such thing/") == []
    (row,) = got(client, "search.json?q=/8[0-9]%2B|Caf./")["rows"]
    (excerpt,) = row["excerpts"]
    assert [piece for hit, piece in excerpt["parts"] if hit] == ["8443", "Café"]
    assert "".join(piece for _, piece in excerpt["parts"]).endswith("Café ok")


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing )"),
        ("a(?=b)", "RE2"),
        ("[z-a]", "[z-a]"),
        ("(a{1000}){1000}", "repetition"),
        (r"\pL{1000}", "too large"),
        ("a" * 501, "at most 500"),
    ],
)
def test_a_wrong_pattern_is_refused_with_the_reason(
    client: TestClient, pattern: str, why: str
) -> None:
    answer = client.get("/api/search.json", params={"q": f"/{pattern}/"})
    assert answer.status_code == 400
    assert why in answer.json()["error"]


@pytest.mark.parametrize("pattern", ["(a%2B)%2B$", "(a|aa)%2B$", "(.*a){20}b"])
def test_a_pattern_that_makes_others_backtrack_for_ever_ends(
    client: TestClient, runs: Path, pattern: str
) -> None:
    write_run(runs / "second", attempt(0, seen=f"{'a' * 30_000}!"))
    assert "second" not in found(client, f"/{pattern}/")


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which each match of a turn takes a second."""
    ticks = count()
    monkeypatch.setattr(patterns, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    monkeypatch.setattr(searching, "PATIENCE_S", 7.5)


def test_what_was_found_in_time_is_shown_and_said_to_be_a_part(
    client: TestClient, runs: Path, slow: None
) -> None:
    write_run(runs / "many", *(attempt(0, id=f"e{n}", said=f"Number {n}.") for n in range(20)))
    answer = got(client, "search.json?q=/Number|look/&order=oldest")
    assert answer["partly"] is True
    assert 1 < len(answer["rows"]) < 20
    assert got(client, "search.json?q=look")["partly"] is False


def test_patterns_are_entered_in_the_page(page: Page, served: str) -> None:
    page.open(address(served, "/search?q=%2Fdone%2C%20attempt%20%5B12%5D%2F"))
    page.until("document.querySelectorAll('.hit').length === 2")
    marks = page.value("[...document.querySelectorAll('mark')].map((each) => each.innerText)")
    assert sorted(marks) == ["done, attempt 1", "done, attempt 2"]
    page.open("about:blank")
    page.open(address(served, "/search?q=%2F(%2F"))
    page.until("document.querySelector('[role=alert]')")
    assert "missing )" in page.text()
    page.errors = [each for each in page.errors if "400" not in each]
