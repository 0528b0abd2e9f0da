"""Answers that the engine gives only once in a thousand times, recorded from version 4.3."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from ale.errors import NotUsableError, SandboxError
from ale.plugin import BuildContext
from ale_sandbox_podman.engine import PodmanEngine
from ale_sandbox_podman.facts import facts_of
from ale_sandbox_podman.options import PodmanOptions
from ale_sandbox_podman.plugin import build
from ale_sandbox_podman.spec import spec_of
from ale_sandboxing.container.engine import NotFoundError, Plan, Volume
from ale_sandboxing.process import seccomp

ENDED = (500, {"cause": "no such process", "message": "read /proc/7/cgroup: no such process"})
IMPROPER = (409, {"cause": "", "message": "can only kill running containers"})
EXITED = (
    200,
    {"Id": "box", "State": {"Running": False, "ExitCode": 3, "OOMKilled": False, "Pid": 0}},
)


@contextmanager
def answering(*answers: tuple[int, object]) -> Iterator[PodmanEngine]:
    """An engine at a server that gives these answers, and no others."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = left.pop(0)
            said = {**body, "response": status} if isinstance(body, dict) else body
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PUT = do_DELETE = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    engine = PodmanEngine(f"tcp://127.0.0.1:{server.server_address[1]}")
    try:
        yield engine
    finally:
        engine.close()
        server.shutdown()
        server.server_close()
        thread.join()
    assert not left


def test_a_container_that_ends_while_it_is_looked_at_has_a_state_a_little_later() -> None:
    with answering(ENDED, ENDED, EXITED) as engine:
        state = engine.state("box")
    assert not state.running
    assert state.exit_code == 3


def test_a_container_that_ends_while_it_is_killed_is_dead() -> None:
    with answering(ENDED, IMPROPER) as engine:
        engine.kill("box")


def test_a_container_that_was_killed_just_now_is_started_until_it_starts() -> None:
    with answering((304, {}), (304, {}), (204, {})) as engine:
        engine.start("box")


def test_what_keeps_a_container_from_being_killed_is_reported() -> None:
    full = (500, {"cause": "", "message": "no space left on device"})
    with answering(ENDED, full) as engine, pytest.raises(SandboxError, match="no space left"):
        engine.kill("box")
    with answering(ENDED, (500, {"message": "container state improper"})) as engine:
        engine.kill("box")


def test_a_network_goes_with_a_container_that_could_not_be_made() -> None:
    full = (500, {"cause": "", "message": "no space left on device"})
    with (
        answering((200, {}), full, (200, [])) as engine,
        pytest.raises(SandboxError, match="no space left"),
    ):
        engine.create(evolve(PLAN, network=True))


PLAN = Plan(
    name="ale-x",
    image="sha256:8",
    entrypoint=("/sh", "-c", "wait"),
    workdir="/app",
    labels={"ale.id": "x"},
    shell=Volume(name="shell", target="/.ale", read_only=True),
    binds=(Path("/data"),),
    volumes=("/app",),
    env={"A": "b"},
    user="1000:1000",
    cpus=1.5,
    memory_bytes=1 << 30,
    processes=7,
    capabilities=("CHOWN",),
    read_only=True,
    closed=("/dev/shm",),
    tmpfs={"/tmp": 1 << 20},
    filtered=True,
    runtime="runsc",
    sysctls={"fs.mqueue.queues_max": "1"},
)


def test_a_container_is_asked_for_with_all_that_confines_it() -> None:
    found = spec_of(PLAN)
    assert (found["cap_drop"], found["cap_add"]) == (["all"], ["CAP_CHOWN"])
    assert (found["no_new_privileges"], found["privileged"]) == (True, False)
    assert found["seccomp_profile_path"] == str(seccomp.PROFILE)
    assert (found["read_only_filesystem"], found["user"]) == (True, "1000:1000")
    assert found["netns"] == {"nsmode": "none"}
    assert "networks" not in found
    assert found["resource_limits"] == {
        "memory": {"limit": 1 << 30, "swap": 1 << 30},
        "pids": {"limit": 7},
        "cpu": {"quota": 150_000, "period": 100_000},
    }
    mounts = {each["destination"]: sorted(each["options"]) for each in found["mounts"]}
    assert mounts == {
        "/data": ["nodev", "nosuid", "rbind", "ro"],
        "/tmp": ["mode=1777", "nodev", "nosuid", "size=1048576"],
        "/dev/shm": ["ro"],
    }
    shell = {"Name": "shell", "Dest": "/.ale", "Options": ["ro"]}
    assert found["volumes"] == [{"Dest": "/app"}, shell]
    assert (found["httpproxy"], found["systemd"]) == (False, "false"), "nothing of the host's"
    assert found["healthconfig"] == {"Test": ["NONE"]}
    assert (found["oci_runtime"], found["sysctl"]) == ("runsc", {"fs.mqueue.queues_max": "1"})
    open_ = spec_of(evolve(PLAN, network=True, new_privileges=True, filtered=False, processes=None))
    assert (open_["netns"], open_["networks"]) == ({"nsmode": "bridge"}, {"ale-x": {}})
    assert (open_["no_new_privileges"], open_["seccomp_profile_path"]) == (False, "")
    assert open_["resource_limits"]["pids"] == {"limit": -1}, "else podman has one of its own"


