"""`kill -9` at random moments, again and again: `--resume` does exactly what is missing."""

import json
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

N_TASKS, N_ROLLOUTS = 25, 8
N = N_TASKS * N_ROLLOUTS
STRAYS = (
    "sleep 3000 &",
    "setsid sh -c 'sleep 3000 & sleep 3000' > /dev/null 2>&1 &",
    "env -i sh -c 'cd /; sleep 3000' &",
)


@pytest.fixture
def config(workshop: Any, shell: Any) -> str:
    """200 episodes, each of which leaves processes behind."""
    for number in range(N_TASKS):
        workshop.task(f"t{number:02}")
    lines = shell(*STRAYS, "echo $$; touch done")
    scripted = {"default": lines}
    workshop.scripted(scripted, run={"rollouts": N_ROLLOUTS, "concurrency": 8})
    return "run.yaml"


@pytest.fixture
def other_sleeps() -> Iterator[None]:
    """Asserts that no `sleep 3000` outlives the test, wherever it went to hide."""
    before = sleeps()
    yield
    assert sleeps() <= before


def sleeps() -> set[str]:
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes() == b"sleep\x003000\x00":
                found.add(process.name)
        except OSError:
            continue
    return found


def kill_until_done(workshop: Any, kills: int, seed: int, longest_s: float) -> int:
    """Run, kill after a random while, resume; how often it was killed before it was done."""
    chance = random.Random(seed)
    arguments = ("run", "run.yaml")
    for killed in range(kills):
        running = workshop.start(*arguments)
        time.sleep(chance.uniform(0.2, longest_s))
        running.process.kill()
        if running.ended().code != -signal.SIGKILL:
            return killed
        if workshop.runs:
            arguments = ("run", "--resume", str(workshop.run))
    done = workshop.ale(*arguments, timeout_s=300)
    assert done.code == 0, done.text
    return kills


def check(workshop: Any) -> None:
    episodes = workshop.episodes()
    wanted = {f"0-t{task:02}-{r}" for task in range(N_TASKS) for r in range(N_ROLLOUTS)}
    assert episodes.keys() == wanted
    assert {episode["reward"] for episode in episodes.values()} == {1.0}
    assert len(workshop.lines("tasks.jsonl")) == N_TASKS
    assert {row["episode_id"] for row in workshop.lines("credits/00000.jsonl")} == wanted
    workshop.lines("events.jsonl")
    manifest = json.loads((workshop.run / "manifest.json").read_text())
    assert manifest["outcome"]["outcome"] == "completed"
    assert manifest["outcome"]["n_graded"] == N
    assert workshop.left_behind() == []


@pytest.mark.usefixtures("other_sleeps")
def test_200_episodes_killed_five_times_are_each_there_once(workshop: Any, config: str) -> None:
    assert kill_until_done(workshop, kills=5, seed=1, longest_s=1.4) == 5
    check(workshop)


@pytest.mark.long
@pytest.mark.usefixtures("other_sleeps")
@pytest.mark.parametrize("seed", range(4))
def test_200_episodes_killed_20_times_are_each_there_once(
    workshop: Any, config: str, seed: int
) -> None:
    assert kill_until_done(workshop, kills=20, seed=seed, longest_s=0.8) >= 5
    check(workshop)


@pytest.mark.usefixtures("other_sleeps")
def test_what_a_killed_run_left_is_cleaned_up_by_the_next_one(
    workshop: Any, config: str, shell: Any
) -> None:
    running = workshop.start("run", config)
    workshop.wait_for(workshop.orphans)
    running.process.kill()
    running.ended()
    assert workshop.left_behind() != []
    workshop.scripted({"default": shell("touch done")}, run={"rollouts": 1})
    assert workshop.ale("run", config).code == 0
    assert workshop.left_behind() == []
