"""Why a folder is refused: file, key and reason, while the others run."""

from collections.abc import Callable, Mapping
from textwrap import dedent

import pytest

from ale.errors import InputError
from ale_tasks_harbor.source import HarborSource

from .conftest import BENCH, HARBOR, Write

Source = Callable[..., HarborSource]


def _compose(service: str) -> Mapping[str, str]:
    text = f"services:\n  client:\n    build: .\n    {service}\n"
    return {**BENCH, "docker-compose.yaml": text}


def _beside(service: str, more: str = "") -> Mapping[str, str]:
    """A Harbor task with a service beside the agent's."""
    text = f"services:\n  main: {{}}\n  db:\n    image: a\n    {service}\n{more}\n"
    return {**HARBOR, "environment/docker-compose.yaml": text}


def _toml(text: str) -> Mapping[str, str]:
    return {**HARBOR, "task.toml": text}


REFUSED: Mapping[str, tuple[Mapping[str, str], str, str | None, str]] = {
    "not-toml": (_toml("[agent\n"), "task.toml", None, "not TOML"),
    "no-instruction": ({**HARBOR, "instruction.md": ""}, "instruction.md", None, "can't be read"),
    "no-tests": ({**HARBOR, "tests/test.sh": ""}, "tests/test.sh", None, "no such file"),
    "crlf": (
        {**HARBOR, "tests/test.sh": "#!/bin/sh\r\necho 1 >/logs/verifier/reward.txt\r\n"},
        "tests/test.sh",
        None,
        "line 1 ends in CR LF",
    ),
    "no-dockerfile": ({**HARBOR, "environment/Dockerfile": ""}, "task.toml", None, "docker_image"),
    "wrong-type": (
        _toml("[environment]\ncpus = 'many'\n"),
        "task.toml",
        "environment.cpus",
        'expected a number, at least 0, found the text "many"',
    ),
    "below-zero": (_toml("[agent]\ntimeout_sec = -1\n"), "task.toml", "agent.timeout_sec", "above"),
    "size": (
        _toml("[environment]\nmemory = 'lots'\n"),
        "task.toml",
        "environment.memory",
        "such as 2G",
    ),
    "variable": (
        _toml('[environment.env]\nA = "${NO_SUCH}"\n'),
        "task.toml",
        "environment.env.A",
        "NO_SUCH of the host is not set",
    ),
    "secret": (
        _toml('[environment.env]\nA = "${MY_API_KEY}"\n'),
        "task.toml",
        "environment.env.A",
        "would be stored",
    ),
    "step-without-folder": (
        {**HARBOR, "task.toml": '[[steps]]\nname = "one"\n', "steps/two/x": "y"},
        "steps/one/instruction.md",
        None,
        "can't be read",
    ),
    "step-without-name": (
        _toml("[[steps]]\nmin_reward = 1\n"),
        "task.toml",
        "steps[0].name",
        "name of a folder",
    ),
    "step-that-no-folder-can-be-called": (
        {**HARBOR, "task.toml": f'[[steps]]\nname = "{"n" * 300}"\n', "steps/one/x": "y"},
        "task.toml",
        None,
        "can't be read: [Errno 36]",
    ),
    "min-reward": (
        {
            **HARBOR,
            "task.toml": '[[steps]]\nname = "one"\nmin_reward = "all"\n',
            "steps/one/instruction.md": "Do it.\n",
        },
        "task.toml",
        "steps[0].min_reward",
        "expected a number",
    ),
    "hosts-of-no-list": (
        _toml('[agent]\nnetwork_mode = "public"\nallowed_hosts = ["a.example"]\n'),
        "task.toml",
        "agent.allowed_hosts",
        "only with network_mode",
    ),
    "hosts-alone": (
        _toml('[environment]\nallowed_hosts = ["a.example"]\n'),
        "task.toml",
        "environment.allowed_hosts",
        "only with network_mode",
    ),
    "hosts-with-scheme": (
        _toml('[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["https://a.example"]\n'),
        "task.toml",
        "agent.allowed_hosts",
        "'https://a.example' has more than a host's name",
    ),
    "hosts-with-port": (
        _toml('[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.example:443"]\n'),
        "task.toml",
        "agent.allowed_hosts",
        "'a.example:443' has more than a host's name",
    ),
    "hosts-with-host-bits": (
        _toml('[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["10.0.0.1/8"]\n'),
        "task.toml",
        "agent.allowed_hosts",
        "'10.0.0.1/8' is an address in the network 10.0.0.0/8; name either",
    ),
    "environment-mode": (
        _toml('[verifier]\nenvironment_mode = "seperate"\n'),
        "task.toml",
        "verifier.environment_mode",
        "expected one of shared, separate",
    ),
    "network-of-several": (
        {
            **HARBOR,
            "task.toml": '[verifier]\nnetwork_mode = "no-network"\n',
            "environment/docker-compose.yaml": "services: {main: {}, db: {image: a}}\n",
        },
        "task.toml",
        "verifier.network_mode",
        "can't be limited for its tests",
    ),
    "relative-path-elsewhere": (
        _toml('artifacts = [{source = "a", service = "db"}]\n'),
        "task.toml",
        "artifacts",
        "expected an absolute path in db",
    ),
    "gpus": (_toml("[environment]\ngpus = 1\n"), "task.toml", "environment.gpus", "GPUs"),
    "windows": (_toml('[environment]\nos = "windows"\n'), "task.toml", "environment.os", "linux"),
    "way-out": (_toml('artifacts = ["/a/../b"]\n'), "task.toml", "artifacts", "expected a path"),
    "artifact-outside": (
        _toml('artifacts = [{source = "/a", destination = "../b"}]\n'),
        "task.toml",
        "artifacts",
        "expected a 'destination' below the artifacts, found '../b'",
    ),
    "artifact-over-the-manifest": (
        _toml('artifacts = [{source = "/a", destination = "./manifest.json"}]\n'),
        "task.toml",
        "artifacts",
        "expected a 'destination' below the artifacts",
    ),
    "artifact-without-patterns": (
        _toml('artifacts = [{source = "/a", exclude = "*.tmp"}]\n'),
        "task.toml",
        "artifacts",
        "expected patterns in 'exclude', found '*.tmp'",
    ),
    "privileged": (
        _compose("privileged: true"),
        "docker-compose.yaml",
        "services.client.privileged",
        "no container of a task is privileged",
    ),
    "host-network": (
        _compose("network_mode: host"),
        "docker-compose.yaml",
        "services.client.network_mode",
        "not given to a task",
    ),
    "socket": (
        _compose("volumes: ['/var/run/docker.sock:/var/run/docker.sock']"),
        "docker-compose.yaml",
        "services.client.volumes",
        "outside of the task's folder (/var/run/docker.sock:/var/run/docker.sock)",
    ),
    "way-up": (
        _compose("volumes: [{type: bind, source: ../../other, target: /other}]"),
        "docker-compose.yaml",
        "services.client.volumes",
        "outside of the task's folder",
    ),
    "devices": (
        _compose("devices: [/dev/sda]"),
        "docker-compose.yaml",
        "services.client.devices",
        "not supported",
    ),
    "env-file": (
        _compose("env_file: [{path: ~/.profile}]"),
        "docker-compose.yaml",
        "services.client.env_file",
        "outside of the task's folder",
    ),
    "context-outside": (
        _beside("build: /etc"),
        "environment/docker-compose.yaml",
        "services.db.build",
        "outside of the task's folder (/etc)",
    ),
    "context-by-a-variable": (
        _beside("build: {context: '${WHERE:-.}'}"),
        "environment/docker-compose.yaml",
        "services.db.build.context",
        "outside of the task's folder",
    ),
    "dockerfile-outside": (
        _beside("build: {context: ., dockerfile: ../../Dockerfile}"),
        "environment/docker-compose.yaml",
        "services.db.build.dockerfile",
        "outside of the task's folder",
    ),
    "more-contexts": (
        _beside("build: {context: ., additional_contexts: ['a=service:main', 'b=/root']}"),
        "environment/docker-compose.yaml",
        "services.db.build.additional_contexts",
        "outside of the task's folder (/root)",
    ),
    "layout-outside": (
        _beside("build: {context: ., additional_contexts: {b: 'oci-layout:///root'}}"),
        "environment/docker-compose.yaml",
        "services.db.build.additional_contexts",
        "outside of the task's folder",
    ),
    "privileged-build": (
        _beside("build: {context: ., privileged: true}"),
        "environment/docker-compose.yaml",
        "services.db.build.privileged",
        "no container of a task is privileged",
    ),
    "build-on-the-host-network": (
        {**BENCH, "docker-compose.yaml": "services: {client: {build: {network: host}}}\n"},
        "docker-compose.yaml",
        "services.client.build.network",
        "not given to a task",
    ),
    "bound-volume": (
        _beside("volumes: ['v:/v']", "volumes: {v: {driver_opts: {o: bind, device: /}}}"),
        "environment/docker-compose.yaml",
        "volumes.v.driver_opts",
        "not one of this machine's",
    ),
    "volume-of-others": (
        _beside("volumes: ['v:/v']", "volumes: {v: {external: true}}"),
        "environment/docker-compose.yaml",
        "volumes.v.external",
        "not the task's own",
    ),
    "network-of-others": (
        _beside("networks: [n]", "networks: {n: {driver: macvlan}}"),
        "environment/docker-compose.yaml",
        "networks.n.driver",
        "not supported",
    ),
    "all-capabilities": (
        _beside("cap_add: [ALL, NET_RAW, CAP_CHOWN]"),
        "environment/docker-compose.yaml",
        "services.db.cap_add",
        "the capability ALL reaches beyond",
    ),
    "unconfined": (
        _beside("security_opt: ['seccomp:unconfined', 'no-new-privileges:true']"),
        "environment/docker-compose.yaml",
        "services.db.security_opt",
        "(seccomp:unconfined)",
    ),
    "engines-socket": (
        _compose("use_api_socket: true"),
        "docker-compose.yaml",
        "services.client.use_api_socket",
        "not supported",
    ),
    "gpus-of-a-service": (
        _compose("gpus: all"),
        "docker-compose.yaml",
        "services.client.gpus",
        "not supported",
    ),
    "reserved-devices": (
        _beside("deploy: {resources: {reservations: {devices: [{capabilities: [gpu]}]}}}"),
        "environment/docker-compose.yaml",
        "services.db.deploy.resources.reservations.devices",
        "not supported",
    ),
    "another-containers-processes": (
        _beside("pid: 'container:other'"),
        "environment/docker-compose.yaml",
        "services.db.pid",
        "not given to a task",
    ),
    "network-by-a-variable": (
        _beside("network_mode: '${MODE:-none}'"),
        "environment/docker-compose.yaml",
        "services.db.network_mode",
        "not given to a task",
    ),
    "program-of-the-host": (
        _beside("provider: {type: model}"),
        "environment/docker-compose.yaml",
        "services.db.provider",
        "not supported",
    ),
    "privileged-hook": (
        _compose("post_start: [{command: id, privileged: true}]"),
        "docker-compose.yaml",
        "services.client.post_start",
        "no container of a task is privileged",
    ),
    "secret-of-the-host": (
        _compose("environment: ['A=${MY_API_KEY}']"),
        "docker-compose.yaml",
        "services.client.environment",
        "the value of MY_API_KEY looks like a secret",
    ),
    "secret-by-name-alone": (
        _compose("environment: [MY_API_KEY]"),
        "docker-compose.yaml",
        "services.client.environment",
        "would be stored",
    ),
    "variable-that-must-be-set": (
        _compose("command: '${NO_SUCH:?say which}'"),
        "docker-compose.yaml",
        None,
        "the variable NO_SUCH is not set: say which",
    ),
    "no-time": (
        _compose("healthcheck: {test: a, interval: often}"),
        "docker-compose.yaml",
        None,
        "expected a time such as 30s",
    ),
    "host-file": (
        {
            **HARBOR,
            "environment/docker-compose.yaml": (
                "services: {main: {}, db: {}}\nsecrets: {a: {file: /etc/shadow}}\n"
            ),
        },
        "environment/docker-compose.yaml",
        "secrets.a.file",
        "outside of the task's folder",
    ),
    "include": (
        {
            **HARBOR,
            "environment/docker-compose.yaml": "include: [a.yaml]\nservices: {main: {}}\n",
        },
        "environment/docker-compose.yaml",
        "include",
        "other compose files",
    ),
    "no-main": (
        {**BENCH, "docker-compose.yaml": "services: {web: {}, db: {}}\n"},
        "docker-compose.yaml",
        "services",
        "none of them is called 'main' or 'client'",
    ),
    "not-yaml": ({**BENCH, "task.yaml": "a: [\n"}, "task.yaml", None, "not YAML"),
    "no-yaml-instruction": (
        {**BENCH, "task.yaml": "difficulty: easy\n"},
        "task.yaml",
        "instruction",
        "missing",
    ),
    "parser": (
        {**BENCH, "task.yaml": "instruction: a\nparser_name: junit\n"},
        "task.yaml",
        "parser_name",
        "expected one of pytest",
    ),
    "no-run-tests": ({**BENCH, "run-tests.sh": ""}, "run-tests.sh", None, "no such file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_that_can_not_be_run_is_refused_with_file_key_and_reason(
    name: str, write: Write, source: Source
) -> None:
    files, file, key, reason = REFUSED[name]
    folder = write(name, files)
    write("sound", HARBOR)
    made = source({"MY_API_KEY": "abc"})
    assert [task.id for task in made.load()] == ["sound"], "the others run"
    (problem,) = made.refused
    assert (problem.file, problem.path) == (str(folder / file), key)
    assert reason in problem.message, problem
    with pytest.raises(InputError):
        list(source({"MY_API_KEY": "abc"}, invalid="error").load())


def test_all_that_is_wrong_with_a_folder_is_said_at_once(write: Write, source: Source) -> None:
    write("one", _toml("[environment]\ncpus = -1\n\n[agent]\ntimeout_sec = 'me'\n"))
    with pytest.raises(InputError) as caught:
        list(source().load())
    assert {(p.path, p.line) for p in caught.value.problems} == {
        ("environment.cpus", 2),
        ("agent.timeout_sec", 5),
    }


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        ("[agent]\n\n[[environment]]\ncpus = 1\n", ("environment", 3)),
        ("[environment]\n[[environment.healthcheck]]\n", ("environment.healthcheck", 2)),
        ("environment = 1\n\n[agent]\n", ("environment", 1)),
    ],
)
def test_a_table_that_is_written_as_something_else_has_a_line(
    lines: str, place: tuple[str, int], write: Write, source: Source
) -> None:
    (write("one", _toml(lines)) / "environment" / "Dockerfile").unlink()
    with pytest.raises(InputError) as caught:
        list(source().load())
    found = [(p.path, p.line) for p in caught.value.problems]
    assert place in found
    # Not that there is no image: what was written otherwise may name one.
    assert len(found) == (1 if place[0] == "environment" else 2)


