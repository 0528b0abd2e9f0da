"""Runs whose steps are scored: a judge with faults at loopback, the audit, and scoring again."""

import json
from pathlib import Path
from typing import Any

import pytest

from ale.testing.openai_server import openai_server

SCORE = {"text": '{"reason": "It helps.", "score": 8}'}
MODEL: dict[str, Any] = {
    "type": "openai",
    "model": "judge",
    "max_retries": 0,
    "timeout_s": 5,
    "tools": False,
}


def judged(workshop: Any, url: str, *, votes: int = 2, abstained: str = "chunk") -> None:
    """A run of two episodes of two turns, and a judge at this URL."""
    workshop.task("touch")
    call = {"name": "shell", "arguments": {"command": "touch done"}}
    turns = [{"text": "I do it.", "calls": [call]}, {"text": "Done."}]
    script = {"model": "scripted", "tasks": {"touch": [turns]}}
    workshop.scripted(
        script,
        scorers=[{"type": "judge", "llm": {**MODEL, "base_url": url}, "votes": votes}],
        chunker={"type": "message"},
        credit={"type": "step-scores", "scorer": "judge", "abstained": abstained},
        observers=[{"type": "audit"}],
        run={"rollouts": 2, "directory": "runs", "concurrency": 1},
    )


def run_of(workshop: Any) -> Path:
    (manifest,) = workshop.folder.glob("runs/*/manifest.json")
    return Path(manifest.parent)


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def scores(workshop: Any) -> list[dict[str, Any]]:
    found = lines(run_of(workshop) / "step_scores" / "00000.jsonl")
    return [score for row in found for score in row["scores"]]


def test_a_judge_scores_a_run_and_the_audit_of_its_episodes_holds(workshop: Any) -> None:
    with openai_server({"*": SCORE}) as server:
        judged(workshop, server.url)
        workshop.succeeds("run", "run.yaml")
        asked = [each for each in server.requests() if each["path"].endswith("/completions")]
    assert [score["value"] for score in scores(workshop)] == [0.8] * 4
    assert len(asked) == 1 + 8, "once before the run"
    run = str(run_of(workshop))
    workshop.succeeds("audit", "verify", run)
    shown = workshop.succeeds("show", run, "0-touch-0").out
    assert "score  judge  0.80  median of 2 votes. It helps." in shown
    rows = lines(run_of(workshop) / "credits" / "00000.jsonl")
    # R is 1; the second chunk has a potential of 0.8 behind it.
    assert [row["credit"]["weights"] for row in rows] == [pytest.approx([1.0, 0.2])] * 2


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"fault": 500}, "500"),
        ({"fault": "invalid_json"}, ""),
        ({"fault": "drop"}, ""),
        ({"fault": "silence"}, ""),
        ({"text": "I like it."}, "an answer has no score"),
        ({"text": '{"score": 11}'}, "not from 0 to 10"),
        ({"text": ""}, "an answer has no score"),
    ],
    ids=str,
)
@pytest.mark.parametrize("rule", ["chunk", "skip"])
def test_a_judge_that_fails_is_an_abstention_with_a_reason_and_never_a_value(
    workshop: Any, fault: dict[str, Any], reason: str, rule: str
) -> None:
    with openai_server({"*": fault}) as server:
        judged(workshop, server.url, abstained=rule)
        workshop.succeeds("run", "run.yaml", "--no-checks")
    assert {score["value"] for score in scores(workshop)} == {None}
    assert all(score["abstained"] and reason in score["abstained"] for score in scores(workshop))
    rows = lines(run_of(workshop) / "credits" / "00000.jsonl")
    assert all(not any(row["credit"]["weights"]) for row in rows)
    if rule == "skip":
        assert "judge" in rows[0]["credit"]["skipped"]


def test_half_of_the_votes_fail_and_the_rest_count(workshop: Any) -> None:
    """The server answers every second request with an error, whichever votes these are."""
    with openai_server([{"fault": 500}, SCORE] * 8) as server:
        judged(workshop, server.url, votes=4)
        workshop.succeeds("run", "run.yaml")
    assert [score["value"] for score in scores(workshop)] == [0.8] * 4
    assert all("2 of 4 votes failed" in score["text"] for score in scores(workshop))


def test_a_judge_that_is_not_there_can_be_asked_later(workshop: Any) -> None:
    judged(workshop, "http://127.0.0.1:9/v1")
    workshop.succeeds("run", "run.yaml", "--no-checks")
    assert {score["value"] for score in scores(workshop)} == {None}
    run = str(run_of(workshop))
    before = (run_of(workshop) / "episodes.jsonl").read_bytes()
    with openai_server({"*": SCORE}) as server:
        scorer = f"judge:llm={json.dumps({**MODEL, 'base_url': server.url})}"
        done = workshop.succeeds("regrade", run, "--scorer", scorer)
    assert "scored        judge: 4 of 4 chunks, mean 0.800" in done.out
    assert (run_of(workshop) / "episodes.jsonl").read_bytes() == before
    credit = "step-scores:scorer=judge"
    shown = workshop.succeeds("show", "credit", run, "--scheme", credit).out
    assert "+0.2000" in shown


