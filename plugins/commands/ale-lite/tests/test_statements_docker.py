"""Docker under the config of ALE-lite: statements 38, 39, 41 and 42, by number."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ale_sandbox_docker.plugin
from ale_sandboxing.container_testing.fixtures import skip_without
from ale_sandboxing.container_testing.images import DEBIAN

pytestmark = pytest.mark.engine
GATEWAY = (
    "hex=$(awk '$2 == \"00000000\" { print $3 }' /proc/net/route); "
    "at=$((16#${hex:6:2})).$((16#${hex:4:2})).$((16#${hex:2:2})).$((16#${hex:0:2}))"
)
"""Where the host is, for a command in a container; the kernel writes it backwards."""
FINISH = {"calls": [{"name": "finish", "arguments": {"summary": "done"}}]}


@pytest.fixture
def docker(desk: Any) -> dict[str, str]:
    """The section ``sandbox``, and the engine's address for the script; skips without one."""
    skip_without(ale_sandbox_docker.plugin, DEBIAN)
    if "DOCKER_HOST" in os.environ:
        desk.environ["DOCKER_HOST"] = os.environ["DOCKER_HOST"]
    return {"backend": "docker", "image": DEBIAN}


@pytest.fixture
def listener() -> Iterator[int]:
    """A port on which every interface of the host takes connections."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        ended = threading.Event()

        def accept() -> None:
            server.settimeout(0.1)
            while not ended.is_set():
                try:
                    server.accept()[0].close()
                except TimeoutError:
                    continue

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        ended.set()
        thread.join()


def commands(*texts: str) -> dict[str, Any]:
    steps = [{"calls": [{"name": "shell", "arguments": {"command": text}}]} for text in texts]
    return {"conversations": [{"match": ".", "steps": [*steps, FINISH]}]}


def observed(episode: dict[str, Any]) -> list[str]:
    turns = episode["trajectory"]["turns"]
    return [each["content"] for turn in turns for each in turn["observations"]]


@pytest.mark.parametrize("network", [False, True])
def test_s38_41_a_connect_fails_without_the_network_and_works_with_it(
    desk: Any, serve: Any, docker: dict[str, str], listener: int, network: bool
) -> None:
    desk.task("t")
    connect = f'{GATEWAY}; timeout 20 bash -c "exec 3<>/dev/tcp/$at/{listener}" && echo connected'
    server = serve(commands("ls /sys/class/net", connect))
    desk.config(server.url, sandbox={**docker, "network": network})
    done = desk.iflow("tasks/t.yaml")
    assert done.code == 0, done.text
    interfaces, connected, _ = observed(desk.episode())
    assert ("connected" in connected) == network
    assert ("eth0" in interfaces) == network


def test_s49_a_task_without_a_network_has_none_whatever_the_config_says(
    desk: Any, serve: Any, docker: dict[str, str]
) -> None:
    desk.task("no", constraints={"network": False})
    desk.task("yes", constraints={"network": True})
    server = serve(commands("ls /sys/class/net"))
    desk.config(server.url, sandbox={**docker, "network": True})
    assert desk.tbp().code == 0
    seen = {name: "eth0" in observed(episode)[0] for name, episode in desk.episodes().items()}
    assert seen == {"no": False, "yes": True}


def test_s39_auto_is_docker_where_its_engine_answers_and_the_choice_is_recorded(
    desk: Any, serve: Any, docker: dict[str, str]
) -> None:
    desk.task("t")
    desk.config(serve(commands("true")).url, sandbox={**docker, "backend": "auto"})
    done = desk.iflow("tasks/t.yaml")
    assert done.code == 0, done.text
    assert desk.manifest()["sandbox"]["type"] == "docker"
    assert desk.episode()["sandbox"] == "docker"
    assert desk.manifest()["config"]["sandbox"]["image"] == DEBIAN


def test_s42_allowlist_paths_are_seen_and_can_not_be_changed(
    desk: Any, serve: Any, docker: dict[str, str]
) -> None:
    shared: Path = desk.write("shared/file", "of the host").parent
    desk.task("t")
    server = serve(commands(f"cat {shared}/file", f"touch {shared}/new"))
    desk.config(server.url, sandbox={**docker, "allowlist_paths": ["shared"]})
    done = desk.iflow("tasks/t.yaml")
    assert done.code == 0, done.text
    read, written, _ = observed(desk.episode())
    assert "of the host" in read
    assert "Read-only file system" in written
    assert [path.name for path in shared.iterdir()] == ["file"]
