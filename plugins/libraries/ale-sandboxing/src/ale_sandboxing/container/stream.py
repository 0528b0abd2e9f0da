"""Connections to processes in a container, over the engine's own API.

The engine's ``attach`` and ``exec`` calls turn their connection into a stream: bytes that are sent
are the process's stdin, and what it writes comes back in frames of 8 bytes (1 for stdout or 2 for
stderr, three zeros, the length) and data. Docker and Podman speak the same.
"""

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from ale.errors import SandboxError

STDOUT, STDERR = 1, 2
PORT, TLS_PORT = 2375, 2376
"""Docker's own."""
_ANSWER_S = 60.0
_REASON_S = 0.2
_KINDS = (0, STDOUT, STDERR)
_REQUEST = b"""\
POST %s HTTP/1.1\r\nHost: engine\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\
Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"""


class Stream(asyncio.Protocol):
    """One connection. `opened` is done when the engine has agreed to it."""

    def __init__(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._request = request
        self._rest = b""
        self._transport: asyncio.Transport | None = None
        self.opened: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[str] = loop.create_future()
        """Why it has ended."""
        self.on_data: Callable[[int, bytes], object] = lambda channel, data: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        data = self._rest + data
        if not self.opened.done():
            head, end, data = data.partition(b"\r\n\r\n")
            if not end or head.split()[1] not in (b"101", b"200"):
                self._rest = head + end + data
                if end and self._transport is not None:
                    # The engine keeps the connection; its reason comes with the head or just after.
                    asyncio.get_running_loop().call_later(_REASON_S, self._transport.close)
                return
            self.opened.set_result(None)
        start, size = 0, len(data)
        while size - start >= 8 and data[start] in _KINDS:
            end_of_frame = start + 8 + int.from_bytes(data[start + 4 : start + 8], "big")
            if end_of_frame > size:
                break
            self.on_data(data[start], data[start + 8 : end_of_frame])
            start = end_of_frame
        self._rest = data[start:]

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        # What follows no frame is the engine's own text: why no process could be started.
        said = self._rest.rpartition(b"\r\n\r\n")[2].decode(errors="replace").strip()
        why = said or str(error or "the connection was closed")
        if not self.opened.done():
            self.opened.set_exception(SandboxError(why))
            self.opened.exception()  # whoever waited for it may have been cancelled
        if not self.ended.done():
            self.ended.set_result(why)

    def send(self, data: bytes) -> None:
        """Send to the process's stdin. Lost once the connection has ended."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def pause(self, seconds: float) -> None:
        """Read nothing for so long: the process blocks once the pipes on the way are full."""
        transport = self._transport
        if transport is not None and transport.is_reading():
            transport.pause_reading()
            asyncio.get_running_loop().call_later(seconds, transport.resume_reading)

    def close(self) -> None:
        """Close it: the process reads the end of its stdin. May be called again."""
        if not self.ended.done():
            self.ended.set_result("it was closed")
        if self._transport is not None:
            self._transport.abort()


def host_and_port(place: SplitResult, port: int = PORT) -> tuple[str, int]:
    """Of an address with ``tcp://``."""
    return place.hostname or "localhost", place.port or port


async def open_stream(
    address: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Stream:
    """POST to the engine at ``unix://`` or ``tcp://``, whose answer is a stream.

    Args:
        tls: for ``tcp://``; None is without.

    Raises:
        SandboxError: no engine is there, or it refuses.
    """
    data = b"" if body is None else json.dumps(body).encode()
    request = _REQUEST % (path.encode(), len(data)) + data
    loop, place = asyncio.get_running_loop(), urlsplit(address)
    try:
        async with asyncio.timeout(_ANSWER_S):
            if place.scheme == "unix":
                _, stream = await loop.create_unix_connection(lambda: Stream(request), place.path)
            else:
                port = PORT if tls is None else TLS_PORT
                _, stream = await loop.create_connection(
                    lambda: Stream(request), *host_and_port(place, port), ssl=tls
                )
    except OSError as error:
        raise SandboxError(f"no engine answers at {address}: {error}") from error
    try:
        async with asyncio.timeout(_ANSWER_S):
            await asyncio.shield(stream.opened)
    except BaseException:
        stream.close()
        raise
    return stream


async def attach(address: str, container: str, tls: ssl.SSLContext | None = None) -> Stream:
    """A stream of a running container's process 1."""
    query = "stream=1&stdin=1&stdout=1&stderr=1"
    return await open_stream(address, f"/containers/{container}/attach?{query}", tls=tls)


async def start(address: str, exec_id: str, tls: ssl.SSLContext | None = None) -> Stream:
    """Start a process that `Engine.prepare` has described."""
    body = {"Detach": False, "Tty": False}
    return await open_stream(address, f"/exec/{exec_id}/start", body, tls)
