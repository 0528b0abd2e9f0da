"""Is an engine usable here? Asked over its socket, without its SDK, in bounded time."""

import http.client
import json
import shutil
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from ale.plugin import Probe

_PATIENCE_S = 3.0


class _Unix(http.client.HTTPConnection):
    """HTTP over a local socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_PATIENCE_S)
        self.sock.connect(self._path)


def ask(address: str, path: str = "/info") -> Any:
    """What the engine at ``unix://`` or ``tcp://`` answers, as JSON.

    Raises:
        OSError, ValueError, http.client.HTTPException: it does not.
    """
    place = urlsplit(address)
    connection: http.client.HTTPConnection
    if place.scheme == "unix":
        connection = _Unix(place.path)
    elif place.scheme in ("tcp", "http"):
        connection = http.client.HTTPConnection(
            place.hostname or "localhost", place.port or 2375, timeout=_PATIENCE_S
        )
    else:
        raise ValueError(f"{address!r} can't be asked; only unix:// and tcp:// can")
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def probe_engine(name: str, address: str, remedies: Mapping[str, str]) -> Probe:
    """What ``ale doctor`` shows for an engine.

    Args:
        remedies: commands for ``missing`` (not installed), ``silent`` (not running) and
            ``refused`` (not allowed).
    """
    try:
        info = ask(address)
    except PermissionError:
        reason, remedy = f"this user may not use {address}", "refused"
    except (OSError, ValueError, http.client.HTTPException) as error:
        installed = shutil.which(name) is not None
        reason = f"no engine answers at {address}: {error}"
        remedy = "silent" if installed else "missing"
    else:
        return Probe(usable=True, reason=_summary(name, info), facts=_facts(info))
    return Probe(usable=False, reason=reason, remedy=remedies[remedy])


def _summary(name: str, info: Mapping[str, Any]) -> str:
    return f"{name} {info.get('ServerVersion', '?')} answers; a container per sandbox"


def _facts(info: Mapping[str, Any]) -> dict[str, str]:
    held = {"memory": "MemoryLimit", "processes": "PidsLimit", "cpu": "CpuCfsQuota"}
    limits = [name for name, key in held.items() if info.get(key)]
    options = " ".join(info.get("SecurityOptions") or [])
    return {
        "isolation": "container",
        "runtime": str(info.get("DefaultRuntime", "?")),
        "cgroup": f"v{info.get('CgroupVersion', '?')}",
        "limits enforced": ", ".join([*limits, "file size"]),
        "not enforced": ", ".join([*(name for name in held if name not in limits), "disk in all"]),
        "seccomp": "yes" if "seccomp" in options else "no",
        "root": "mapped to a user"
        if "userns" in options or "rootless" in options
        else "the host's",
    }