def test_rules_alone_are_run_without_grading(workshop: Any) -> None:
    judged(workshop, "http://127.0.0.1:9/v1")
    workshop.succeeds(
        "run", "run.yaml", "--set", "scorers=[{type: rules}]", "--set", "credit.scorer=rules"
    )
    run = str(run_of(workshop))
    done = workshop.succeeds("regrade", run, "--scorer", "rules:max_chars=4")
    assert "graded again" not in done.out
    assert "scored        rules: 4 of 4 chunks" in done.out
    assert not (run_of(workshop) / "regraded").exists()


def test_a_run_is_resumed_whose_scorer_has_an_optional_component(workshop: Any) -> None:
    """The stored config has the option with null."""
    workshop.task("touch")
    workshop.scripted({"default": [{"text": "Done."}]}, scorers=[{"type": "claims"}])
    workshop.succeeds("run", "run.yaml")
    workshop.succeeds("run", "--resume", str(run_of(workshop)))


def test_a_judge_that_is_not_there_is_found_before_the_run(workshop: Any) -> None:
    judged(workshop, "http://127.0.0.1:9/v1")
    done = workshop.ale("run", "run.yaml")
    assert done.code == 2
    assert "scorers[0]: " in done.text
    assert "http://127.0.0.1:9/v1" in done.text
    assert not [*workshop.folder.glob("runs/*/episodes.jsonl")]


def test_a_step_has_the_share_of_chunks_without_a_score(workshop: Any) -> None:
    judged(workshop, "http://127.0.0.1:9/v1")
    scorers = "scorers=[{type: rules}, {type: claims}]"
    trainer = "trainer={type: export, path: out.jsonl}"
    credit = "credit={type: step-scores, scorer: claims}"
    chosen = [f"--set={each}" for each in (scorers, credit, trainer)]
    workshop.succeeds("run", "run.yaml", *chosen, "--set", "run.alert_if=[abstained_claims > 0.9]")
    events = lines(run_of(workshop) / "events.jsonl")
    (step,) = (each for each in events if each["event"] == "step_finished")
    assert step["metrics"]["abstained_rules"] == 0
    # Only the last of two chunks could have a claim, and it has none.
    assert step["metrics"]["abstained_claims"] == 1


@pytest.mark.parametrize(("scorer", "hint"), [("rulez", "did you mean 'rules'"), ("x", "regrade")])
def test_credit_from_scores_that_a_run_does_not_have_is_refused(
    workshop: Any, scorer: str, hint: str
) -> None:
    of_rules(workshop)
    scheme = f"step-scores:scorer={scorer}"
    done = workshop.ale("show", "credit", str(run_of(workshop)), "--scheme", scheme)
    assert done.code == 2
    assert f"reads the scores of '{scorer}', and the run has none of it" in done.text
    assert hint in done.text


def of_rules(workshop: Any) -> None:
    """A run with scores of `rules` and of `combined`, which reads them, and `claims`, which not."""
    judged(workshop, "http://127.0.0.1:9/v1")
    scorers = "[{type: rules}, {type: claims}, {type: combined, weights: {rules: 1}}]"
    workshop.succeeds(
        "run", "run.yaml", "--set", f"scorers={scorers}", "--set", "credit.scorer=combined"
    )


def test_what_reads_scores_that_are_made_anew_is_scored_anew(workshop: Any) -> None:
    of_rules(workshop)
    run = run_of(workshop)
    done = workshop.succeeds("regrade", str(run), "--scorer", "rules:max_chars=4")
    assert "scored        rules: 4 of 4 chunks" in done.out
    assert "scored        combined: 4 of 4 chunks" in done.out
    assert "claims" not in done.out
    (new,) = (run / "step_scores").glob("regraded-*.jsonl")
    by_scorer: dict[str, list[Any]] = {}
    for row in lines(new):
        by_scorer.setdefault(row["scorer"], []).append([each["value"] for each in row["scores"]])
    assert by_scorer["combined"] == by_scorer["rules"]
    assert by_scorer["rules"] != [[1.0, 1.0]] * 2


def test_scoring_again_goes_on_where_it_was_stopped(workshop: Any) -> None:
    of_rules(workshop)
    run = run_of(workshop)
    again = ("regrade", str(run), "--scorer", "rules:max_chars=4")
    workshop.succeeds(*again)
    (new,) = (run / "step_scores").glob("regraded-*.jsonl")
    whole = new.read_text()
    first = whole.splitlines(keepends=True)[0]
    new.write_text(first + '{"half')  # as a kill leaves it
    done = workshop.succeeds(*again)
    assert "scored        rules: 4 of 4 chunks" in done.out
    assert [*(run / "step_scores").glob("regraded-*.jsonl")] == [new]
    assert new.read_text().startswith(first)
    assert sorted(new.read_text().splitlines()) == sorted(whole.splitlines())
    workshop.succeeds(*again)
    assert len([*(run / "step_scores").glob("regraded-*.jsonl")]) == 2, "a whole one is done anew"
    other = workshop.succeeds("regrade", str(run), "--scorer", "rules:max_chars=5")
    assert "scored        rules: 4 of 4 chunks" in other.out


def test_the_summary_says_that_a_judge_abstained(workshop: Any) -> None:
    judged(workshop, "http://127.0.0.1:9/v1")
    ended = workshop.ale("run", "run.yaml", "--no-checks")
    assert "  scored       judge: 0 of 4 chunks, no value\n    4 abstained: " in ended.out
