"""`ale run` with an engine that sees no file of this machine: episodes are graded as here."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ale_sandboxing.container_testing.elsewhere import own_engine
from ale_sandboxing.container_testing.images import BUSYBOX, CannotMakeError, provide

from .harbor_tasks import outcomes

pytestmark = pytest.mark.engine
IMAGE = "ale-test-graded:1"
DOCKERFILE = f"FROM {BUSYBOX}\nRUN mkdir -p /usr/bin && ln -s /bin/busybox /usr/bin/env\n"
"""Commands for grading start by what every system has there."""


def dockerd(folder: Path, address: str) -> list[str]:
    places = {"data-root": "data", "exec-root": "exec", "pidfile": "pid"}
    options = (f"--{option}={folder / name}" for option, name in places.items())
    closed = ("--bridge=none", "--iptables=false", "--ip6tables=false")
    return ["dockerd", f"--host={address}", *options, *closed]


@pytest.fixture
def address() -> Iterator[str]:
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        pytest.skip("an engine of one's own needs dockerd and root")
    with own_engine("dockerd", dockerd) as engine:
        client = ["docker", "--host", engine.address]
        try:
            provide(client, BUSYBOX)
        except CannotMakeError as error:
            pytest.skip(str(error))
        build = [*client, "build", "--quiet", "--tag", IMAGE, "-"]
        subprocess.run(build, input=DOCKERFILE.encode(), capture_output=True, check=True)
        yield engine.address


def test_success_and_failure_are_graded_there(workshop: Any, shell: Any, address: str) -> None:
    for name in ("done", "left"):
        workshop.task(name, check="test -s done && read word <done && [ $word = done ]")
    workshop.scripted(
        {"tasks": {"done": [shell("echo done >done")], "left": [shell("echo left >done")]}},
        sandbox={"type": "docker", "host": address, "image": IMAGE},
    )
    workshop.succeeds("run", "run.yaml")
    rewards = {task: reward for task, (reward, _) in outcomes(workshop).items()}
    assert rewards == {"done": 1.0, "left": 0.0}
    listed = workshop.ale("sandbox", "list", "--type", "docker", DOCKER_HOST=address)
    assert "ale-" not in listed.out, listed.text
