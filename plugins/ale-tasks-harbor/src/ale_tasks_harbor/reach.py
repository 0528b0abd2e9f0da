"""What a compose file may not ask for: to reach into this machine."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_OF_THE_HOST = ("network_mode", "pid", "ipc", "userns_mode", "uts", "cgroup")
_NEVER = ("devices", "extends", "cgroup_parent", "device_cgroup_rules", "volumes_from")
_MOUNT = re.compile(r"\s*([^:]+):")
_LOGS = ("${T_BENCH_TASK_LOGS_PATH", "${T_BENCH_TASK_AGENT_LOGS", "${HOST_")


def faults(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Key and reason of each thing that is not given to any task."""
    if document.get("include"):
        yield "include", "other compose files are not read"
    for name, service in document["services"].items():
        for key, why in _of_service(service):
            yield f"services.{name}.{key}", why
    for kind in ("secrets", "configs"):
        for name, about in (document.get(kind) or {}).items():
            if isinstance(about, Mapping) and _leads_out(about.get("file")):
                yield f"{kind}.{name}.file", "a file outside of the task's folder"


def _of_service(service: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if service.get("privileged"):
        yield "privileged", "no container of a task is privileged"
    for key in _OF_THE_HOST:
        if service.get(key) == "host":
            yield key, "that of this machine is not given to a task"
    for key in _NEVER:
        if service.get(key):
            yield key, "not supported"
    yield from _paths_of(service)


def _paths_of(service: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for volume in _listed(service.get("volumes")):
        if _leads_out(_source(volume)):
            yield "volumes", f"a folder or file outside of the task's folder ({volume})"
    for file in _listed(service.get("env_file")):
        if _leads_out(file.get("path") if isinstance(file, Mapping) else file):
            yield "env_file", f"a file outside of the task's folder ({file})"


def _listed(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def _source(volume: Any) -> Any:
    if isinstance(volume, Mapping):
        return volume.get("source") if volume.get("type") == "bind" else None
    text = str(volume)
    match = _MOUNT.match(text)
    return None if match is None or text.startswith(_LOGS) else match[1]


def _leads_out(path: Any) -> bool:
    text = str(path or "")
    return text.startswith(("/", "~", "$")) or ".." in text.split("/")
