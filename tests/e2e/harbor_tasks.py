"""Task folders in Harbor's format for the tests of `ale run`, and engines to run them in."""

import functools
import json
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from ale_sandboxing.container_testing.images import BUSYBOX, DEBIAN, CannotMakeError, provide

PRIVILEGES: Mapping[str, Any] = {
    "capabilities": ["DOCKER_DEFAULT"],
    "new_privileges": True,
    **dict.fromkeys(("memory_mb", "processes", "cpu_s", "file_size_mb", "open_files")),
}
"""What tasks expect; the sandboxes give none of it unless asked to."""
JUDGE = "if {check}; then echo 1; else echo 0; fi >/logs/verifier/reward.txt"


@functools.cache
def why_not(engine: str) -> str | None:
    """Why there can be no tests on this engine, or in bubblewrap; None where there can."""
    from ale_sandbox_bubblewrap import plugin as bubblewrap
    from ale_sandbox_docker import plugin as docker
    from ale_sandbox_podman import plugin as podman

    plugins: Mapping[str, Any] = {"bubblewrap": bubblewrap, "docker": docker, "podman": podman}
    probe = plugins[engine].ale_sandboxes()[0].probe
    assert probe is not None
    found = probe()
    if not found.usable:
        return f"{engine}: {found.reason}"
    try:
        for image in () if engine == "bubblewrap" else (BUSYBOX, DEBIAN):
            provide([engine], image)
    except CannotMakeError as error:
        return f"no image for {engine}: {error}"
    return None


def skip_without(engine: str) -> None:
    """Skip the test where there can be none on this engine."""
    if (reason := why_not(engine)) is not None:
        pytest.skip(reason)


def add(
    workshop: Any,
    name: str,
    *,
    solve: str,
    test: str = JUDGE.format(check="[ -e done ]"),
    toml: str = "",
    files: Mapping[str, str] | None = None,
) -> None:
    """One folder; it starts from the small Debian, in /app."""
    machine = f'[environment]\ndocker_image = "{DEBIAN}"\nworkdir = "/app"\n'
    texts = {
        "task.toml": f"{machine}{toml}\n",
        "instruction.md": "Do it.\n",
        "tests/test.sh": f"#!/bin/bash\n{test}\n",
        "solution/solve.sh": f"#!/bin/bash\n{solve}\n",
        **(files or {}),
    }
    for path, text in texts.items():
        workshop.write(f"tasks/{name}/{path}", text)


def config(workshop: Any, engine: str, **sections: Any) -> None:
    """The config ``run.yaml``: the folders of `add`, their reference solutions, one try each."""
    workshop.config(
        **{
            "tasks": {"type": "harbor", "path": "tasks"},
            "sandbox": {"type": engine, **PRIVILEGES, "pull_silence_s": 5},
            "agent": {"type": "oracle"},
            "run": {"concurrency": 4, "retries": 0},
            **sections,
        }
    )


def containers(workshop: Any, engine: str) -> list[dict[str, Any]]:
    """The containers of the workshop's runs: id, and their own record."""
    mine = []
    runs = [path.name for path in workshop.runs]
    listed = _engine(engine, "ps", "-aq", "--filter", "label=ale.id").split()
    for name in listed:
        shown = subprocess.run([engine, "inspect", name], capture_output=True, check=False)
        for found in json.loads(shown.stdout or "[]"):
            text = json.dumps(found["Config"]["Labels"])
            if any(run in text for run in runs):
                mine.append({"id": found["Id"], "labels": text})
    return mine


def inside(engine: str, container: str, command: str) -> bool:
    """Does a command in a container succeed?"""
    argv = [engine, "exec", container, "sh", "-c", command]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def kill(engine: str, container: str) -> None:
    """End a container from outside."""
    _engine(engine, "kill", container)


def _engine(engine: str, *arguments: str) -> str:
    return subprocess.run([engine, *arguments], capture_output=True, text=True, check=True).stdout


def outcomes(workshop: Any) -> dict[str, tuple[float | None, str]]:
    """Reward by task, with the cause of a failure or the detail of the score."""
    found = {}
    for episode in workshop.episodes().values():
        failure = episode["failure"]
        if failure:
            message = f"{failure['stage']}: {failure['kind']}: {failure['message']}"
        else:
            message = episode["scores"][0]["detail"]
        found[episode["task_id"]] = (episode["reward"], message)
    return found
