"""An egress proxy with an allow-list of hosts, for a container without a network.

The container has nothing but its own loopback. The proxy's socket is made in the container's
network namespace, by a thread that enters it; what it dials, it dials from this machine. So
nothing leaves but through it, whatever a program inside does with the variables that name it.

Whoever talks to it is hostile. Each container has a proxy of its own, with a share of this
process's descriptors, time and memory that it can't exceed: further connections wait in the
container's own kernel queue, so a flood holds up nobody else.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from urllib.parse import urlsplit

from attrs import define, frozen

from ale.errors import SandboxError, UnsupportedError
from ale_sandboxing.container.hosts import AllowedHosts, is_address, own_addresses
from ale_sandboxing.container.ledger import Ledger, Outcome, Row
from ale_sandboxing.container.tls import HELLO_BYTES, NotTlsError, server_name

T = TypeVar("T")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

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
_BACKLOG = 64
_PIECE = 1 << 16
_WEB_PORTS = (80, 443)
_USER_PORTS = 1024
"""Below this, only `_WEB_PORTS` are dialled: no mail server, no remote shell, no file server."""
_UNREACHED = (502, 504)
"""Statuses of a host that is allowed, and did not answer."""
_PAUSE_S = 0.5
"""Until the next try, where this process has no descriptor left for a connection."""


@frozen(kw_only=True)
class Limits:
    """What one container may use of its proxy."""

    connections: int = 64
    """At the same time; each takes two descriptors of this process. The next ones wait."""
    head_bytes: int = 1 << 14
    """Of a request's head."""
    head_s: float = 10.0
    """Seconds for a request's head, and for the first message of TLS."""
    idle_s: float = 300.0
    """Seconds without a byte in either direction."""
    dial_s: float = 30.0
    """Seconds until a host is connected, with the look-up of its name."""
    lookups: int = 2
    """Names looked up at the same time, each by a thread."""


LIMITS = Limits()


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
        made = _from_its_owner(pid, port)
        if made is not None:
            return made
        message = (
            "an allow-list of hosts needs root on the engine's own machine, or a rootless engine "
            f"of this user: {error}"
        )
        raise UnsupportedError(message) from error
    try:
        return socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
    except OSError as error:
        message = f"the proxy of a container can't listen on its port {port}: {error}"
        raise SandboxError(message) from error


_AS_ITS_OWNER = """
import ctypes, os, socket, sys
pid, port, backlog, channel = map(int, sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)
for kind, flag in (("user", 0x10000000), ("net", 0x40000000)):
    if libc.setns(os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY), flag):
        sys.exit(1)
made = socket.create_server(("127.0.0.1", port), backlog=backlog)
socket.send_fds(socket.socket(fileno=channel), [b"x"], [made.fileno()])
"""
"""The container's user namespace first: who made it may enter both. Only a process that has one
thread can, so it is another one, which sends the socket back."""


def _from_its_owner(pid: int, port: int) -> socket.socket | None:
    """The socket where this user owns the container's namespaces, as with a rootless engine."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = theirs.fileno()
        given = [str(each) for each in (pid, port, _BACKLOG, number)]
        command = [sys.executable, "-I", "-S", "-c", _AS_ITS_OWNER, *given]
        done = subprocess.run(command, pass_fds=[number], capture_output=True, check=False)
        if done.returncode != 0:
            _LOG.debug("namespaces of process %d: %s", pid, done.stderr.decode(errors="replace"))
            return None
        _, (descriptor, *_), *_ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=descriptor)


class RefusedError(Exception):
    """A request that the proxy does not carry out; the client is told why.

    Args:
        status: of HTTP.
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@frozen(kw_only=True)
class Request:
    """The head of a request to a proxy."""

    tunnel: bool
    """It is a ``CONNECT``."""
    host: str
    port: int
    head: bytes
    """What the host is sent in its place; empty for a tunnel."""


