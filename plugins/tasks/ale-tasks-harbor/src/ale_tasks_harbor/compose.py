"""A ``docker-compose.yaml`` of either format.

One service that asks for nothing odd is read here and is a sandbox like any other. Whatever else is
left to docker compose, but for what would reach into this machine.
"""

import platform
import posixpath
import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from attrs import evolve, field, frozen

from ale.errors import InputError
from ale_tasks_harbor import compose_policy, health, interpolation
from ale_tasks_harbor.checks import NO_SIZE, mebibytes
from ale_tasks_harbor.folder import Folder
from ale_tasks_harbor.values import Values
from ale_tasks_harbor.variables import STORED, looks_secret

FILE = "docker-compose.yaml"
_GIVEN = {
    "T_BENCH_TEST_DIR": "/tests",
    "T_BENCH_CONTAINER_LOGS_PATH": "/logs",
    "T_BENCH_CONTAINER_AGENT_LOGS_PATH": "/agent-logs",
    "T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME": "client",
    "T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME": "",
    "T_BENCH_TASK_DOCKER_NAME_PREFIX": "",
    "T_BENCH_TASK_LOGS_PATH": "",
    "T_BENCH_TASK_AGENT_LOGS_PATH": "",
    "CONTEXT_DIR": ".",
    "MAIN_IMAGE_NAME": "",
    "TEST_DIR": "/tests",
    "ENV_VERIFIER_LOGS_PATH": "/logs/verifier",
    "ENV_AGENT_LOGS_PATH": "/logs/agent",
    "ENV_ARTIFACTS_PATH": "/logs/artifacts",
}
"""Values that the harnesses put in place of these; empty if a task says them elsewhere."""
_STORED = ("command", "entrypoint", "healthcheck", "user", "working_dir", "environment", "image")
"""Keys whose values are kept with the run."""
_NOTHING = {
    *("image", "container_name", "tty", "stdin_open", "init", "restart", "pull_policy"),
    *("hostname", "logging", "stop_grace_period"),
}
"""Keys that change nothing in what a task means."""
_HANDLED = {
    *("build", "command", "healthcheck", "environment", "volumes", "platform", "mem_limit"),
    *("cpus", "deploy"),
}
_IDLE = re.compile(r"(?:(?:/bin/)?(?:ba)?sh\s+-c\s+)?\s*['\"]?\s*(?:sleep\s+infinity|tail\s+-f.*)")


@frozen(kw_only=True)
class Client:
    """The container that the agent works in."""

    env: Mapping[str, str] = field(factory=dict)
    image: str | None = None
    """Where nothing is built."""
    cpus: float | None = None
    memory_mb: int | None = None
    command: tuple[str, ...] = ()
    """Its program, unless that only waits."""
    entrypoint: tuple[str, ...] = ()
    """The program that gets `command` as arguments."""
    health: str = health.OF_THE_IMAGE
    """Shell script that makes its health check the arguments."""
    workdir: str | None = None
    user: str | None = None
    several: bool = False
    """It is for docker compose to make."""
    refused: tuple[tuple[str, str], ...] = ()
    """Key and reason of what can't be given."""
    paths: tuple[compose_policy.HostPath, ...] = ()
    """Paths of this machine that, read literally, stay in the file's folder."""

    def refusals(self, folder: Folder) -> list[tuple[str, str]]:
        """All that can't be given: links of the file's folder that lead out of it too."""
        led = (path for path in self.paths if not _stays(folder, path))
        return [*self.refused, *(path.refusal for path in led)]


def _stays(folder: Folder, path: compose_policy.HostPath) -> bool:
    words = posixpath.normpath(compose_policy.inside(path.path))
    if "/" not in words and words != ".." and not folder.links(words):
        return True
    root = Path(folder.path).resolve()
    return (root / words).resolve().is_relative_to(root)


