"""An egress proxy with an allow-list of hosts, for a container without a network.

The container has nothing but its own loopback. The proxy's socket is made in the container's
network namespace, by a thread that enters it; what it dials, it dials from this machine. So
nothing leaves but through it, whatever a program inside does with the variables that name it.
"""

import asyncio
import contextlib
import ctypes
import ipaddress
import logging
import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from ale.errors import SandboxError, UnsupportedError

PORT = 3128
"""Of the container's loopback."""
PROXIES = {
    **dict.fromkeys(
        ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), f"http://127.0.0.1:{PORT}"
    ),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1"),
}
"""Variables by which programs find it."""
_LOG = logging.getLogger(__name__)
_NEW_NET = 0x40000000
_HEAD = 1 << 16
_PIECE = 1 << 16
_DIAL_S = 30.0


class AllowedHosts:
    """Which hosts may be reached: names, ``*.name`` for those below one, addresses, networks.

    Args:
        listed: None lets everything pass.
    """

    def __init__(self, listed: Sequence[str] | None) -> None:
        self._all = listed is None
        self._names: set[str] = set()
        self._below: list[str] = []
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for entry in listed or ():
            self._add(entry.strip().lower().strip("[]").rstrip("."))

    def _add(self, entry: str) -> None:
        try:
            self._networks.append(ipaddress.ip_network(entry))
        except ValueError:
            if entry.startswith("*."):
                self._below.append(entry[1:])
            else:
                self._names.add(entry)

    def allow(self, host: str) -> bool:
        """May this host be asked for?"""
        if self._all:
            return True
        name = host.lower().rstrip(".")
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name in self._names or name.endswith(tuple(self._below))
        return any(address in network for network in self._networks)


def leads_inside(address: str) -> bool:
    """Is it this machine's own loopback, or link-local, such as a metadata service?

    A name that somebody else's server answers for must not lead there.
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    found = mapped or found
    return found.is_loopback or found.is_link_local or found.is_unspecified or found.is_multicast


def listening(pid: int, port: int = PORT) -> socket.socket:
    """A socket that listens on the loopback of a process's network namespace.

    Raises:
        UnsupportedError: this process may not enter it.
        SandboxError: something in it listens on that port already.
    """
    # A namespace is entered by one thread alone, which ends after this.
    with ThreadPoolExecutor(1, "ale-netns") as thread:
        return thread.submit(_listening, pid, port).result()


def _enter(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(namespace, _NEW_NET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns: {os.strerror(number)}")
    finally:
        os.close(namespace)


def _listening(pid: int, port: int) -> socket.socket:
    try:
        _enter(pid)
    except OSError as error:
        message = f"an allow-list of hosts needs root on the engine's own machine: {error}"
        raise UnsupportedError(message) from error
    try:
        return socket.create_server(("127.0.0.1", port), backlog=64)
    except OSError as error:
        message = f"the proxy of a container can't listen on its port {port}: {error}"
        raise SandboxError(message) from error


class EgressProxy:
    """The proxy of one container: ``CONNECT``, and plain requests with an absolute address."""

    def __init__(self, hosts: AllowedHosts) -> None:
        self.hosts = hosts
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def serve(self, pid: int) -> None:
        """Listen in the namespace of a process. Raises as `listening`."""
        found = await asyncio.to_thread(listening, pid)
        self._server = await asyncio.start_server(self._answer, sock=found, limit=_HEAD)

    def cut(self) -> None:
        """End what is open: the hosts have changed."""
        for writer in list(self._open):
            writer.transport.abort()

    def close(self) -> None:
        """Listen no more, and end what is open."""
        if self._server is not None:
            self._server.close()
        self.cut()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._pass(reader, writer)
        except (
            OSError,
            ValueError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ) as error:
            _LOG.debug("a connection of a container was given up: %s", error)
        finally:
            self._open.discard(writer)
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line, _, rest = head.partition(b"\r\n")
        method, target, version = _request(line)
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host, port = url.hostname, url.port
        if port is None:
            port = 443 if method == "CONNECT" else 80
        if host is None:
            await _refuse(writer, 400, "this is a proxy: ask for an absolute address")
            return
        if not self.hosts.allow(host):
            await _refuse(writer, 403, f"{host} is not one of the task's allowed hosts")
            return
        try:
            far_reader, far = await _dial(host, port)
        except (OSError, TimeoutError) as error:
            await _refuse(writer, 502, f"{host}:{port} can't be reached: {error}")
            return
        self._open.add(far)
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                path = (url.path or "/") + (f"?{url.query}" if url.query else "")
                far.write(f"{method} {path} {version}\r\n".encode("latin-1"))
                far.write(_for_one(rest))
            await asyncio.gather(_copy(reader, far), _copy(far_reader, writer))
        finally:
            self._open.discard(far)
            far.close()


def _request(line: bytes) -> tuple[str, str, str]:
    words = line.decode("latin-1").split()
    if len(words) != 3:
        raise asyncio.IncompleteReadError(line, None)
    return words[0], words[1], words[2]


def _for_one(headers: bytes) -> bytes:
    """The headers for one request alone: a second one could ask for another host."""
    dropped = (b"connection:", b"proxy-connection:", b"keep-alive:", b"proxy-authorization:")
    kept = [
        line for line in headers.split(b"\r\n") if line and not line.lower().startswith(dropped)
    ]
    return b"\r\n".join([*kept, b"Connection: close", b"", b""])


async def _refuse(writer: asyncio.StreamWriter, status: int, why: str) -> None:
    body = f"{why}\n".encode()
    head = f"HTTP/1.1 {status} {why}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode("ascii", "replace") + body)
    await writer.drain()


async def _dial(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # The addresses that were looked at are those that are dialled.
    addresses = [entry[4][0] for entry in found if not leads_inside(str(entry[4][0]))]
    if not addresses:
        raise OSError("its address is this machine's own")
    failure: OSError | TimeoutError = OSError("no address")
    for address in dict.fromkeys(map(str, addresses)):
        try:
            async with asyncio.timeout(_DIAL_S):
                return await asyncio.open_connection(address, port)
        except (OSError, TimeoutError) as error:
            failure = error
    raise failure


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
