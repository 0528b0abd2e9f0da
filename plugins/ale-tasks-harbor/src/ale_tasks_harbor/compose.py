"""A ``docker-compose.yaml`` of either format.

One service that asks for nothing odd is read here and is a sandbox like any other. Whatever else is
left to docker compose, but for what would reach into this machine.
"""

import platform
import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from attrs import evolve, field, frozen

from ale_tasks_harbor import reach
from ale_tasks_harbor.checks import mebibytes

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
    "CPUS": "",
    "MEMORY": "",
}
"""What the harnesses put in place of these; empty is what a task says elsewhere."""
_LOGS = ("${T_BENCH_TASK_LOGS_PATH", "${T_BENCH_TASK_AGENT_LOGS", "${HOST_")
"""Volumes that start so hold the harnesses' own logs, which a sandbox has anyway."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::?-([^}]*))?\}")
_NOTHING = frozenset(
    [
        "image",
        "container_name",
        "tty",
        "stdin_open",
        "init",
        "restart",
        "pull_policy",
        "hostname",
        "logging",
        "stop_grace_period",
    ]
)
"""Keys that change nothing in what a task means."""
_HANDLED = frozenset(
    [
        "build",
        "command",
        "environment",
        "volumes",
        "platform",
        "mem_limit",
        "cpus",
        "deploy",
    ]
)
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
    """What it runs besides waiting."""
    entrypoint: tuple[str, ...] = ()
    """What that is given to."""
    workdir: str | None = None
    user: str | None = None
    several: bool = False
    """It is for docker compose to make."""
    refused: tuple[tuple[str, str], ...] = ()
    """Key and reason of what can't be given."""
    paths: tuple[reach.HostPath, ...] = ()
    """Of this machine, inside the file's folder as far as their words tell."""

    def refusals(self, folder: Path) -> list[tuple[str, str]]:
        """All that can't be given: links of the folder that lead out of it too."""
        root = folder.resolve()
        led = (path for path in self.paths if not _stays(root, path))
        return [*self.refused, *(path.fault for path in led)]


def _stays(root: Path, path: reach.HostPath) -> bool:
    return (root / reach.inside(path.path)).resolve().is_relative_to(root)


@lru_cache(maxsize=256)
def client_of(text: str, *, implied: bool = False) -> Client:
    """Read the file. Most tasks have the same one, letter by letter.

    Args:
        implied: there is a service `main` where the file has only others, as in Harbor.

    Raises:
        ValueError, yaml.YAMLError: it is no YAML, or a limit in it is no number.
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
    refused = [*reach.faults(document, name)]
    others = [key for key in document if key not in ("services", "version", "name", "volumes")]
    several = len(services) > 1 or bool(others) or _is_odd(services[name])
    if several and own is None:
        refused.append(("services", f"'{name}' has to be called 'main' or 'client'"))
    client = _client(f"services.{name}", services[name], several, refused)
    inside = (path for path in reach.paths(document) if not reach.leads_out(path.path))
    return evolve(client, paths=tuple(inside))


def _refuse(key: str, why: str) -> Client:
    return Client(refused=((key, why),))


def _is_odd(service: dict[str, Any]) -> bool:
    """Does it ask for what only docker compose gives?"""
    if any(key not in _NOTHING | _HANDLED for key in service):
        return True
    checks = {"build": _build_fault, "volumes": _volumes_fault}
    return any(key in service and fault_of(service[key]) for key, fault_of in checks.items())


def _client(
    path: str, service: dict[str, Any], several: bool, refused: list[tuple[str, str]]
) -> Client:
    fault = _platform_fault(service["platform"]) if "platform" in service else None
    if fault is not None:
        refused.append((f"{path}.platform", fault))
    limits = _limits(service)
    # Where docker compose makes it, it also knows its environment and its image.
    image = None if "build" in service else _filled(str(service.get("image", ""))) or None
    return Client(
        env={} if several else _environment(service.get("environment")),
        image=None if several else image,
        cpus=limits[0],
        memory_mb=limits[1],
        command=_command(service.get("command") or []),
        entrypoint=_command(service.get("entrypoint") or []),
        workdir=_text(service, "working_dir"),
        user=_text(service, "user"),
        several=several,
        refused=tuple(refused),
    )


def _text(service: dict[str, Any], key: str) -> str | None:
    return _filled(str(service[key])) if key in service else None


def _build_fault(build: Any) -> str | None:
    wanted = build if isinstance(build, dict) else {"context": build}
    context, file = wanted.get("context", "."), wanted.get("dockerfile", "Dockerfile")
    if (
        _filled(str(context)).rstrip("/") not in (".", "")
        or str(file).removeprefix("./") != "Dockerfile"
    ):
        return f"only the Dockerfile of the task's folder can be built, not {build!r}"
    more = sorted(set(wanted) - {"context", "dockerfile"})
    return f"{', '.join(more)}: not supported yet" if more else None


def _command(command: Any) -> tuple[str, ...]:
    """What the container is to run; nothing where it would only wait."""
    words = list(map(str, command)) if isinstance(command, list) else shlex.split(str(command))
    text = " ".join(words).strip()
    if not text or (_IDLE.match(text) and "&" not in text and ";" not in text):
        return ()
    return tuple(map(_filled, words))


def _volumes_fault(volumes: Any) -> str | None:
    for volume in volumes if isinstance(volumes, list) else [volumes]:
        if not str(volume).startswith(_LOGS):
            return f"a volume is not supported yet ({volume})"
    return None


def _platform_fault(wanted: Any) -> str | None:
    own = {"x86_64": "linux/amd64", "AMD64": "linux/amd64", "aarch64": "linux/arm64"}
    here = own.get(platform.machine(), platform.machine())
    return None if wanted == here else f"this machine is {here}, the task wants {wanted}"


def _limits(service: dict[str, Any]) -> tuple[float | None, int | None]:
    deploy = service.get("deploy")
    resources = deploy.get("resources", {}) if isinstance(deploy, dict) else {}
    limits = resources.get("limits", {}) if isinstance(resources, dict) else {}
    cpus = _filled(str(service.get("cpus", limits.get("cpus", ""))))
    memory = _filled(str(service.get("mem_limit", limits.get("memory", ""))))
    return float(cpus) if cpus else None, mebibytes(memory) if memory else None


def _environment(written: Any) -> dict[str, str]:
    if isinstance(written, dict):
        pairs = [(str(key), "" if value is None else str(value)) for key, value in written.items()]
    else:
        pairs = [tuple(str(item).partition("=")[::2]) for item in written or []]  # type: ignore[misc]
    return {name: _filled(value) for name, value in pairs}


def _filled(text: str) -> str:
    return _VARIABLE.sub(lambda match: _GIVEN.get(match[1], match[2] or ""), text)