def read(
    folder: Folder,
    environ: Mapping[str, str],
    own: Mapping[str, str],
    values: Values,
    *,
    implied: bool = False,
) -> Client:
    """Read a folder's file, if there is one, with the variables that docker compose would fill in.

    Args:
        environ: the host's.
        own: the task's, which go before them. Those of a file ``.env`` come last.
        values: get the problems of the file.
        implied: there is a service `main` where the file has only others, as in Harbor.
    """
    if not folder.has(FILE):
        return Client()
    file = folder.at(FILE)
    try:
        client = _read(folder, environ, own, implied=implied)
    except InputError as error:
        values.problems.extend(error.problems)
        return Client()
    except (OSError, ValueError, yaml.YAMLError) as error:
        values.note(file, f"can't be read: {' '.join(str(error).split())}")
        return Client()
    for path, why in client.refusals(folder):
        values.note(file, why, path)
    return client


def _read(
    folder: Folder, environ: Mapping[str, str], own: Mapping[str, str], *, implied: bool
) -> Client:
    text = folder.text(FILE)
    last = interpolation.pairs_of(folder.text(".env")) if folder.has_file(".env") else {}
    words = interpolation.words_of(text)
    hosts = (words & environ.keys()) - own.keys() - _GIVEN.keys()
    known = {**last, **{name: environ[name] for name in hosts}, **own, **_GIVEN}
    named = tuple((name, known[name]) for name in sorted(words & known.keys()))
    secrets = frozenset(name for name in hosts if looks_secret(name))
    return client_of(text, implied=implied, variables=named, secrets=secrets)


@lru_cache(maxsize=256)
def client_of(
    text: str,
    *,
    implied: bool,
    variables: tuple[tuple[str, str], ...],
    secrets: frozenset[str],
) -> Client:
    """As `read`. Most tasks have the same file, letter by letter.

    Args:
        variables: those that the file may name.
        secrets: of them, those that are not to be kept.
    """
    document = yaml.load(text, yaml.CSafeLoader)
    services = document.get("services") if isinstance(document, dict) else None
    if not isinstance(services, dict) or not services:
        return _refuse("services", "expected a table with the service 'main' or 'client'")
    for name, service in services.items():
        if not isinstance(service, dict):
            return _refuse(f"services.{name}", "expected a table")
    if implied and not {"main", "client"} & set(services):
        services = {"main": {}, **services}
    own = next((name for name in ("main", "client") if name in services), None)
    if own is None and len(services) > 1:
        return _refuse("services", "none of them is called 'main' or 'client'")
    name = str(own or next(iter(services)))
    refused = [*compose_policy.refusals(document, name)]
    others = [key for key in document if key not in ("services", "version", "name", "volumes")]
    plain = interpolation.filled(services[name], dict(variables))
    several = len(services) > 1 or bool(others) or _is_odd(services[name], plain)
    if several and own is None:
        refused.append(("services", f"'{name}' has to be called 'main' or 'client'"))
    refused += _secrets_of(f"services.{name}", services[name], secrets, several=several)
    client = _client(f"services.{name}", plain, dict(variables), several, refused)
    inside = (
        path for path in compose_policy.paths(document) if not compose_policy.is_outside(path.path)
    )
    return evolve(client, paths=tuple(inside))


def _refuse(key: str, why: str) -> Client:
    return Client(refused=((key, why),))


def _is_odd(service: dict[str, Any], plain: dict[str, Any]) -> bool:
    """Does it ask for what only docker compose gives?"""
    if any(key not in _NOTHING | _HANDLED for key in service):
        return True
    if "build" in plain and not _is_plain_build(plain["build"]):
        return True
    volumes = service.get("volumes", [])
    listed = volumes if isinstance(volumes, list) else [volumes]
    return any(not str(volume).startswith(compose_policy.LOGS) for volume in listed)