def read_head(head: bytes) -> Request:
    """Read a head, up to its empty line.

    The host's name is sent as it was checked, whatever the client's own ``Host`` says, and the
    connection ends after the answer: a second request could ask for another host.

    Raises:
        RefusedError: it is no request to a proxy, or two programs could read it differently.
    """
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if any(b"\r" in line or b"\n" in line or line[:1] in (b" ", b"\t") for line in lines):
        raise RefusedError(400, "a line of the head is continued, or ends with a lone CR or LF")
    words = lines[0].decode("latin-1").split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1"):
        raise RefusedError(400, "this is no request of HTTP/1.0 or HTTP/1.1")
    method, target, version = words
    tunnel = method == "CONNECT"
    try:
        url = urlsplit(f"//{target}" if tunnel else target)
        port = url.port
    except ValueError as error:
        raise RefusedError(400, f"the address can't be read: {error}") from None
    if not url.hostname or (not tunnel and url.scheme != "http"):
        raise RefusedError(400, "this is a proxy: ask for an absolute address, or a tunnel")
    host = url.hostname.lower().rstrip(".")
    if tunnel:
        return Request(tunnel=True, host=host, port=port or 443, head=b"")
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    sent = f"[{host}]" if ":" in host else host
    sent = sent if port in (None, 80) else f"{sent}:{port}"
    first = f"{method} {path} {version}\r\nHost: {sent}\r\n".encode("latin-1")
    return Request(tunnel=False, host=host, port=port or 80, head=first + _for_one(lines[1:]))


def _for_one(headers: list[bytes]) -> bytes:
    """The headers for one request alone."""
    dropped = {b"host", b"connection", b"proxy-connection", b"keep-alive", b"proxy-authorization"}
    kept = [line for line in headers if line.partition(b":")[0].strip().lower() not in dropped]
    return b"\r\n".join([*kept, b"Connection: close", b"", b""])


@define
class _Asked:
    """A request as far as it is known, for the ledger."""

    host: str = ""
    port: int = 0
    address: str = ""


