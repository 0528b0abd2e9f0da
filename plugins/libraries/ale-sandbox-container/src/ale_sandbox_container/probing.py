"""Is an engine usable here? Asked over its socket, without its SDK, in bounded time."""

import http.client
import json
import shutil
import socket
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from ale.plugin import Probe
from ale_sandbox_container.capabilities import capabilities_of
from ale_sandbox_container.engine import Facts
from ale_sandbox_container.options import ContainerOptions
from ale_sandbox_process import doctor

_PATIENCE_S = 3.0
"""For an answer that needs no work."""
INFO_S = 20.0
"""Podman asks the package manager who made its tools, which takes seconds on a busy machine."""


ADDRESSES = (
    "an engine is reached by unix:// or tcp://; for one behind SSH, forward its socket: "
    "ssh -NL /tmp/engine.sock:/var/run/docker.sock HOST, and unix:///tmp/engine.sock"
)


class _Unix(http.client.HTTPConnection):
    """HTTP over a local socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(address: str, path: str, timeout_s: float) -> bytes:
    """What the engine at ``unix://`` or ``tcp://`` answers to a GET.

    Raises:
        OSError, ValueError, http.client.HTTPException: it does not.
    """
    place = urlsplit(address)
    connection: http.client.HTTPConnection
    if place.scheme == "unix":
        connection = _Unix(place.path, timeout_s)
    elif place.scheme in ("tcp", "http"):
        connection = http.client.HTTPConnection(
            place.hostname or "localhost", place.port or 2375, timeout=timeout_s
        )
    else:
        raise ValueError(ADDRESSES)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def facts_of(info: Mapping[str, Any]) -> Facts:
    """From what Docker's ``/info`` says."""
    options = {
        part.partition("=")[2]
        for line in info.get("SecurityOptions") or ()
        for part in line.split(",")
    }
    return Facts(
        version=info["ServerVersion"],
        runtime=info["DefaultRuntime"],
        cgroup=f"v{info['CgroupVersion']}",
        holds_memory=info["MemoryLimit"],
        holds_processes=info["PidsLimit"],
        holds_cpu=info["CpuCfsQuota"],
        root_is_root=not options & {"userns", "rootless"},
        seccomp="seccomp" in options,
    )


def facts_at(address: str) -> Facts:
    """Facts of the Docker engine at an address; raises as `ask` does, and KeyError."""
    return facts_of(json.loads(ask(address, "/info", INFO_S)))


def probe_engine(
    name: str,
    url: str,
    remedies: Mapping[str, str],
    facts_at: Callable[[str], Facts] = facts_at,
) -> Probe:
    """What ``ale doctor`` shows for an engine.

    Args:
        remedies: commands for ``missing`` (not installed), ``silent`` (not running) and
            ``refused`` (not allowed).
        facts_at: asks the engine at an address for its facts.
    """
    try:
        ask(url, "/_ping", _PATIENCE_S)
        facts = facts_at(url)
    except PermissionError:
        reason, remedy = f"this user may not use {url}", "refused"
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        installed = shutil.which(name) is not None
        reason = f"no engine answers at {url}: {error}"
        remedy = "silent" if installed else "missing"
    else:
        reason = f"{name} {facts.version} answers; a container per sandbox"
        return Probe(usable=True, reason=reason, facts=_in_words(facts))
    return Probe(usable=False, reason=reason, remedy=remedies[remedy])


def _in_words(facts: Facts) -> dict[str, str]:
    options = ContainerOptions()
    capabilities = capabilities_of(facts, options)
    mapped = "the host's" if facts.root_is_root else "mapped to another user"
    return {
        "isolation": "network, files, processes",
        "runtime": facts.runtime,
        "control groups": f"version {facts.cgroup[1:]}",
        "root": mapped,
        **doctor.describe(capabilities, label="note"),
    }
