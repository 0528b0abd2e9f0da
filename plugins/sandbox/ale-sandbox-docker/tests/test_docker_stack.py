"""What an engine and docker compose are asked for, for one sandbox."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from attrs import evolve

from ale.errors import SandboxError
from ale_sandbox_docker.client import ComposeClient
from ale_sandbox_docker.compose import Composed
from ale_sandbox_docker.engine import DockerEngine
from ale_sandbox_docker.stack import read
from ale_sandboxing.container.engine import Plan, State, Volume
from ale_sandboxing.process import seccomp

FILE = """
version: "3"
services:
  main:
    build: {args: {A: b}}
    container_name: taken
    command: run
    user: root
    privileged: true
    network_mode: host
    cap_add: [SYS_ADMIN]
    ports: ["80:80"]
    environment: ["ONE=1", "TWO"]
    volumes: ["${HOST_LOGS}:/logs", "data:/data"]
    depends_on: [db]
  db:
    image: db:1
    container_name: taken-too
    ports: ["5432:5432"]
    volumes: ["data:/data"]
networks: {back: {}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "docker-compose.yaml"
    path.write_text(FILE)
    return path


def plan(*, network: bool = True) -> Plan:
    return Plan(
        name="ale-x",
        image="tag-main",
        entrypoint=("/sh", "-c", "echo $key"),
        workdir="/app",
        labels={"ale.id": "x"},
        shell=Volume(name="shell", target="/.ale", read_only=True),
        binds=(Path("/data"),),
        env={"TWO": "a$b"},
        network=network,
        cpus=1.5,
        memory_bytes=1 << 30,
        processes=7,
        capabilities=("CHOWN",),
        filtered=True,
    )


@pytest.fixture(scope="module")
def engine() -> Iterator[DockerEngine]:
    """An engine that says its version, and nothing else."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"ApiVersion": "1.41"}')

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    made = DockerEngine(f"tcp://127.0.0.1:{server.server_address[1]}", {})
    yield made
    made.close()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_container_is_asked_for_with_all_that_confines_it(engine: DockerEngine) -> None:
    asked = evolve(
        plan(network=False),
        user="1000:1000",
        volumes=("/app",),
        read_only=True,
        closed=("/dev/shm",),
        tmpfs={"/tmp": 1 << 20},
        runtime="runsc",
        sysctls={"fs.mqueue.queues_max": "1"},
    )
    found = engine._container(asked)
    assert (found["User"], found["Volumes"]) == ("1000:1000", {"/app": {}})
    assert found["Healthcheck"] == {"Test": ["NONE"]}
    host = found["HostConfig"]
    assert (host["CapDrop"], host["CapAdd"], host["Privileged"]) == (["ALL"], ["CHOWN"], False)
    privileges, rules = host["SecurityOpt"]
    assert (privileges, rules.partition("=")[0]) == ("no-new-privileges", "seccomp")
    assert json.loads(rules.partition("=")[2]) == json.loads(seccomp.PROFILE.read_text())
    assert (host["NetworkMode"], host["ReadonlyRootfs"]) == ("none", True)
    assert (host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (1 << 30, 1 << 30, 7)
    assert host["NanoCpus"] == 1_500_000_000
    assert (host["Runtime"], host["Sysctls"]) == ("runsc", {"fs.mqueue.queues_max": "1"})
    assert host["Tmpfs"] == {
        "/dev/shm": "ro",
        "/tmp": "rw,nosuid,nodev,exec,mode=1777,size=1048576",
    }
    assert host["Mounts"] == [
        {"Type": "bind", "Source": "/data", "Target": "/data", "ReadOnly": True},
        {"Type": "volume", "Source": "shell", "Target": "/.ale", "ReadOnly": True},
    ]
    asked = evolve(asked, new_privileges=True, filtered=False)
    assert engine._container(asked)["HostConfig"]["SecurityOpt"] == []


def test_what_is_built_has_a_name_and_nothing_clashes(file: Path) -> None:
    named = read(file).named("tag", None)
    assert named["services"]["main"]["image"] == "tag-main"
    assert named["services"]["main"]["build"] == {"context": ".", "args": {"A": "b"}}
    assert named["services"]["db"] == {"image": "db:1", "volumes": ["data:/data"]}
    assert "container_name" not in named["services"]["main"]
    assert "version" not in named


def test_the_tasks_own_image_goes_before_a_build_and_none_is_the_folder(file: Path) -> None:
    main = read(file).named("tag", "own:1")["services"]["main"]
    assert main["image"] == "own:1"
    assert "build" not in main
    file.write_text("services: {client: }")
    main = read(file).named("tag", None)["services"]["client"]
    assert main == {"build": {"context": "."}, "image": "tag-client"}


def test_the_agents_service_is_a_sandbox_and_the_others_are_as_they_were(file: Path) -> None:
    stack = read(file)
    made = stack.of(plan(), stack.named("tag", None))
    assert made["services"]["db"] == {"image": "db:1", "volumes": ["data:/data"]}
    main = made["services"]["main"]
    for key in ("build", "privileged", "network_mode", "ports", "user"):
        assert key not in main
    assert main["healthcheck"] == {"disable": True}, "its image may have one"
    assert (main["image"], main["container_name"]) == ("tag-main", "ale-x")
    assert main["entrypoint"] == ["/sh", "-c", "echo $$key"]
    assert (main["command"], main["working_dir"]) == ([], "/app")
    assert main["environment"] == {"ONE": "1", "TWO": "a$$b"}
    assert main["volumes"] == [
        "data:/data",
        {"type": "bind", "source": "/data", "target": "/data", "read_only": True},
        {"type": "volume", "source": "shell", "target": "/.ale", "read_only": True},
    ]
    assert made["volumes"] == {"shell": {"external": True}}
    assert (main["cap_drop"], main["cap_add"]) == (["ALL"], ["CHOWN"])
    assert main["security_opt"] == ["no-new-privileges", f"seccomp={seccomp.PROFILE}"]
    unfiltered = stack.of(evolve(plan(), filtered=False), stack.named("tag", None))
    assert unfiltered["services"]["main"]["security_opt"] == ["no-new-privileges"]
    assert (main["cpus"], main["mem_limit"], main["pids_limit"]) == (1.5, 1 << 30, 7)
    assert main["depends_on"] == ["db"]
    assert made["networks"] == {"back": {}}


def test_programs_of_the_agents_service_gain_privileges_where_the_sandboxes_do(file: Path) -> None:
    stack = read(file)
    made = stack.of(evolve(plan(), new_privileges=True), stack.named("tag", None))
    assert made["services"]["main"]["security_opt"] == [f"seccomp={seccomp.PROFILE}"]


def test_the_variables_are_those_that_are_filled_in_and_a_builds_own(file: Path) -> None:
    build = "{context: ., args: [GIVEN, SET=1]}"
    file.write_text(f'services: {{main: {{build: {build}, command: "$A ${{B:-$C}} $$D E"}}}}')
    assert read(file).variables == {"A", "B", "C", "GIVEN"}


def test_no_service_waits_for_the_health_of_the_agents(file: Path) -> None:
    waits = "{main: {condition: service_healthy}, b: {condition: service_healthy}}"
    file.write_text(f"services: {{main: {{}}, b: {{}}, a: {{depends_on: {waits}}}}}")
    stack = read(file)
    made = stack.of(plan(), stack.named("tag", None))["services"]["a"]["depends_on"]
    assert made["main"] == {"condition": "service_started"}
    assert made["b"] == {"condition": "service_healthy"}


def test_without_a_network_no_network_leads_out(file: Path) -> None:
    stack = read(file)
    made = stack.of(plan(network=False), stack.named("tag", None))
    assert made["networks"] == {"default": {"internal": True}, "back": {"internal": True}}


def test_no_service_takes_the_engines_usual_network_where_there_is_to_be_none(file: Path) -> None:
    file.write_text("services: {main: {}, db: {image: a, network_mode: bridge}}")
    stack = read(file)
    closed = stack.of(plan(network=False), stack.named("tag", None))
    assert closed["services"]["db"]["network_mode"] == "none"
    opened = stack.of(plan(), stack.named("tag", None))
    assert opened["services"]["db"]["network_mode"] == "bridge"


def test_networks_and_volumes_have_no_name_that_another_sandbox_has_too(file: Path) -> None:
    more = "volumes: {v: {name: a, labels: {b: c}}, w: }\nnetworks: {n: {name: a}}"
    file.write_text(f"services: {{main: {{}}}}\n{more}")
    named = read(file).named("tag", None)
    assert named["volumes"] == {"v": {"labels": {"b": "c"}}, "w": {}}
    assert named["networks"] == {"n": {}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("services: [", "can't be read"),
        ("services: {}", "has no services"),
        ("[]", "has no services"),
    ],
)
def test_what_is_no_stack_is_refused(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(SandboxError, match=said):
        read(file)


def test_beside_other_services_alone_the_agents_is_main(file: Path) -> None:
    file.write_text("services: {web: {image: web:1}}")
    named = read(file).named("tag", None)
    assert named["services"]["main"] == {"build": {"context": "."}, "image": "tag-main"}
    assert read(file).named("tag", "own:1")["services"]["main"] == {"image": "own:1"}


def test_services_that_others_wait_for_to_complete_may_end(file: Path) -> None:
    waits = "{first: {condition: service_completed_successfully}, db: {condition: service_started}}"
    file.write_text(f"services: {{main: {{depends_on: {waits}}}, first: , db: }}")
    assert read(file).completing == {"first"}


def test_a_compose_program_that_fails_is_an_error_with_the_end_of_what_it_said(
    file: Path, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "docker-compose"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n[ $1 = version ] || { echo no such network; exit 17; }\n")
    program.chmod(0o755)
    stack = read(file)
    client = ComposeClient("unix:///nowhere", {"PATH": str(program.parent)})
    with pytest.raises(SandboxError, match=r"up of .* ended with 17:\nno such network"):
        client.run(stack, stack.document, "p", ["up"], "image")


RUNS, DONE, FAILED = (
    State(id="a", running=running, exit_code=code)
    for running, code in ((True, None), (False, 0), (False, 3))
)


@pytest.mark.parametrize(
    ("state", "completes", "ready"),
    [
        (RUNS, False, True),
        (RUNS, True, False),
        (DONE, True, True),
        (DONE, False, "has ended with exit code 0"),
        (FAILED, True, "has ended with exit code 3"),
        (evolve(RUNS, health="starting"), False, False),
        (evolve(RUNS, health="healthy"), False, True),
        (evolve(RUNS, health="unhealthy"), False, "is unhealthy"),
    ],
)
def test_a_service_is_ready_when_it_runs_is_healthy_or_has_completed(
    file: Path,
    engine: DockerEngine,
    monkeypatch: pytest.MonkeyPatch,
    state: State,
    completes: bool,
    ready: bool | str,
) -> None:
    waits = "{a: {condition: service_completed_successfully}}" if completes else "[a]"
    file.write_text(f"services: {{main: {{depends_on: {waits}}}, a: }}")
    stack = read(file)
    monkeypatch.setattr(engine, "state", lambda _: state)
    composed = Composed(engine=engine, stack=stack, named=stack.named("tag", None), main="tag-main")
    if isinstance(ready, str):
        with pytest.raises(SandboxError, match=ready):
            composed._is_ready("id", "a")
    else:
        assert composed._is_ready("id", "a") == ready
