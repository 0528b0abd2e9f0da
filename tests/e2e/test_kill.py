"""`kill -9` at random moments, again and again: `--resume` does exactly what is missing."""

import json
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.own_process

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
    workshop.succeeds(*arguments)
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
    workshop.succeeds("run", config)
    assert workshop.left_behind() == []


def test_a_run_that_is_killed_after_a_resume_was_interrupted(workshop: Any, shell: Any) -> None:
    def working() -> bool:
        return bool(workshop.runs) and ": running, in process " in workshop.ale("show", run()).out

    def run() -> str:
        return str(workshop.run)

    def manifest() -> Any:
        return json.loads((workshop.run / "manifest.json").read_text())

    workshop.task("t")
    workshop.scripted({"default": shell("sleep 1000", "touch done")}, run={"rollouts": 1})
    first = workshop.start("run", "run.yaml")
    workshop.wait_for(working)
    first.signal(signal.SIGTERM)
    first.ended()
    assert ": cancelled after " in workshop.ale("show", run()).out
    before = manifest()["outcome"]["seconds"]
    resumed = workshop.start("run", "--resume", run())
    workshop.wait_for(lambda: manifest()["outcome"] is None)
    resumed.process.kill()
    resumed.ended()
    assert ": interrupted: its process is gone" in workshop.ale("show", run()).out
    assert manifest()["earlier_seconds"] == before
    workshop.scripted({"default": shell("touch done")}, run={"rollouts": 1})
    workshop.succeeds("run", "--resume", run())
    assert manifest()["outcome"]["outcome"] == "completed"
    assert manifest()["outcome"]["seconds"] > before
    assert "earlier_seconds" not in manifest()


def kill_as_it_grows(workshop: Any, kills: int, seed: int, longest: int) -> None:
    """Run, kill after a random number of further episodes, resume; at last to the end."""
    chance = random.Random(seed)
    arguments = ("run", "run.yaml")
    for _ in range(kills):
        before, more = stored(workshop), chance.randint(1, longest)
        running = workshop.start(*arguments)
        workshop.wait_for(lambda before=before, more=more: stored(workshop) >= before + more)
        time.sleep(chance.uniform(0, 0.05))
        running.process.kill()
        assert running.ended().code == -signal.SIGKILL
        arguments = ("run", "--resume", str(workshop.run))
    workshop.succeeds(*arguments)
    assert len([e for e in workshop.lines("events.jsonl") if e["event"] == "run_resumed"]) == kills


def stored(workshop: Any) -> int:
    """Number of stored episodes."""
    episodes = [run / "episodes.jsonl" for run in workshop.runs]
    return sum(path.read_bytes().count(b"\n") for path in episodes if path.exists())


@pytest.mark.parametrize("too_stale", ["train", "drop"])
def test_a_stream_killed_at_random_moments_uses_every_episode_at_most_once(
    workshop: Any, shell: Any, too_stale: str
) -> None:
    steps, per_step, rollouts = 10, 4, 3
    for number in range(9):
        workshop.task(f"t{number}")
    quick, slow = shell("touch done"), shell("sleep 0.9; touch done")
    waits = {name: [slow, *[quick] * (rollouts - 1)] for name in ("t2", "t7")}
    options = {"steps": steps, "tasks_per_step": per_step, "rollouts": rollouts}
    stream = {"schedule": "stream", "staleness": 1, "too_stale": too_stale, "concurrency": 9}
    script = {"default": quick, "tasks": waits}
    workshop.scripted(script, trainer={"type": "export"}, run=options | stream)
    kill_as_it_grows(workshop, kills=4, seed=7, longest=28)

    batches: dict[int, list[tuple[Any, ...]]] = {}
    dropped = set()
    for line in workshop.lines("groups.jsonl"):
        groups = [tuple(group) for group in line["groups"]]
        if line["event"] == "trained":
            assert line["step"] not in batches, "a step's groups were chosen twice"
            batches[line["step"]] = groups
        elif line["event"] == "dropped":
            dropped.update(groups)
    trained = [group for groups in batches.values() for group in groups]
    assert [len(batches[step]) for step in range(steps)] == [per_step] * steps
    assert len(set(trained)) == len(trained), "a group was trained on twice"
    assert not dropped.intersection(trained)
    assert bool(dropped) == (too_stale == "drop"), "some took longer than a step"

    episodes = workshop.episodes().values()
    stored = {(each["step"], each["task_id"], each["start"]) for each in episodes}
    assert stored == {*trained, *dropped}, "what was sampled was used, or dropped by choice"
    assert len(episodes) == rollouts * len(stored)
    rows = workshop.lines("export/rows.jsonl")
    exported = {(row["step"], row["episode"]) for row in rows}
    credited = {
        (row["step"], row["episode_id"])
        for step in range(steps)
        for row in workshop.lines(f"credits/{step:05d}.jsonl")
    }
    names = {each["id"]: (each["step"], each["task_id"], each["start"]) for each in episodes}
    assert exported == credited
    assert all(names[name] in batches[step] for step, name in credited)
    assert len(credited) == rollouts * len(trained)
    assert workshop.left_behind() == []
