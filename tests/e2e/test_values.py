"""`ale data values`: values of known states, measured in real sandboxes, and taken up again."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

ROLLOUTS = 4
POLICY = """
import json

from ale.plugin import Component, hookimpl
from ale.testing.fakes import FakePolicy
from ale.types import Message, ToolCall

WIN, LOSE = ("touch one", "touch two", "true"), ("touch one", "rm one", "true")


def say(request):
    commands, k = (WIN, LOSE)[request.conversation.rollout % 2], request.turn
    name, given = ("shell", {"command": commands[k]}) if k < 3 else ("finish", {"summary": "Done."})
    call = ToolCall(id=f"call_{k}_0", name=name, arguments=json.dumps(given))
    return Message(role="assistant", tool_calls=(call,))


@hookimpl
def ale_llms():
    return [Component("pair", None, lambda o, c: FakePolicy(say), summary="Two kinds of rollouts.")]
"""
# Even rollouts play WIN and odd ones LOSE, from whichever turn they begin at.
EXPECTED = {
    "0-pair-0": ([2, 2, 4, 4, 1], [4, 4, 4, 4, 1]),
    "0-pair-1": ([2, 2, 0, 0, 0], [4, 4, 4, 4, 1]),
}


@pytest.fixture
def stored(workshop: Any) -> Path:
    """A run of two episodes that begin alike: one succeeds, the other undoes what it did."""
    workshop.task("pair", "test -e one && test -e two")
    workshop.write("pair.py", POLICY)
    config = workshop.config(
        plugins=["pair.py"],
        llm={"type": "pair"},
        chunker={"type": "interaction"},
        credit={"type": "reinforce"},
        run={"rollouts": 2, "concurrency": 2},
    )
    workshop.succeeds("run", str(config))
    return workshop.run


def counts(run: Path) -> dict[str, tuple[list[int], list[int]]]:
    lines = [json.loads(line) for line in (run / "values.jsonl").read_text().splitlines()[1:]]
    return {line["episode_id"]: (line["successes"], line["trials"]) for line in lines}


def begun(run: Path) -> int:
    """Rollouts that have ended."""
    file = run / "value_rollouts" / "episodes.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def test_values_are_those_of_the_policy_in_each_state(workshop: Any, stored: Path) -> None:
    done = workshop.succeeds("data", "values", str(stored), "--rollouts", str(ROLLOUTS))
    assert "2 episodes, 8 states, 26 rollouts" in done.text
    assert "graded otherwise" not in done.text
    assert counts(stored) == EXPECTED
    shown = workshop.succeeds(
        "show", "credit", str(stored), "--against", "values", "--scheme", "reinforce"
    )
    assert "2 episodes of 1 task, 8 chunks; 4 rollouts from each state" in shown.text
    forks = workshop.succeeds("show", "forks", str(stored / "value_rollouts"))
    assert "pair" in forks.text
    workshop.succeeds("report", str(stored))
    assert '"values":[0.5,0.5,1.0,1.0,1.0]' in (stored / "report.html").read_text()


@pytest.mark.own_process
def test_a_killed_valuation_is_continued_without_repeating_a_rollout(
    workshop: Any, stored: Path
) -> None:
    command = ("data", "values", str(stored), "--rollouts", str(ROLLOUTS), "-n", "1")
    running = workshop.start(*command)
    workshop.wait_for(lambda: begun(stored) >= 3, 120.0)
    os.killpg(running.process.pid, signal.SIGKILL)
    running.process.wait()
    kept = begun(stored)
    assert counts(stored) == {}, "nothing is said before all is measured"
    early = workshop.ale("show", "credit", str(stored), "--against", "values")
    assert early.code == 2
    assert "not all measured" in early.text
    assert 3 <= kept < 26
    before = {id: e["started_at"] for id, e in workshop.episodes(stored / "value_rollouts").items()}
    workshop.succeeds(*command)
    assert counts(stored) == EXPECTED
    after = workshop.episodes(stored / "value_rollouts")
    assert len(after) == 26
    assert all(after[id]["started_at"] == at for id, at in before.items())
    other = workshop.ale("data", "values", str(stored), "--rollouts", "6")
    assert other.code == 2
    assert "the rollouts of another valuation: rollouts differ" in other.text


def test_values_of_a_critic_are_no_obstacle(workshop: Any, stored: Path) -> None:
    """A trainer with a critic writes its own values into the run's folder `values`."""
    (stored / "values").mkdir()
    (stored / "values" / "00000.jsonl").write_text("")
    workshop.succeeds("data", "values", str(stored), "--rollouts", "2")
    assert set(counts(stored)) == set(EXPECTED)
