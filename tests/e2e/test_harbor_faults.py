"""Containers that end from outside, and a run that is killed, while task folders are run."""

import signal
import time
from typing import Any

import pytest

from .harbor_tasks import add, config, containers, inside, kill, outcomes, skip_without

pytestmark = pytest.mark.engine
WAIT_S = 120.0


@pytest.fixture(params=["docker", pytest.param("podman", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    skip_without(name)
    return name


def container_of(workshop: Any, engine: str, task: str, file: str) -> str:
    """The container of a task, as soon as it has a file."""

    def look() -> str | None:
        for found in containers(workshop, engine):
            if task in found["labels"] and inside(engine, found["id"], f"test -e {file}"):
                return str(found["id"])
        time.sleep(0.3)  # each look starts some processes
        return None

    id: str = workshop.wait_for(look, timeout_s=WAIT_S)
    return id


def test_a_container_killed_from_outside_breaks_its_episode_alone(
    workshop: Any, engine: str
) -> None:
    add(workshop, "in-agent", solve="touch /app/begun; sleep 600")
    add(
        workshop,
        "in-tests",
        solve="touch done",
        test="echo 1 >/logs/verifier/reward.txt; touch /app/begun; sleep 600",
    )
    add(workshop, "sound", solve="touch done")
    config(workshop, engine)
    running = workshop.start("run", "run.yaml")
    for task in ("in-agent", "in-tests"):
        kill(engine, container_of(workshop, engine, task, "/app/begun"))
    ended = running.ended()
    assert ended.code == 3, ended.text
    found = outcomes(workshop)
    assert found["sound"][0] == 1.0
    assert found["in-agent"][0] is None
    assert found["in-agent"][1].startswith("agent: SandboxLostError: ")
    assert found["in-tests"][0] is None, (
        "a reward that was written before the end counts for nothing"
    )
    assert found["in-tests"][1].startswith("grading: SandboxLostError: ")
    for message in (found["in-agent"][1], found["in-tests"][1]):
        assert "the container of sandbox" in message
        assert "has ended" in message
    assert containers(workshop, engine) == []


def test_ctrl_c_twice_leaves_no_container_and_resume_does_the_rest(
    workshop: Any, engine: str
) -> None:
    add(workshop, "slow", solve="touch /app/begun done; [ -e /app/go ] || sleep 600")
    add(workshop, "sound", solve="touch done")
    agent = {"type": "oracle", "tool_timeout_s": 3}
    config(workshop, engine, agent=agent)
    running = workshop.start("run", "run.yaml")
    container_of(workshop, engine, "slow", "/app/begun")
    running.signal(signal.SIGINT)
    running.signal(signal.SIGINT)
    ended = running.ended()
    assert ended.code != 0
    assert "Traceback" not in ended.text
    assert containers(workshop, engine) == []
    workshop.succeeds("run", "--resume", str(workshop.run))
    assert {task: reward for task, (reward, _) in outcomes(workshop).items()} == {
        "slow": 1.0,
        "sound": 1.0,
    }
    assert containers(workshop, engine) == []


def test_what_a_killed_run_has_left_is_removed_and_resume_does_the_rest(
    workshop: Any, engine: str
) -> None:
    add(workshop, "slow", solve="touch /app/begun done; sleep 600")
    add(workshop, "sound", solve="touch done")
    config(workshop, engine, agent={"type": "oracle", "tool_timeout_s": 3})
    running = workshop.start("run", "run.yaml")
    container_of(workshop, engine, "slow", "/app/begun")
    running.signal(signal.SIGKILL)
    running.ended()
    workshop.succeeds("run", "--resume", str(workshop.run))
    assert {task: reward for task, (reward, _) in outcomes(workshop).items()} == {
        "slow": 1.0,
        "sound": 1.0,
    }
    assert containers(workshop, engine) == []
