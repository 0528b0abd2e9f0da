"""What a compose file says, made into what one sandbox needs of it.

The agent's service becomes the sandbox's own container, with the supervisor, the limits and the
missing privileges that every sandbox has. The other services stay as they are, without what would
clash with another sandbox: names of containers, and ports of the host.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from attrs import frozen

from ale.errors import SandboxError
from ale_sandboxing.container.engine import Plan
from ale_sandboxing.process import seccomp

SERVICES = ("main", "client")
"""Names that the agent's service may have: Harbor's, and Terminal-Bench's."""
_DROPPED = ("container_name", "ports", "pull_policy")
_OURS = (
    *("build", "image", "command", "entrypoint", "working_dir", "user", "labels", "cap_add"),
    *("privileged", "security_opt", "deploy", "mem_limit", "cpus", "healthcheck", "tty"),
    *("stdin_open", "init", "restart", "runtime", "read_only", "logging", "pid", "ipc"),
)
"""Of the agent's service, set for the sandbox or left out."""
_LOGS = ("${T_BENCH_TASK_LOGS_PATH", "${T_BENCH_TASK_AGENT_LOGS", "${HOST_")
"""Volumes that start so are the harnesses' own logs."""
VARIABLES = {
    "T_BENCH_TEST_DIR": "/tests",
    "T_BENCH_CONTAINER_LOGS_PATH": "/logs",
    "T_BENCH_CONTAINER_AGENT_LOGS_PATH": "/agent-logs",
    "T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME": "client",
    "CONTEXT_DIR": ".",
    "TEST_DIR": "/tests",
    "ENV_VERIFIER_LOGS_PATH": "/logs/verifier",
    "ENV_AGENT_LOGS_PATH": "/logs/agent",
    "ENV_ARTIFACTS_PATH": "/logs/artifacts",
}
"""What harnesses put in place of variables in a compose file."""
SIZES = {"CPUS": "1", "MEMORY": "1G"}
"""Likewise, where the task does not say."""

_VARIABLE = re.compile(r"\$(?:\$|\{?([A-Za-z_]\w*))")

Document = dict[str, Any]


@frozen(kw_only=True)
class Stack:
    """A compose file and which of its services is the agent's."""

    file: Path
    service: str
    document: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        """That its paths are relative to."""
        return self.file.parent

    @property
    def variables(self) -> frozenset[str]:
        """Every one that is filled in, and those that a build is given by name alone."""
        named = {name for name in _VARIABLE.findall(json.dumps(self.document, default=str)) if name}
        builds = [about.get("build") for about in self.services.values()]
        for build in builds:
            arguments = _pairs(build.get("args")) if isinstance(build, Mapping) else {}
            named |= {name for name, value in arguments.items() if value is None}
        return frozenset(named)

    @property
    def services(self) -> dict[str, Document]:
        """All of them, by name."""
        return {str(name): dict(about or {}) for name, about in self.document["services"].items()}

    @property
    def completing(self) -> frozenset[str]:
        """Services that others wait for to end with exit code 0."""
        waits = [_asked(about) for about in self.services.values()]
        return frozenset(
            name
            for asked in waits
            for name, how in asked.items()
            if how.get("condition") == "service_completed_successfully"
        )

    def named(self, tag: str, image: str | None) -> Document:
        """The file with a name for every image that is built.

        Args:
            tag: that the names begin with.
            image: of the agent's service, where the task names one.
        """
        services = self.services
        main = services[self.service]
        if image is not None:
            main.pop("build", None)
            main["image"] = image
        elif "build" not in main and "image" not in main:
            main["build"] = {"context": "."}
        for name, about in services.items():
            _name(about, f"{tag}-{name}")
        rest = {key: value for key, value in self.document.items() if key not in _UNUSED}
        kinds = [kind for kind in rest if kind in ("networks", "volumes")]
        shared = {kind: _unnamed(rest[kind]) for kind in kinds}
        return {**rest, **shared, "services": services}

    def of(self, plan: Plan, named: Document) -> Document:
        """The file for one sandbox; every image in it is there, or is pulled."""
        services = {
            name: {key: value for key, value in about.items() if key != "build"}
            for name, about in named["services"].items()
        }
        services[self.service] = _own(services[self.service], plan)
        for about in services.values():
            _wait_for_no_health(about, self.service)
        volumes = {**(named.get("volumes") or {}), plan.shell.name: {"external": True}}
        document = {**named, "services": services, "volumes": volumes}
        if not plan.network:
            document["networks"] = _internal(named.get("networks"))
            for about in services.values():
                if about.get("network_mode") == "bridge":
                    about["network_mode"] = "none"  # the engine's usual network leads out
        return document


def _name(about: Document, image: str) -> None:
    """Give a service's image a name, and take what would clash with another sandbox."""
    for key in _DROPPED:
        about.pop(key, None)
    if "volumes" in about:
        about["volumes"] = [one for one in about["volumes"] if not _is_log(one)]
    if "build" in about:
        about["image"] = image
        about["build"] = _with_context(about["build"])


