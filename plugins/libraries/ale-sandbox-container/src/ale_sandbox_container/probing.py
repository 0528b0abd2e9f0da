"""Is an engine usable here? Asked over its socket, without its SDK, in bounded time."""

import http.client
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ale.plugin import Probe
from ale_sandbox_container.address import EngineAddress
from ale_sandbox_container.capabilities import capabilities_of
from ale_sandbox_container.engine import Facts
from ale_sandbox_container.options import ContainerOptions, root_of
from ale_sandbox_process import doctor

_PATIENCE_S = 3.0
"""For an answer that needs no work."""
_INFO_S = 20.0
"""Podman asks the package manager who made its tools, which takes seconds on a busy machine."""


NOT_SHARED = (
    "the engine does not share this machine's file system (it runs in a virtual machine, or on "
    "another machine), and sandboxes are reached through files"
)


def shares_files(address: EngineAddress, root: Path) -> bool:
    """Does the engine see a folder that this process makes? Nothing is created on the engine.

    Where the engine can't be asked, or answers with anything but that the folder is missing, it
    counts as shared.

    Args:
        root: where the command pipes will be, perhaps not there yet.
    """
    place = next(path for path in (root, *root.parents) if path.is_dir())
    with tempfile.TemporaryDirectory(prefix="ale-probe-", dir=place) as folder:
        body = json.dumps(address.using(folder)).encode()
        try:
            kernel = json.loads(ask(address.url, "/version", _PATIENCE_S))["KernelVersion"]
            said = ask(address.url, address.create, _PATIENCE_S, body)
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            return True  # what else is wrong is found out by who uses it
    # A pipe connects processes of one kernel alone, also where another one sees the folder.
    return folder.encode() not in said and kernel == os.uname().release


class _Unix(http.client.HTTPConnection):
    """HTTP over a local socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(address: str, path: str, timeout_s: float, body: bytes | None = None) -> bytes:
    """What the engine at ``unix://`` or ``tcp://`` answers to a GET, or to a POST of a body.

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
        raise ValueError(f"{address!r} can't be asked; only unix:// and tcp:// can")
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("GET" if body is None else "POST", path, body, headers)
        return connection.getresponse().read()
    finally:
        connection.close()


def facts_of(info: Mapping[str, Any]) -> Facts:
    """From what Docker's ``/info`` says, which Podman's repeats."""
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


def probe_engine(
    address: EngineAddress, remedies: Mapping[str, str], environ: Mapping[str, str]
) -> Probe:
    """What ``ale doctor`` shows for an engine.

    Args:
        remedies: commands for ``missing`` (not installed), ``silent`` (not running),
            ``refused`` (not allowed) and ``remote`` (another file system).
    """
    name, url = address.name, address.url
    try:
        ask(url, "/_ping", _PATIENCE_S)
        facts = facts_of(json.loads(ask(url, "/info", _INFO_S)))
    except PermissionError:
        reason, remedy = f"this user may not use {url}", "refused"
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        installed = shutil.which(name) is not None
        reason = f"no engine answers at {url}: {error}"
        remedy = "silent" if installed else "missing"
    else:
        if not shares_files(address, root_of(ContainerOptions(), environ)):
            return Probe(usable=False, reason=f"{url}: {NOT_SHARED}", remedy=remedies["remote"])
        reason = f"{name} {facts.version} answers; a container per sandbox"
        return Probe(usable=True, reason=reason, facts=_in_words(facts))
    return Probe(usable=False, reason=reason, remedy=remedies[remedy])


def _in_words(facts: Facts) -> dict[str, str]:
    options = ContainerOptions()
    # Whether the seal holds is found out when a backend is made.
    capabilities = capabilities_of(facts, options, sealed=True)
    mapped = "the host's" if facts.root_is_root else "mapped to another user"
    return {
        "isolation": "network, files, processes",
        "runtime": facts.runtime,
        "control groups": f"version {facts.cgroup[1:]}",
        "root": mapped,
        **doctor.describe(capabilities, label="note"),
    }
