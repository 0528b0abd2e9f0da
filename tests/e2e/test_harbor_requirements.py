"""`ale run` over task folders that need more of a sandbox than a place for commands and files."""

import json
from pathlib import Path
from typing import Any

import pytest

from .harbor_tasks import config, containers, outcomes, skip_without

DATA = (
    Path(__file__).parents[2]
    / "plugins"
    / "tasks"
    / "ale-tasks-harbor"
    / "tests"
    / "data"
    / "beyond"
)

pytestmark = pytest.mark.engine


@pytest.fixture(params=["docker", pytest.param("podman", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    skip_without(name)
    return name


def run(workshop: Any, engine: str, **sections: Any) -> dict[str, tuple[float | None, str]]:
    tasks = {"type": "harbor", "path": str(DATA), "invalid": "error"}
    config(workshop, engine, **{"tasks": tasks, **sections})
    ended = workshop.ale("run", "run.yaml", timeout_s=500)
    assert ended.code in (0, 3), ended.text
    assert containers(workshop, engine) == []
    return outcomes(workshop)


def test_the_reference_solutions_pass(workshop: Any, engine: str) -> None:
    found = run(workshop, engine)
    if engine == "podman":
        reward, message = found.pop("network-for-tests")
        assert reward is None
        assert "podman can't connect a container that was created without a network" in message
    assert {task: reward for task, (reward, _) in found.items()} == dict.fromkeys(found, 1.0), found
    assert len(found) >= len(list(DATA.iterdir())) - 1


def test_doing_nothing_fails(workshop: Any, engine: str) -> None:
    tasks = {
        "type": "harbor",
        "path": str(DATA),
        "exclude": ["network-for-tests"],
        "invalid": "error",
    }
    found = run(workshop, engine, tasks=tasks, agent={"type": "noop"})
    assert {reward for reward, _ in found.values()} == {0.0}, found


def test_an_agent_that_does_not_support_what_a_task_gives_it_breaks_the_episode(
    workshop: Any,
) -> None:
    skip_without("docker")
    script = {"default": [{"calls": [{"name": "finish", "arguments": {"summary": "done"}}]}]}
    workshop.write("script.yaml", script)
    found = run(
        workshop,
        "docker",
        tasks={"type": "harbor", "path": str(DATA / "agent-needs"), "invalid": "error"},
        llm={"type": "scripted", "script": "script.yaml"},
        agent={"type": "iflow"},
    )
    reward, message = found["agent-needs"]
    assert reward is None
    assert message == (
        "agent: AleError: the task gives its agent trajectory.json, mcp_servers, "
        "which 'iflow' does not support"
    )


def test_artifacts_of_the_agents_container_are_kept_where_the_tests_have_their_own(
    workshop: Any,
) -> None:
    skip_without("docker")
    run(workshop, "docker", tasks={"type": "harbor", "path": str(DATA / "apart")})
    (folder,) = (workshop.run / "verifier").iterdir()
    listed = json.loads((folder / "artifacts" / "manifest.json").read_text())
    assert listed == [
        {"source": "/logs/artifacts", "status": "ok"},
        {"source": "/app/out.txt", "status": "ok"},
    ]
    assert (folder / "artifacts" / "app" / "out.txt").read_text() == "right\n"