def test_what_is_removed_while_a_list_is_made_is_left_out_of_it() -> None:
    why = 'locating image with ID "9283574950": image not known'
    gone = (500, {"cause": "image not known", "message": f"retrieving parent of image: {why}"})
    with answering(gone, gone, (200, [{"Id": "8", "Labels": None}])) as engine:
        assert [image.id for image in engine.images("ale.record")] == ["8"]


def test_an_image_is_looked_at_again_if_podman_crashed_at_it() -> None:
    why = "runtime error: invalid memory address or nil pointer dereference"
    crashed = (500, {"cause": why, "message": why})
    with answering(crashed, crashed, (200, {"Id": "8", "Config": {}})) as engine:
        assert engine.image("busybox").id == "8"


def test_an_image_that_is_not_there_is_asked_for_once() -> None:
    missing = (404, {"cause": "image not known", "message": "no such image"})
    with answering(missing) as engine, pytest.raises(NotFoundError):
        engine.image("busybox")


def test_files_are_sent_again_where_nothing_was_there_to_unpack_them() -> None:
    why = "passing bulk input to subprocess: write |1: broken pipe"
    with answering((500, {"cause": why, "message": why}), (200, {})) as engine:
        engine.put("box", "/", lambda: iter([b"tar"]))


def test_any_other_error_of_an_unpacking_is_reported() -> None:
    full = (500, {"cause": "", "message": "no space left on device"})
    with answering(full) as engine, pytest.raises(SandboxError, match="no space left"):
        engine.put("box", "/", lambda: iter([b"tar"]))


def test_an_error_that_persists_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image without its layers, say, which somebody has to remove."""
    monkeypatch.setattr("ale_sandbox_podman.engine._PASSING_S", 0.0)
    broken = (500, {"cause": "layer not known", "message": "layer not known"})
    with answering(broken) as engine, pytest.raises(SandboxError, match="layer not known"):
        engine.images("ale.record")
    with (
        answering(ENDED) as engine,
        pytest.raises(SandboxError, match="still reports box"),
    ):
        engine.state("box")


def test_any_other_error_of_a_list_is_reported() -> None:
    full = (500, {"cause": "", "message": "no space left on device"})
    with answering(full) as engine, pytest.raises(SandboxError, match="no space left"):
        engine.containers("ale.record")


def test_an_address_with_ssh_is_refused_with_what_works() -> None:
    options = PodmanOptions(host="ssh://host/run/podman/podman.sock")
    with pytest.raises(NotUsableError, match=r"ssh://host/.* forward its socket: ssh -NL"):
        build(options, BuildContext())


def test_the_limits_are_those_of_the_control_groups_that_it_may_use() -> None:
    facts = facts_of(info("v1", [], rootless=True))
    assert not any((facts.holds_memory, facts.holds_processes, facts.holds_cpu, facts.pauses))
    assert not facts.root_is_root
    facts = facts_of(info("v2", ["memory", "pids"], rootless=True))
    assert (facts.holds_memory, facts.holds_processes, facts.holds_cpu) == (True, True, False)
    assert facts.pauses
    facts = facts_of(info("v1", ["cpu", "memory", "pids"], rootless=False))
    assert (facts.holds_cpu, facts.pauses, facts.root_is_root) == (True, True, True)


@pytest.mark.parametrize(
    ("driver", "rootless", "layered"),
    [("overlay", False, True), ("overlay", True, False), ("btrfs", False, False)],
)
def test_layers_can_be_read_by_root_where_the_driver_has_them(
    driver: str, rootless: bool, layered: bool
) -> None:
    assert facts_of(info("v2", [], rootless=rootless, driver=driver)).layered == layered


def info(
    version: str, groups: list[str], *, rootless: bool, driver: str = "overlay"
) -> dict[str, Any]:
    """What Podman says of itself."""
    return {
        "version": {"Version": "4.3.1"},
        "host": {
            "ociRuntime": {"name": "runc"},
            "cgroupVersion": version,
            "cgroupControllers": groups,
            "security": {"rootless": rootless, "seccompEnabled": True},
        },
        "store": {"graphDriverName": driver},
    }