def test_of_several_steps_the_wrong_one_has_the_line(write: Write, source: Source) -> None:
    lines = """\
        [[steps]]
        name = 'one'
        agent = {timeout_sec = 'me'}
        [steps.verifier]
        timeout_sec = 'you'
        [[steps]]
        name = 'two'
        [steps.agent]
        user = ['root']
        [steps.verifier]
        timeout_sec = 'they'
        [[steps]]
        min_reward = 1
    """
    write("one", _toml(dedent(lines)))
    with pytest.raises(InputError) as caught:
        list(source().load())
    assert {(p.path, p.line) for p in caught.value.problems if p.line} == {
        ("steps[0].agent.timeout_sec", 3),
        ("steps[0].verifier.timeout_sec", 5),
        ("steps[1].agent.user", 9),
        ("steps[1].verifier.timeout_sec", 11),
        ("steps[2].name", 12),
    }


def test_a_link_in_the_folder_does_not_lead_out_of_it(write: Write, source: Source) -> None:
    folder = write("linked", _beside("volumes: ['./data/here:/a', './data/etc/passwd:/b']"))
    data = folder / "environment" / "data"
    data.mkdir()
    (data / "here").symlink_to("..")
    (data / "etc").symlink_to("/etc")
    write("sound", HARBOR)
    made = source()
    assert [task.id for task in made.load()] == ["sound"]
    (problem,) = made.refused
    assert problem.path == "services.db.volumes"
    assert "outside of the task's folder (./data/etc/passwd:/b)" in problem.message


def test_what_stays_in_the_tasks_own_containers_is_given(write: Write, source: Source) -> None:
    text = """
services:
  main:
    build: {context: "${CONTEXT_DIR}", dockerfile: Dockerfile}
    cap_add: [SYS_ADMIN]
    security_opt: ["seccomp:unconfined"]
  db:
    build: {context: ./db, dockerfile: sub/Dockerfile, additional_contexts: {b: docker-image://c}}
    cap_add: [NET_BIND_SERVICE, CAP_SYS_PTRACE]
    security_opt: ["no-new-privileges:true"]
    network_mode: service:main
    pid: service:main
    volumes: ["data:/data", "./conf:/conf", {type: tmpfs, target: /t}]
  far: {build: "https://example.invalid/a.git#main:sub", network_mode: none}
volumes:
  data: {name: shared}
  memory: {driver_opts: {type: tmpfs, device: tmpfs}}
networks: {back: {driver: bridge, name: same}}
"""
    write("one", {**HARBOR, "environment/docker-compose.yaml": text})
    made = source()
    assert [task.id for task in made.load()] == ["one"], made.refused
