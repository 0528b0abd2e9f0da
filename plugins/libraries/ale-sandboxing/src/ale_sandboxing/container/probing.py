"""Is an engine usable here? Asked over its socket, without its SDK, in bounded time."""

import http.client
import json
import shutil
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from ale.errors import SandboxError
from ale.plugin import Probe
from ale_sandboxing.container.capabilities import capabilities_of
from ale_sandboxing.container.engine import Facts
from ale_sandboxing.container.options import ContainerOptions
from ale_sandboxing.container.stream import TLS_PORT, host_and_port
from ale_sandboxing.process import doctor

_PATIENCE_S = 3.0
"""For an answer that needs no work."""
_INFO_S = 20.0
"""Podman asks the package manager who made its tools, which takes seconds on a busy machine."""

_SCHEMES = ("unix", "tcp", "http")
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


def check_address(address: str) -> None:
    """Refuse what no stream can be opened over.

    Raises:
        SandboxError: the address is of another kind.
    """
    if urlsplit(address).scheme not in _SCHEMES:
        raise SandboxError(f"{address}: {ADDRESSES}")


def ask(address: str, path: str, timeout_s: float, tls: ssl.SSLContext | None = None) -> bytes:
    """What the engine at ``unix://`` or ``tcp://`` answers to a GET.

    Args:
        tls: for ``tcp://``; None is without.

    Raises:
        OSError, ValueError, http.client.HTTPException: it does not.
    """
    place = urlsplit(address)
    connection: http.client.HTTPConnection
    if place.scheme == "unix":
        connection = _Unix(place.path, timeout_s)
    elif place.scheme not in _SCHEMES:
        raise ValueError(ADDRESSES)
    elif tls is None:
        connection = http.client.HTTPConnection(*host_and_port(place), timeout=timeout_s)
    else:
        connection = http.client.HTTPSConnection(
            *host_and_port(place, TLS_PORT), timeout=timeout_s, context=tls
        )
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
        # Without it the kernel passes on what goes from container to container of one bridge.
        parts=info.get("BridgeNfIptables", True),
        layered=info.get("Driver") == "overlay2",
    )


def probe_engine(
    name: str,
    url: str,
    remedies: Mapping[str, str],
    *,
    about: str = "/info",
    read: Callable[[Mapping[str, Any]], Facts] = facts_of,
    tls: ssl.SSLContext | None = None,
) -> Probe:
    """What ``ale doctor`` shows for an engine.

    Args:
        remedies: commands for ``missing`` (not installed), ``silent`` (not running) and
            ``refused`` (not allowed).
        about: path of its description of itself.
        read: the facts in that.
        tls: as in `ask`.
    """
    try:
        ask(url, "/_ping", _PATIENCE_S, tls)
        facts = read(json.loads(ask(url, about, _INFO_S, tls)))
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
