"""A run over NATS whose workers are killed and whose server is restarted, beside a local one."""

import json
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ale.testing.openai_server import openai_server
from ale.testing.waiting import wait_for
from ale_nats.testing import WorkerGroup
from ale_nats_client.testing import Server, running_server

WORKERS = 3
EPISODES = 300
LOST_AFTER_S = 2
ROLLOUTS = 4


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running_server(tmp_path / "nats") as made:
        yield made


@pytest.fixture
def group(server: Server, tmp_path: Path) -> Iterator[WorkerGroup]:
    made = WorkerGroup(server.url, tmp_path / "workers")
    for _ in range(WORKERS):
        made.start()
    yield made
    made.stop()


def configure(workshop: Any, shell: Any, server: Server, episodes: int) -> None:
    """Each episode waits a little, and prints what depends on its task alone."""
    for number in range(episodes // ROLLOUTS):
        task = f"t{number:03}"
        workshop.task(task, setup_steps=[f"echo {task} > name; seq {number} > numbers"])
    lines = shell("cat name; wc -l < numbers", "sleep 0.2; touch done; ls")
    options = {"deterministic": True, "rollouts": ROLLOUTS, "concurrency": 12, "retries": 0}
    executor = {"type": "nats", "url": server.url, "lost_after_s": LOST_AFTER_S}
    workshop.scripted({"default": lines}, run=options, executor=executor)


_WORKER = re.compile(r'(?<="metadata":\{)"worker":"[^"]+"(?=\})')


def stored(workshop: Any) -> dict[str, str]:
    """The lines of the newest run by episode id, each of which must be there once.

    They are without the name of the worker, which is all that differs from a local run.
    """
    lines = _so_far(workshop)
    found = {json.loads(line)["id"]: _WORKER.sub("", line) for line in lines}
    assert len(found) == len(lines)
    return found


def break_things(
    workshop: Any, server: Server, group: WorkerGroup, episodes: int, seed: int
) -> None:
    """Kill two workers at random moments and restart the server, while episodes come in."""
    chance = random.Random(seed)
    moments = sorted(chance.sample(range(episodes // 10, episodes * 2 // 3), 3))
    for number, moment in enumerate(moments):
        wait_for(lambda: len(_so_far(workshop)) >= moment, f"{moment} episodes", 240)  # noqa: B023
        if number == 1:
            server.stop()
            time.sleep(chance.uniform(0.1, 1.0))
            server.start()
        else:
            group.end(chance.choice(group.workers))


def _so_far(workshop: Any) -> list[str]:
    files = [run / "episodes.jsonl" for run in workshop.runs]
    return files[-1].read_text().splitlines() if files and files[-1].exists() else []


def same_as_local(
    workshop: Any, shell: Any, server: Server, group: WorkerGroup, episodes: int, seed: int
) -> None:
    configure(workshop, shell, server, episodes)
    running = workshop.start("run", "run.yaml")
    break_things(workshop, server, group, episodes, seed)
    done = running.ended()
    assert done.code == 0, done.text
    assert len(group.workers) == WORKERS - 2
    spread = stored(workshop)
    assert len(spread) == episodes
    workshop.succeeds("run", "run.yaml", "--set", "executor.type=local")
    assert stored(workshop) == spread


def test_each_episode_is_there_once_and_as_a_local_run_has_it(
    workshop: Any, shell: Any, server: Server, group: WorkerGroup
) -> None:
    same_as_local(workshop, shell, server, group, EPISODES, seed=5)


def adapts(workshop: Any, server: Server, rollouts: int) -> list[dict[str, Any]]:
    """Runs `run.yaml` with `auto`; the changes of the number of episodes at once."""
    executor = {"type": "nats", "url": server.url}
    config = yaml.safe_load((workshop.folder / "run.yaml").read_text())
    run = {"concurrency": "auto", "rollouts": rollouts}
    workshop.write("run.yaml", config | {"executor": executor, "run": run})
    workshop.succeeds("run", "run.yaml")
    assert len(workshop.lines()) == rollouts
    events = workshop.lines("events.jsonl")
    return [each for each in events if each["event"] == "concurrency"]


def test_auto_measures_what_workers_finish_with_each_number(
    workshop: Any, shell: Any, server: Server, tmp_path: Path
) -> None:
    """What it measures depends on what else the machine does; what follows from it does not."""
    group = WorkerGroup(server.url, tmp_path / "workers")
    for _ in range(2):
        group.start("-n", "2")
    try:
        workshop.task("t")
        workshop.scripted({"default": shell("sleep 0.4; touch done")})
        changes = adapts(workshop, server, 120)
    finally:
        group.stop()
    assert (changes[0]["before"], changes[0]["limit"]) == (8, 16)
    assert "times the throughput of 8 with 16" in changes[1]["why"]
    gain = float(changes[1]["why"].split()[0])  # rounded
    proved = changes[1]["proved"], changes[1]["limit"]
    assert proved in {_after(gain - 0.005), _after(gain + 0.005)}, gain


def _after(gain: float) -> tuple[int, int]:
    """The number that has proved itself and the next one, if 16 gave `gain` times what 8 did."""
    return (16, 32) if gain >= 1.3 else (16, 16) if gain >= 1.1 else (8, 12)


def test_auto_hears_of_requests_that_were_refused_to_workers(
    workshop: Any, server: Server, group: WorkerGroup
) -> None:
    finish = {"calls": [{"name": "finish", "arguments": {"summary": "ok"}}]}
    refused = [{"fault": 429, "retry_after": 0.02}] * 60
    steps = [{"calls": [{"name": "shell", "arguments": {"command": "touch done"}}]}, finish]
    steps[0]["before"] = refused
    workshop.task("t")
    with openai_server({"conversations": [{"match": "", "steps": steps}]}) as model:
        llm = {"type": "openai", "base_url": model.url, "model": "m", "max_retries": 60}
        workshop.config(llm={**llm, "retry_min_s": 0.05, "retry_max_s": 0.1})
        changes = adapts(workshop, server, 60)
    assert "the model's server refused" in changes[0]["why"]
    assert changes[0]["limit"] < 8
    counted = [each["metadata"].get("requests_refused", 0) for each in workshop.lines()]
    assert 0 < sum(counted) <= 60


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_so_it_is_at_other_moments(
    workshop: Any, shell: Any, server: Server, group: WorkerGroup, seed: int
) -> None:
    same_as_local(workshop, shell, server, group, EPISODES, seed)


def test_a_run_that_was_killed_is_resumed_with_what_its_workers_have_finished(
    workshop: Any, shell: Any, server: Server, group: WorkerGroup
) -> None:
    configure(workshop, shell, server, 88)
    running = workshop.start("run", "run.yaml")
    wait_for(lambda: len(_so_far(workshop)) >= 10, "10 episodes", 120)
    running.signal(signal.SIGKILL)
    running.ended()
    before = len(_so_far(workshop))
    assert before < 88
    workshop.succeeds("run", "--resume", str(workshop.run))
    assert len(stored(workshop)) == 88


def test_a_run_goes_on_with_a_nats_server_that_has_moved(
    workshop: Any, shell: Any, server: Server, group: WorkerGroup, tmp_path: Path
) -> None:
    configure(workshop, shell, server, 48)
    running = workshop.start("run", "run.yaml")
    wait_for(lambda: len(_so_far(workshop)) >= 10, "10 episodes", 120)
    running.signal(signal.SIGTERM)
    running.ended()
    before = stored(workshop)
    assert len(before) < 48
    group.stop()
    server.stop()
    with running_server(tmp_path / "moved") as moved:
        workers = WorkerGroup(moved.url, tmp_path / "others")
        workers.start()
        try:
            there = f"executor.url={moved.url}"
            workshop.succeeds("run", "--resume", str(workshop.run), "--set", there)
        finally:
            workers.stop()
    after = stored(workshop)
    assert len(after) == 48
    assert before.items() <= after.items(), "none of them was sampled again"