def _is_plain_build(build: Any) -> bool:
    """Is it of the Dockerfile in the task's folder, and nothing more?"""
    wanted = build if isinstance(build, dict) else {"context": build}
    context, file = wanted.get("context", "."), wanted.get("dockerfile", "Dockerfile")
    own = str(context).rstrip("/") in (".", "") and str(file).removeprefix("./") == "Dockerfile"
    return own and set(wanted) <= {"context", "dockerfile"}


def _secrets_of(
    path: str, service: dict[str, Any], secrets: frozenset[str], *, several: bool
) -> list[tuple[str, str]]:
    """Where one would be kept with the run. What docker compose fills in is not."""
    used = {key: interpolation.names_in(service.get(key)) for key in _STORED}
    used["environment"] |= {
        name for name, value in _pairs(service.get("environment")).items() if value is None
    }
    kept = [key for key in _STORED if not (several and key in ("environment", "image"))]
    return [
        (f"{path}.{key}", STORED.format(name=name))
        for key in kept
        for name in sorted(used[key] & secrets)
    ]


def _client(
    path: str,
    service: dict[str, Any],
    variables: Mapping[str, str],
    several: bool,
    refused: list[tuple[str, str]],
) -> Client:
    problem = _platform_problem(service["platform"]) if "platform" in service else None
    if problem is not None:
        refused.append((f"{path}.platform", problem))
    limits = _limits(service)
    # Where docker compose makes it, it also knows its environment and its image.
    image = None if "build" in service else str(service.get("image", "")) or None
    return Client(
        env={} if several else _environment(service.get("environment"), variables),
        image=None if several else image,
        cpus=limits[0],
        memory_mb=limits[1],
        command=_command(service.get("command") or []),
        entrypoint=_command(service.get("entrypoint") or []),
        health=health.of_service(service.get("healthcheck")),
        workdir=_text(service, "working_dir"),
        user=_text(service, "user"),
        several=several,
        refused=tuple(refused),
    )


def _text(service: dict[str, Any], key: str) -> str | None:
    return str(service[key]) if key in service else None


def _command(command: Any) -> tuple[str, ...]:
    """The container's program; nothing if it would only wait."""
    words = list(map(str, command)) if isinstance(command, list) else shlex.split(str(command))
    text = " ".join(words).strip()
    if not text or (_IDLE.match(text) and "&" not in text and ";" not in text):
        return ()
    return tuple(words)


def _platform_problem(wanted: Any) -> str | None:
    own = {"x86_64": "linux/amd64", "AMD64": "linux/amd64", "aarch64": "linux/arm64"}
    here = own.get(platform.machine(), platform.machine())
    return None if wanted == here else f"this machine is {here}, the task wants {wanted}"


def _limits(service: dict[str, Any]) -> tuple[float | None, int | None]:
    deploy = service.get("deploy")
    resources = deploy.get("resources", {}) if isinstance(deploy, dict) else {}
    limits = resources.get("limits", {}) if isinstance(resources, dict) else {}
    cpus = str(service.get("cpus", limits.get("cpus", "")))
    memory = str(service.get("mem_limit", limits.get("memory", "")))
    size = mebibytes(memory) if memory else 0
    if size is None:
        raise ValueError(NO_SIZE.format(text=memory))
    # Docker takes 0 as no limit.
    return float(cpus or 0) or None, size or None


def _environment(written: Any, variables: Mapping[str, str]) -> dict[str, str]:
    """One without a value has that of the host, or is not there."""
    found = {
        name: variables.get(name) if value is None else value
        for name, value in _pairs(written).items()
    }
    return {name: value for name, value in found.items() if value is not None}


def _pairs(written: Any) -> dict[str, str | None]:
    if isinstance(written, dict):
        pairs = written.items()
        return {str(name): None if value is None else _as_text(value) for name, value in pairs}
    split = (str(item).partition("=") for item in written or [])
    return {name: value if equals else None for name, equals, value in split}


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
