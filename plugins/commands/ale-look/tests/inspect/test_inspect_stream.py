"""A run whose steps learn from what is complete: every command means the step that learned."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from ale.runs import RunReader
from ale.testing.builders import episode, turn
from ale.types import Episode, replace
from ale_look.inspect.report.gathering import gather

Ale = Callable[..., Result]
CONFIG = {
    "chunker": {"type": "ale-parts/turns"},
    "credit": {"type": "ale-parts/scaled", "scale": 1.0},
    "run": {"schedule": "stream"},
}
GROUPS: list[dict[str, Any]] = [
    {"event": "started", "step": 0, "groups": [[0, "slow", ""], [0, "a", ""], [1, "a", ""]]},
    {"event": "trained", "step": 0, "groups": [[0, "a", ""]]},
    {"event": "trained", "step": 1, "groups": [[0, "slow", ""]]},
    {"event": "dropped", "step": 1, "groups": [[1, "a", ""]]},
]


def drawn(task: str, step: int, reward: float) -> Episode:
    made = episode(reward, turn("so"), task_id=task, episode_id=f"{step}-{task}-0")
    return replace(made, step=step)


@pytest.fixture
def run(write: Callable[..., Path], tmp_path: Path) -> Path:
    episodes = [drawn("slow", 0, 1.0), drawn("a", 0, 0.0), drawn("a", 1, 0.5)]
    path = write(tmp_path / "run", episodes, manifest={"config": CONFIG}, credited=False)
    lines = [json.dumps({"schema": 1, **event}) + "\n" for event in GROUPS]
    (path / "groups.jsonl").write_text("".join(lines))
    return path


def test_an_episode_is_credited_in_the_step_that_learned_from_it(run: Path, ale: Ale) -> None:
    shown = ale("show", "credit", str(run), "--scheme", "scaled", "--episode", "0-slow-0").output
    assert "0-slow-0: reward 1.000" in shown


def test_a_dropped_episode_has_no_group_to_be_credited_in(run: Path, ale: Ale) -> None:
    shown = ale("show", "credit", str(run), "--scheme", "scaled", "--episode", "1-a-0").output
    assert "1-a-0 is in no step: its group waits, or was dropped" in shown


def test_a_report_shows_rewards_by_the_step_that_learned(run: Path) -> None:
    facts = gather(RunReader(run))
    assert {head.id: head.step for head in facts.heads} == {"0-slow-0": 1, "0-a-0": 0, "1-a-0": 1}
