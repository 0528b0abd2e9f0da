"""Refuses compose files that would reach into this machine.

The values are those of the file, before anything is filled in: what could be filled in with a way
out is refused too.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import frozen

_OF_THE_HOST = ("network_mode", "pid", "ipc", "userns_mode", "uts", "cgroup")
_ITS_OWN = re.compile(r"none|bridge|default|service:[^$]*")
"""Networks of a container that are neither this machine's nor another container's."""
_NEVER = (
    *("cgroup_parent", "credential_spec", "device_cgroup_rules", "devices", "extends"),
    *("external_links", "gpus", "models", "provider", "use_api_socket", "volumes_from"),
)
_NEVER_IN_A_BUILD = ("privileged", "entitlements", "ssh", "cache_to")
_CAPABILITIES = frozenset(
    [
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
        *("NET_BIND_SERVICE", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
        *("IPC_LOCK", "SYS_NICE", "SYS_PTRACE"),
    ]
)
"""Capabilities that every container of Docker's has, and three that lead no further than it."""
_NO_PRIVILEGES = re.compile(r"no-new-privileges(?:[:=]true)?")
_MOUNTS = ("bind", "volume", "tmpfs", "image")
_MOUNT = re.compile(r"\s*([^:]+):")
_ELSEWHERE = re.compile(r"(?:https?|git|ssh|docker-image|service|target):|git@")
"""Contexts of a build that are no folders of this machine."""
LOGS = ("${T_BENCH_TASK_LOGS_PATH", "${T_BENCH_TASK_AGENT_LOGS", "${HOST_")
"""Volumes that start so hold the harnesses' own logs, which a sandbox has anyway."""
_HERE = re.compile(r"^\$(?:\{CONTEXT_DIR\}|CONTEXT_DIR\b)(?=/|$)")
_NOT_GIVEN = "that of this machine, or of another container on it, is not given to a task"
_PRIVILEGED = "no container of a task is privileged"
_OUTSIDE = "a folder or file outside of the task's folder"
_NOT_SUPPORTED = "not supported"

Refusal = tuple[str, str]
Document = Mapping[str, Any]


@frozen
class HostPath:
    """A path of this machine that a compose file names."""

    key: str
    path: str
    value: str
    """The whole value."""

    @property
    def refusal(self) -> Refusal:
        """Where it leads out."""
        return self.key, f"{_OUTSIDE} ({self.value})"


def refusals(document: Document, own: str | None) -> Iterator[Refusal]:
    """Key and reason of each thing that is not given to any task.

    Args:
        own: the agent's service, whose privileges are a sandbox's whatever it asks for.
    """
    if document.get("include"):
        yield "include", "other compose files are not read"
    for name, service in document["services"].items():
        for key, why in _of_service(service, is_own=name == own):
            yield f"services.{name}.{key}", why
    for kind, of_one in (("volumes", _of_volume), ("networks", _of_network)):
        for name, about in _table(document.get(kind)).items():
            for key, why in of_one(_table(about)):
                yield f"{kind}.{name}.{key}", why
    yield from (found.refusal for found in paths(document) if is_outside(found.path))


def _of_service(service: Document, *, is_own: bool) -> Iterator[Refusal]:
    if service.get("privileged"):
        yield "privileged", _PRIVILEGED
    for key in _OF_THE_HOST:
        if _is_of_the_host(key, str(service.get(key) or "")):
            yield key, _NOT_GIVEN
    for key in _NEVER:
        if service.get(key):
            yield key, _NOT_SUPPORTED
    if not is_own:
        yield from _privileges_of(service)
    yield from _parts_of(service)


def _parts_of(service: Document) -> Iterator[Refusal]:
    for hook in ("post_start", "pre_stop"):
        if any(_table(command).get("privileged") for command in _listed(service.get(hook))):
            yield hook, _PRIVILEGED
    resources = _table(_table(service.get("deploy")).get("resources"))
    if _table(resources.get("reservations")).get("devices"):
        yield "deploy.resources.reservations.devices", _NOT_SUPPORTED
    for volume in _listed(service.get("volumes")):
        if _table(volume).get("type", "volume") not in _MOUNTS:
            yield "volumes", f"{_NOT_SUPPORTED} ({volume})"
    for key, why in _of_build(_table(service.get("build"))):
        yield f"build.{key}", why