_UNUSED = ("version", "name")


def read(file: Path) -> Stack:
    """Read a compose file.

    Where it has only other services, the agent's is `main`, as Harbor has it: of the image that the
    task names, or built in the file's folder.

    Raises:
        SandboxError: it is none, or has no services.
    """
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SandboxError(f"{file} can't be read: {' '.join(str(error).split())}") from None
    services = document.get("services") if isinstance(document, dict) else None
    if not isinstance(services, dict) or not services:
        raise SandboxError(f"{file} has no services")
    found = next((name for name in SERVICES if name in services), None)
    if found is None:
        found = SERVICES[0]
        document = {**document, "services": {found: {}, **services}}
    return Stack(file=file, service=found, document=document)


def _own(about: Document, plan: Plan) -> Document:
    kept = {key: value for key, value in about.items() if key not in _OURS}
    if kept.get("network_mode") == "host":
        del kept["network_mode"]
    binds = [
        {"type": "bind", "source": str(path), "target": str(path), "read_only": True}
        for path in plan.binds
    ]
    shell = {"type": "volume", "source": plan.shell.name, "target": plan.shell.target}
    binds.append({**shell, "read_only": True})
    made = {
        **kept,
        "image": plan.image,
        "container_name": plan.name,
        "entrypoint": _plain(list(plan.entrypoint)),
        "command": [],
        "stdin_open": True,
        "working_dir": plan.workdir,
        "environment": {**_pairs(about.get("environment")), **_plain(dict(plan.env))},
        "labels": _plain(dict(plan.labels)),
        "volumes": [*(about.get("volumes") or []), *binds],
        "cap_drop": ["ALL"],
        "cap_add": list(plan.capabilities),
        "security_opt": _security(plan),
        "read_only": plan.read_only,
        # It would be of what the supervisor is started in place of.
        "healthcheck": {"disable": True},
    }
    optional = {
        "user": plan.user,
        "runtime": plan.runtime,
        "sysctls": {**_pairs(about.get("sysctls")), **plan.sysctls} or None,
        "cpus": plan.cpus,
        "mem_limit": plan.memory_bytes,
        "memswap_limit": plan.memory_bytes,
        "pids_limit": plan.processes,
        "tmpfs": [
            *(f"{path}:mode=1777,size={size}" for path, size in plan.tmpfs.items()),
            *(f"{path}:ro" for path in plan.closed),
        ]
        or None,
    }
    return {**made, **{key: value for key, value in optional.items() if value is not None}}


def _security(plan: Plan) -> list[str]:
    options = [] if plan.new_privileges else ["no-new-privileges"]
    # Docker compose reads the file and sends what is in it.
    return [*options, f"seccomp={seccomp.PROFILE}"] if plan.filtered else options


def _asked(about: Document) -> Document:
    said = about.get("depends_on") or []
    if isinstance(said, Mapping):
        return {name: dict(how) for name, how in said.items()}
    return {name: {"condition": "service_started"} for name in said}


def without_conditions(document: Document) -> Document:
    """The file with dependencies that are only an order."""
    services = {
        name: {**about, "depends_on": list(_asked(about))}
        for name, about in document["services"].items()
    }
    return {**document, "services": services}


def _wait_for_no_health(about: Document, own: str) -> None:
    """Of the agent's service, which begins without what it is to be healthy with."""
    asked = _asked(about)
    if asked.get(own, {}).get("condition") == "service_healthy":
        about["depends_on"] = {**asked, own: {**asked[own], "condition": "service_started"}}


def _with_context(build: Any) -> Document:
    """Version 1 of docker compose wants it to be said."""
    return {"context": ".", **build} if isinstance(build, Mapping) else {"context": build}


def _is_log(volume: Any) -> bool:
    source = volume.get("source", "") if isinstance(volume, Mapping) else volume
    return str(source).startswith(_LOGS)


def _pairs(written: Any) -> dict[str, Any]:
    if isinstance(written, Mapping):
        return dict(written)
    pairs = (str(item).partition("=") for item in written or [])
    return {name: value if equals else None for name, equals, value in pairs}


def _plain(value: Any) -> Any:
    """Text that compose is not to fill anything into."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, dict):
        return {name: _plain(text) for name, text in value.items()}
    return [_plain(text) for text in value]


def _unnamed(written: Any) -> Document:
    """Without names that would make it another sandbox's too."""
    return {
        name: {key: value for key, value in (about or {}).items() if key != "name"}
        for name, about in (written or {}).items()
    }


def _internal(networks: Any) -> Document:
    """Networks that lead nowhere else."""
    found = dict(networks or {})
    return {name: {**(found.get(name) or {}), "internal": True} for name in {"default", *found}}
