"""`ale run` over task folders of Harbor and Terminal-Bench, in real containers."""

from pathlib import Path
from typing import Any

import pytest

from .harbor_tasks import PRIVILEGES, add, config, containers, outcomes, skip_without

DATA = Path(__file__).parents[2] / "plugins" / "tasks" / "ale-tasks-harbor" / "tests" / "data"
BROKEN = {
    "build-fails": "could not be built",
    "no-base": "base image 'registry.invalid/no/such-base:1' can't be pulled",
    "no-image": "the image 'registry.invalid/no/such-image:1' is not there",
    "no-reward": "the tests wrote no reward to /logs/verifier",
    "never-healthy": "the container was not healthy within 2 s: test -e /tmp/never",
    "no-number": "reward.txt holds 'excellent', which is not a number",
    "not-finite": "which is not a finite number",
    "no-summary": "the tests printed no 'short test summary info'",
}
"""Tasks without a verdict, and what is reported about them."""
PARTIAL = {
    "several-rewards": (0.75, 0.25),
    "steps-mean": (0.75, 0.0),
    "too-much": (7.0, 7.0),
    "steps-least": (0.5, 0.0),
    "steps-least-of-several": (0.5, 0.0),
}
"""By the reference solution, by nothing."""

pytestmark = pytest.mark.engine


def run(workshop: Any, engine: str, folder: str, agent: str) -> dict[str, Any]:
    config(
        workshop,
        engine,
        tasks={"type": "harbor", "path": str(DATA / folder), "invalid": "error"},
        sandbox={"type": engine, **PRIVILEGES, "pull_silence_s": 5},
        agent={"type": agent},
    )
    ended = workshop.ale("run", "run.yaml", timeout_s=500)
    assert ended.code == 3, ended.text  # some are broken
    assert containers(workshop, engine) == []
    return outcomes(workshop)


def check(engine: str, workshop: Any, folder: str, agent: str) -> None:
    skip_without(engine)
    found = run(workshop, engine, folder, agent)
    assert len(found) == len(list((DATA / folder).iterdir()))
    for task, (reward, message) in found.items():
        if task in BROKEN:
            assert (task, reward) == (task, None)
            assert BROKEN[task] in message
        elif task == "endless":
            assert (reward, message[:40]) == (0.0, "the tests did not end within 1 s and wer")
        else:
            good, bad = PARTIAL.get(task, (1.0, 0.0))
            assert (task, reward) == (task, good if agent == "oracle" else bad), message


@pytest.mark.parametrize("folder", ["harbor", "terminal-bench"])
def test_the_reference_solutions_pass(workshop: Any, folder: str) -> None:
    check("docker", workshop, folder, "oracle")


@pytest.mark.long
@pytest.mark.parametrize("folder", ["harbor", "terminal-bench"])
def test_doing_nothing_fails(workshop: Any, folder: str) -> None:
    check("docker", workshop, folder, "noop")


@pytest.mark.long
@pytest.mark.parametrize("agent", ["oracle", "noop"])
@pytest.mark.parametrize("folder", ["harbor", "terminal-bench"])
def test_podman_gives_the_same(workshop: Any, folder: str, agent: str) -> None:
    check("podman", workshop, folder, agent)


def test_output_logs_and_artifacts_are_kept_with_the_run(workshop: Any) -> None:
    skip_without("docker")
    tasks = {"type": "harbor", "path": str(DATA / "harbor"), "include": ["artifacts"]}
    config(workshop, "docker", tasks=tasks)
    workshop.succeeds("run", "run.yaml")
    (folder,) = (workshop.run / "verifier").iterdir()
    assert (folder / "logs" / "reward.txt").read_text() == "1\n"
    assert (folder / "test-stdout.txt").read_text() == ""
    stored = folder / "artifacts"
    assert (stored / "app" / "out.txt").read_text() == "kept\n"
    assert (stored / "taken" / "folder" / "file").read_text() == "deep\n"
    assert not (stored / "taken" / "folder" / "x.tmp").exists()
    assert (stored / "logs" / "artifacts" / "log").read_text() == "log\n"
    assert (
        '"source": "/app/missing",\n    "status": "FileNotFoundError'
        in (stored / "manifest.json").read_text()
    )


def test_check_refuses_a_task_on_sandboxes_without_a_feature_that_it_requires(
    workshop: Any,
) -> None:
    add(workshop, "as-a-user", solve="true", toml='[agent]\nuser = "nobody"')
    config(workshop, "local", sandbox={"type": "local", "ignore_image": True})
    checked = workshop.ale("check", "run.yaml")
    assert checked.code == 2, checked.text
    lacking = "agent-user, files of its own"
    assert f"requires of its sandbox: {lacking}; 'local' lacks this" in checked.text
    assert workshop.ale("run", "run.yaml").code == 2
    assert workshop.runs == []