class EgressProxy:
    """The proxy of one container: ``CONNECT``, and plain requests with an absolute address.

    A tunnel to a name carries TLS for that name and nothing else.
    """

    def __init__(
        self, hosts: AllowedHosts, limits: Limits = LIMITS, ledger: Ledger | None = None
    ) -> None:
        self.hosts = hosts
        self.ledger = Ledger() if ledger is None else ledger
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.connections)
        self._lookups = ThreadPoolExecutor(limits.lookups, "ale-egress")
        self._accepting: asyncio.Task[None] | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.StreamWriter] = set()

    async def serve(self, pid: int) -> None:
        """Listen in the namespace of a process. Raises as `listening`."""
        self.serve_on(await asyncio.to_thread(listening, pid))

    def serve_on(self, listener: socket.socket) -> None:
        """Answer on a socket that listens, and close it at the end."""
        listener.setblocking(False)
        self._accepting = asyncio.ensure_future(self._accept(listener))

    def cut(self) -> None:
        """End what is open: the hosts have changed."""
        for task in list(self._serving):
            task.cancel()
        for writer in list(self._open):
            writer.transport.abort()

    def close(self) -> None:
        """Listen no more, and end what is open."""
        if self._accepting is not None:
            self._accepting.cancel()
        self._lookups.shutdown(wait=False, cancel_futures=True)
        self.cut()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                # Before it is accepted: what waits takes no descriptor of this process.
                await self._slots.acquire()
                try:
                    near, _ = await loop.sock_accept(listener)
                except OSError as error:
                    self._slots.release()
                    _LOG.warning("a container's proxy can't accept a connection: %s", error)
                    await asyncio.sleep(_PAUSE_S)
                    continue
                except asyncio.CancelledError:
                    self._slots.release()
                    raise
                task = asyncio.ensure_future(self._answer(near))
                self._serving.add(task)
                task.add_done_callback(self._answered)

    def _answered(self, task: "asyncio.Task[None]") -> None:
        self._serving.discard(task)
        self._slots.release()
        if not task.cancelled() and task.exception() is not None:
            _LOG.warning("a container's proxy gave up a connection", exc_info=task.exception())

    async def _answer(self, near: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=near, limit=self._limits.head_bytes)
        with self._known(writer):
            try:
                await self._pass(reader, writer)
            except RefusedError as error:
                await _in_time(_refuse(writer, error), self._limits.head_s)
            except (
                OSError,
                TimeoutError,
                asyncio.IncompleteReadError,
                asyncio.LimitOverrunError,
            ) as error:
                _LOG.debug("a connection of a container was given up: %s", error)

    @contextlib.contextmanager
    def _known(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        """Open until the end of the block, or until `cut`."""
        self._open.add(writer)
        try:
            yield
        finally:
            self._open.discard(writer)
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = _Asked()
        try:
            await self._carry((reader, writer), asked)
        except RefusedError as error:
            outcome: Outcome = "unreached" if error.status in _UNREACHED else "refused"
            self.ledger.add(asked.host, asked.port, outcome, address=asked.address, why=str(error))
            raise

    async def _carry(self, near: Streams, asked: "_Asked") -> None:
        """Carry one request, and note in `asked` what is known of it."""
        (reader, writer), limits = near, self._limits
        try:
            head = await _in_time(reader.readuntil(b"\r\n\r\n"), limits.head_s)
        except asyncio.LimitOverrunError:
            why = f"the head is longer than {limits.head_bytes} bytes"
            raise RefusedError(431, why) from None
        request = read_head(head)
        asked.host, asked.port = request.host, request.port
        far_reader, far = await self._reached(request)
        asked.address = str(far.get_extra_info("peername")[0])
        with self._known(far):
            first = request.head
            if request.tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                first = await self._opening(reader, request.host)
            row = self.ledger.add(asked.host, asked.port, "passed", address=asked.address)
            row.sent += len(first)
            far.write(first)
            await _exchange(near, (far_reader, far), limits.idle_s, row)

    async def _reached(self, request: Request) -> Streams:
        """A connection to the host of a request.

        Raises:
            RefusedError: it is not allowed, or can't be reached.
        """
        host, port = request.host, request.port
        if not self.hosts.allow(host):
            raise RefusedError(403, f"{host} is not one of the task's allowed hosts")
        if port not in _WEB_PORTS and port < _USER_PORTS:
            allowed = f"{_WEB_PORTS[0]}, {_WEB_PORTS[1]} and those from {_USER_PORTS}"
            raise RefusedError(403, f"port {port} is not reached through this proxy, but {allowed}")
        try:
            return await _in_time(self._dial(host, port), self._limits.dial_s)
        except TimeoutError:
            raise RefusedError(504, f"{host}:{port} did not answer in time") from None
        except OSError as error:
            raise RefusedError(502, f"{host}:{port} can't be reached: {error}") from None

    async def _dial(self, host: str, port: int) -> Streams:
        """Look a name up once, and connect to the addresses that were looked at."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._lookups, _addresses, host, port)
        own = own_addresses()
        addresses = [address for address in found if self.hosts.allow_address(address, own)]
        if not addresses:
            raise OSError("its address is this machine's own, or link-local")
        failure = OSError("no address")
        for address in addresses:
            try:
                return await asyncio.open_connection(address, port)
            except OSError as error:
                failure = error
        raise failure

    async def _opening(self, reader: asyncio.StreamReader, host: str) -> bytes:
        """The first bytes of a tunnel, once they are known to be for the host that was allowed.

        Raises:
            RefusedError: they are not.
        """
        if is_address(host):
            return b""  # what is listed is the address, and all that is behind it
        said = b""
        async with asyncio.timeout(self._limits.head_s):
            while (name := _name_in(said)) is None:
                piece = await reader.read(HELLO_BYTES - len(said))
                if not piece:
                    raise RefusedError(403, "the tunnel ended before TLS began")
                said += piece
        if name.lower().rstrip(".") != host:
            raise RefusedError(403, f"a tunnel to {host} carries TLS for {name or 'no name'}")
        return said


def _name_in(said: bytes) -> str | None:
    """Name of the server in the beginning of a tunnel; None where more is to come.

    Raises:
        RefusedError: it is not TLS.
    """
    try:
        name = server_name(said)
    except NotTlsError as error:
        raise RefusedError(403, f"a tunnel to a name carries TLS alone: {error}") from None
    if name is None and len(said) >= HELLO_BYTES:
        raise RefusedError(403, "the first message of TLS is too long")
    return name


def _addresses(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def _in_time(work: Awaitable[T], limit_s: float) -> T:
    async with asyncio.timeout(limit_s):
        return await work


async def _refuse(writer: asyncio.StreamWriter, error: RefusedError) -> None:
    body = f"{error}\n".encode()
    lines = f"HTTP/1.1 {error.status} {error}\r\nContent-Length: {len(body)}\r\nConnection: close"
    writer.write(lines.encode("ascii", "replace") + b"\r\n\r\n" + body)
    await writer.drain()


async def _exchange(near: Streams, far: Streams, idle_s: float, row: Row) -> None:
    """Copy both ways until both have ended, or nothing has come from either for `idle_s`.

    Args:
        row: gets the bytes as they pass.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(idle_s) as idle:

        def sent(n: int) -> None:
            row.sent += n
            idle.reschedule(loop.time() + idle_s)

        def received(n: int) -> None:
            row.received += n
            idle.reschedule(loop.time() + idle_s)

        await asyncio.gather(_copy(near[0], far[1], sent), _copy(far[0], near[1], received))


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, moved: Callable[[int], None]
) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
            moved(len(piece))
        if writer.can_write_eof():
            writer.write_eof()