def _is_of_the_host(key: str, value: str) -> bool:
    if key == "network_mode":
        return value != "" and _ITS_OWN.fullmatch(value) is None
    return value == "host" or value.startswith("container:") or "$" in value


def _privileges_of(service: Document) -> Iterator[Refusal]:
    for name in map(str, _listed(service.get("cap_add"))):
        if name.upper().removeprefix("CAP_") not in _CAPABILITIES:
            yield "cap_add", f"the capability {name} reaches beyond the container"
    for option in map(str, _listed(service.get("security_opt"))):
        if _NO_PRIVILEGES.fullmatch(option) is None:
            yield "security_opt", f"no container of a task is less confined than usual ({option})"
    if service.get("runtime"):
        yield "runtime", _NOT_SUPPORTED


def _of_build(build: Document) -> Iterator[Refusal]:
    for key in _NEVER_IN_A_BUILD:
        if build.get(key):
            yield key, _PRIVILEGED if key == "privileged" else _NOT_SUPPORTED
    if _is_of_the_host("network_mode", str(build.get("network") or "")):
        yield "network", _NOT_GIVEN
    if any("type=" in str(source) for source in _listed(build.get("cache_from"))):
        yield "cache_from", "only images are supported"


def _of_volume(volume: Document) -> Iterator[Refusal]:
    if volume.get("external"):
        yield "external", "a volume that is not the task's own"
    if (volume.get("driver") or "local") != "local":
        yield "driver", _NOT_SUPPORTED
    options = _table(volume.get("driver_opts"))
    if options and options.get("type") != "tmpfs":
        yield "driver_opts", "a volume is a folder of the engine's own, not one of this machine's"


def _of_network(network: Document) -> Iterator[Refusal]:
    if network.get("external"):
        yield "external", "a network that is not the task's own"
    if (network.get("driver") or "bridge") != "bridge":
        yield "driver", _NOT_SUPPORTED


def paths(document: Document) -> Iterator[HostPath]:
    """Every path of this machine that the file names."""
    for name, service in document["services"].items():
        yield from _paths_of(f"services.{name}", service)
    for kind in ("secrets", "configs"):
        for name, about in _table(document.get(kind)).items():
            if _table(about).get("file"):
                yield _named(f"{kind}.{name}.file", about["file"])


def _paths_of(at: str, service: Document) -> Iterator[HostPath]:
    for volume in _listed(service.get("volumes")):
        source = _source(volume)
        if source is not None:
            yield HostPath(f"{at}.volumes", source, str(volume))
    for key in ("env_file", "label_file"):
        for file in _listed(service.get(key)):
            yield _named(f"{at}.{key}", file.get("path") if isinstance(file, Mapping) else file)
    yield from _paths_of_build(f"{at}.build", service.get("build"))


def _named(key: str, path: Any) -> HostPath:
    return HostPath(key, str(path or ""), str(path))


def _paths_of_build(at: str, build: Any) -> Iterator[HostPath]:
    if isinstance(build, str):
        build, key = {"context": build}, at
    else:
        build, key = _table(build), f"{at}.context"
    if _ELSEWHERE.match(str(build.get("context") or "")) is None:
        yield _named(key, build.get("context"))
    yield _named(f"{at}.dockerfile", build.get("dockerfile"))
    more = build.get("additional_contexts") or {}
    listed = more.values() if isinstance(more, Mapping) else _after(more)
    for context in map(str, listed):
        if _ELSEWHERE.match(context) is None:
            path = context.removeprefix("oci-layout://")
            yield HostPath(f"{at}.additional_contexts", path, context)


def _after(pairs: Any) -> list[str]:
    return [str(pair).partition("=")[2] for pair in _listed(pairs)]


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _listed(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def _source(volume: Any) -> str | None:
    if isinstance(volume, Mapping):
        return str(volume.get("source")) if volume.get("type") == "bind" else None
    text = str(volume)
    match = _MOUNT.match(text)
    return None if match is None or text.startswith(LOGS) else match[1]


def inside(path: str) -> str:
    """A path of the file, relative to its folder."""
    return _HERE.sub(".", path)


def is_outside(path: str) -> bool:
    """Does the path, read literally, leave the folder? A variable may lead anywhere."""
    text = inside(path)
    return text.startswith(("/", "~")) or "$" in text or ".." in text.split("/")
