"""What the page of an episode shows beside its turns: scores of chunks, diffs, folded calls."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ale.runs import Registry, RunReader
from ale.testing.builders import turn
from ale.types import Message, Score, ScoredEpisode, StepScore, Stop, Trajectory, replace
from ale_look.inspect.transcript import transcript
from ale_look.view.single import write_report

from .conftest import Page, attempt, begin_run, credited
from .test_view_browser import HOSTILE, address

DIFF = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n same\n-was <b>\n+is <img src=x>\n"
EDIT = {"path": "x.py", "old_str": "a = 1\nb = 2", "new_str": "a = 3"}


def edited(**fields: Any) -> Any:
    """An episode with a diff that was printed, one that was given, an edit, and a listing."""
    calls = [
        ("shell", json.dumps({"command": "git diff"})),
        ("patch", json.dumps({"diff": DIFF})),
        ("edit", json.dumps(EDIT)),
        ("shell", json.dumps({"command": "ls -l"})),
    ]
    listing = "-rw-r--r-- 1 me me 3 x\n+ added"
    turns = turn(
        "I edit.", calls=calls, observations=[DIFF, "applied", "done", listing],
        errors=[None, None, "exit code 1", None], fresh_context=True,
        prompt=[Message(role="user", content="Go")],
    )  # fmt: skip
    trajectory = Trajectory(turns=(turns,), stop=Stop(reason="finished"))
    score = Score(criterion="same", passed=False, value=0.0, detail=f"not the same\n{DIFF}")
    return attempt(1, trajectory=trajectory, scores=(score,), **fields)


def write_scored(path: Path, *, reason: str) -> Path:
    """A run of one episode whose two chunks a scorer has judged."""
    store = begin_run(path)
    episode = attempt(0)
    store.add_episode(episode)
    row = credited(episode, 0.5, 1.0)
    with store.writing_credits(0) as keep:
        keep(row)
    judged = (StepScore(value=0.25, text=reason), StepScore(abstained="nothing to judge"))
    store.add_scores(
        ScoredEpisode(
            episode_id=episode.id,
            started_at=episode.started_at,
            scorer="claims",
            chunks=row.chunks,
            scores=judged,
        ),
        0,
    )
    store.close()
    return path


def test_an_episode_has_the_scores_of_its_chunks(client: TestClient, runs: Path) -> None:
    path = write_scored(runs / "scored", reason="It \x1b[31mlied.")
    judged = [["claims", [[0.25, "It ␛[31mlied."], [None, "nothing to judge"]]]]
    assert client.get("/api/run/scored/episode/0.json").json()["judged"] == judged
    assert client.get("/api/run/first/episode/0.json").json()["judged"] == []
    write_report(RunReader(path), path / "r.html", episodes=1, megabytes=1.0, registry=Registry())
    assert (
        json.dumps(judged, ensure_ascii=False, separators=(",", ":"))
        in (path / "r.html").read_text()
    )


def test_scores_stand_beside_the_credit_of_chunks(page: Page, served: str, runs: Path) -> None:
    long = f"{HOSTILE} {'because ' * 100}at the end"
    write_scored(runs / "scored", reason=long)
    page.open(address(served, "/run/scored/e/0/0-rename-0"))
    page.until("document.querySelectorAll('.judged').length === 2")
    said = page.value("[...document.querySelectorAll('.judged')].map((e) => e.innerText)")
    assert said[0].split()[:2] == ["0.25", "claims"]
    assert "at the end" in said[0]
    assert said[1].split() == ["abstains", "claims", "nothing", "to", "judge"]
    page.value("document.querySelector('.judged details').open = true")
    page.until("document.querySelector('.judged pre')")
    assert not page.value("window.owned")
    strip = "document.querySelectorAll('[aria-label=\"scores of claims\"] button')"
    bars = page.value(f"[...{strip}].map((e) => e.title)")
    assert bars == ["chunk 0: claims 0.2500", "chunk 1: claims -"]


def lines_of(page: Page, kind: str) -> list[str]:
    """The lines of one kind in all diffs."""
    spans = f"[...document.querySelectorAll('.diff .{kind}')].map((e) => e.textContent)"
    return [line for text in page.value(spans) for line in text.strip("\n").split("\n")]


def test_diffs_and_edits_are_shown_as_such(page: Page, served: str, runs: Path) -> None:
    store = begin_run(runs / "edits")
    store.add_episode(edited())
    store.close()
    page.open(address(served, "/run/edits/e/0/0-rename-1"))
    page.until("document.querySelectorAll('.diff').length === 4")
    printed = ["+is <img src=x>"]
    assert sorted(lines_of(page, "added")) == sorted([*printed * 3, "+a = 3"])
    assert sorted(lines_of(page, "removed")) == sorted([*["-was <b>"] * 3, "-a = 1", "-b = 2"])
    assert "+++ b/x" in lines_of(page, "place"), "a head is no line that was added"
    assert page.value("document.querySelectorAll('#app img, #app b b').length") == 0
    text = page.value("document.querySelector('.seen.diff').textContent")
    assert text == DIFF, "whole, and in its order"
    assert "-rw-r--r-- 1 me" in page.value("document.querySelectorAll('.seen')[3].textContent")
    assert page.value("document.querySelectorAll('.seen')[3].matches('.diff')") is False


def test_the_changes_of_an_episode_stand_together(page: Page, served: str, runs: Path) -> None:
    calls = [
        ("write_file", json.dumps({"path": HOSTILE, "content": "a\n<b>"})),
        ("edit", json.dumps(EDIT)),
        ("edit", json.dumps({**EDIT, "path": "failed.py"})),
        ("shell", json.dumps({"command": "git diff"})),
        ("shell", json.dumps({"command": "ls"})),
    ]
    errors = [None, None, "no such text", None, None]
    seen = ["written", "done", "", DIFF, "x.py"]
    made = turn("I edit.", calls=calls, observations=seen, errors=errors, fresh_context=True)
    trajectory = Trajectory(turns=(turn("I look."), made), stop=Stop(reason="finished"))
    store = begin_run(runs / "edits")
    store.add_episode(attempt(0, trajectory=trajectory))
    store.close()
    page.open(address(served, "/run/edits/e/0/0-rename-0"))
    page.until("document.querySelector('.changes summary')")
    assert page.value("document.querySelector('.changes summary').innerText").startswith(
        "3 changes"
    )
    page.value("document.querySelector('.changes').open = true")
    page.until("document.querySelectorAll('.changes .diff').length === 3")
    texts = page.value("[...document.querySelectorAll('.changes .diff')].map((e) => e.textContent)")
    assert texts == ["+a\n+<b>", "-a = 1\n-b = 2\n+a = 3", DIFF]
    heads = page.value("[...document.querySelectorAll('.changes p')].map((e) => e.innerText)")
    assert heads[1].split() == ["turn", "1", "edit", "x.py"]
    assert heads[2].split() == ["turn", "1", "shell", "printed"]
    assert not page.value("window.owned")
    page.value("document.querySelector('.changes button').click()")
    page.until("document.querySelector('#turn-1.current')")


def test_tool_calls_fold_by_a_key_and_the_address_says_so(
    page: Page, served: str, runs: Path
) -> None:
    store = begin_run(runs / "edits")
    store.add_episode(edited())
    store.close()
    page.open(address(served, "/run/edits/e/0/0-rename-1"))
    page.until("document.querySelectorAll('.call').length === 4")
    page.press("f")
    page.until("document.querySelectorAll('.call').length === 0")
    assert page.value("location.hash").endswith("?calls=folded")
    heads = page.value("[...document.querySelectorAll('.chunk summary')].map((e) => e.innerText)")
    assert heads[0] == "shell git diff"
    assert heads[2].endswith("failed")
    page.value("document.querySelectorAll('.chunk details')[0].open = true")
    page.until("document.querySelectorAll('.call').length === 1")
    page.press("f")
    page.until("document.querySelectorAll('.call').length === 4")


@pytest.mark.parametrize("text", ["--- a\nno diff", "- a list\n+ of points", "@@ -1 +1 @@"])
def test_what_only_looks_like_a_diff_stays_as_it_is(
    page: Page, served: str, runs: Path, text: str
) -> None:
    store = begin_run(runs / "plain")
    store.add_episode(attempt(0, seen=text))
    store.close()
    page.open(address(served, "/run/plain/e/0/0-rename-0"))
    page.until("document.querySelector('.seen')")
    assert page.value("document.querySelectorAll('.diff').length") == 0


LEDGER = {
    "rows": [
        {
            "host": f"{HOSTILE}.example",
            "port": 443,
            "address": "192.0.2.1",
            "outcome": "passed",
            "why": "",
            "connections": 2,
            "sent": 12,
            "received": 3456,
        },
        {
            "host": "evil.example",
            "port": 80,
            "address": "",
            "outcome": "refused",
            "why": HOSTILE,
            "connections": 1,
            "sent": 0,
            "received": 0,
        },
    ],
    "unrecorded": "",
}


def test_what_left_the_sandbox_is_shown_as_text(page: Page, served: str, runs: Path) -> None:
    store = begin_run(runs / "open")
    store.add_episode(attempt(0, metadata={"egress": LEDGER}))
    store.close()
    page.open(address(served, "/run/open/e/0/0-rename-0"))
    page.until("document.querySelector('.egress summary')")
    summary = "document.querySelector('.egress summary').textContent"
    assert "egress: 1 host passed, 1 host refused" in page.value(summary)
    page.value("document.querySelector('.egress').open = true")
    page.until("document.querySelectorAll('.egress tbody tr').length === 2")
    assert "3,456 B" in page.text()
    page.resize(390)
    assert page.value("document.documentElement.scrollWidth <= innerWidth")
    assert not page.value("window.owned || document.querySelectorAll('.egress img').length")


def test_a_sandbox_that_records_nothing_is_not_shown_as_silent(
    client: TestClient, runs: Path
) -> None:
    store = begin_run(runs / "local")
    store.add_episode(attempt(0, sandbox="local"))
    store.close()
    told = client.get("/api/run/local/episode/0.json").json()["egress"]
    assert told == {"rows": [], "said": "not recorded by local"}


def misfit(path: Path, kind: str) -> Path:
    """A run whose stored credit, scores or tokens are not those of its one episode."""
    tokens = Trajectory(turns=(turn("Go.", tokens=3), turn("On.")), stop=Stop(reason="finished"))
    episode = attempt(0, trajectory=tokens)
    row = credited(episode, 0.5, 1.0)
    first = replace(tokens.turns[0].completion.tokens, logprobs=(-0.1,), text_offsets=(0, 1, 2))
    other = credited(attempt(0, trajectory=replace(tokens, turns=tokens.turns * 2)), 1, 2, 3, 4)
    scores = (StepScore(value=0.25), StepScore(value=0.75))
    if kind == "credit":
        row = replace(row, credit=replace(row.credit, weights=(0.5,)))
    if kind == "foreign":
        row = other
    if kind == "tokens":
        with_tokens = replace(tokens.turns[0].completion, tokens=first)
        turns = (replace(tokens.turns[0], completion=with_tokens), tokens.turns[1])
        episode = attempt(0, trajectory=replace(tokens, turns=turns))
    store = begin_run(path)
    store.add_episode(episode)
    with store.writing_credits(0) as keep:
        keep(row)
    store.add_scores(
        ScoredEpisode(
            episode_id=episode.id,
            started_at=episode.started_at,
            scorer="claims",
            chunks=other.chunks[:1] if kind == "scores" else row.chunks,
            scores={"scores": scores, "foreign": scores * 2}.get(kind, scores),
        ),
        0,
    )
    store.close()
    return path


NOTED = {
    "credit": ["The stored credit is left out, since it does not fit: 1 weight for 2 chunks."],
    "foreign": [
        "The stored credit is left out, since it does not fit: chunk 2 is of turn 2, and there "
        "are 2.",
        "Stored scores of claims are left out: chunk 2 is of turn 2, and there are 2.",
    ],
    "scores": ["Stored scores of claims are left out: 2 scores for 1 chunk."],
    "tokens": [
        "The tokens of turn 0 are not told apart: there are 3 ids, and 1 of what is stored of each."
    ],
}


@pytest.mark.parametrize("kind", NOTED)
def test_what_does_not_fit_an_episode_is_left_out_and_said(
    client: TestClient, runs: Path, tmp_path: Path, kind: str
) -> None:
    path = misfit(runs / kind, kind)
    answer = client.get(f"/api/run/{kind}/episode/0.json")
    assert answer.status_code == 200, answer.text
    assert answer.json()["problems"] == NOTED[kind]
    assert client.get(f"/api/run/{kind}/tokens/0.json").status_code == 200
    run = RunReader(path)
    write_report(run, tmp_path / "report.html", episodes=9, megabytes=9)
    assert NOTED[kind][0] in (tmp_path / "report.html").read_text()
    (episode,), (row,) = run.episodes, run.credits()
    shown = transcript(episode, row, full=True, scored=run.scores_of(episode))
    assert [line for line in NOTED[kind] if f"  {line}\n" not in shown] == []


def test_an_episode_whose_credit_does_not_fit_is_shown_with_a_note(
    page: Page, served: str, runs: Path
) -> None:
    for kind, notes in NOTED.items():
        misfit(runs / kind, kind)
        page.open("about:blank")
        page.open(address(served, f"/run/{kind}/e/0/0-rename-0"))
        page.until("document.querySelectorAll('.turn').length === 2")
        page.reads(notes[0])
        for mode in ("probability", "ratio", "credit"):
            page.value(f"location.hash = '#/run/{kind}/e/0/0-rename-0?colour={mode}'")
            page.until(f"location.hash.includes('{mode}')")
