"""`ale run` over task folders that need several containers."""

import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ale_sandboxing.container_testing.compose import COMPOSE, why_no_compose

from .harbor_tasks import config, containers, outcomes, why_not

DATA = (
    Path(__file__).parents[2]
    / "plugins"
    / "tasks"
    / "ale-tasks-harbor"
    / "tests"
    / "data"
    / "compose"
)
WAIT_S = 240.0

pytestmark = [pytest.mark.engine, pytest.mark.long]


@pytest.fixture(params=list(COMPOSE), ids=lambda version: f"compose-{version}")
def engine(request: pytest.FixtureRequest, workshop: Any) -> str:
    """Docker, with each version of docker compose in turn."""
    reason = why_not("docker") or why_no_compose(request.param)
    if reason is not None:
        pytest.skip(reason)
    workshop.environ.update(COMPOSE[request.param])
    return "docker"


def remains(engine: str, project: str) -> list[str]:
    """What docker compose has made under a name and is still there."""
    found = []
    for kind in ("container", "network", "volume"):
        every = ["--all"] if kind == "container" else []
        label = f"label=com.docker.compose.project={project}"
        argv = [engine, kind, "ls", *every, "--quiet", "--filter", label]
        printed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        found += [f"{kind} {name}" for name in printed.split()]
    return found


def test_the_reference_solutions_pass_and_nothing_is_left(workshop: Any, engine: str) -> None:
    tasks = {"type": "harbor", "path": str(DATA), "invalid": "error"}
    config(workshop, engine, tasks=tasks)
    ended = workshop.ale("run", "run.yaml", timeout_s=500)
    assert ended.code == 3, ended.text
    found = outcomes(workshop)
    reward, message = found.pop("no-sidecar")
    assert reward is None
    assert "registry.invalid" in message
    assert {task: reward for task, (reward, _) in found.items()} == {
        "bench": 1.0,
        "closed": 1.0,
        "evidence": 1.0,
        "filled-in": 1.0,
        "healthy-main": 1.0,
        "main-health": 1.0,
        "odd-main": 1.0,
        "only-others": 1.0,
        "store": 1.0,
    }, found
    assert containers(workshop, engine) == []


def test_doing_nothing_fails(workshop: Any, engine: str) -> None:
    tasks = {"type": "harbor", "path": str(DATA), "exclude": ["no-sidecar"], "invalid": "error"}
    config(workshop, engine, tasks=tasks, agent={"type": "noop"})
    workshop.succeeds("run", "run.yaml", timeout_s=500)
    assert {reward for reward, _ in outcomes(workshop).values()} == {0.0}


def test_what_a_killed_run_has_left_is_removed_with_its_networks_and_volumes(
    workshop: Any, engine: str
) -> None:
    folder = workshop.folder / "tasks" / "slow"
    shutil.copytree(DATA / "store", folder)
    (folder / "solution" / "solve.sh").write_text("#!/bin/sh\nsleep 600\n")
    config(workshop, engine)
    running = workshop.start("run", "run.yaml")

    def opened() -> Any:
        return workshop.runs and (workshop.run / "events.jsonl").exists() and _own(workshop, engine)

    project = workshop.wait_for(opened, timeout_s=WAIT_S)
    running.signal(signal.SIGKILL)
    running.ended()
    assert {one.split()[0] for one in remains(engine, project)} == {
        "container",
        "network",
        "volume",
    }
    workshop.succeeds("sandbox", "prune")
    assert remains(engine, project) == []


def _own(workshop: Any, engine: str) -> str | None:
    """The name of the run's container, once it runs."""
    for found in containers(workshop, engine):
        argv = [engine, "inspect", "-f", "{{.Name}} {{.State.Running}}", found["id"]]
        printed = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.split()
        if printed[1:] == ["true"]:
            return printed[0].lstrip("/")
    return None
