"""Sends a stream on as it comes, without waking a task for each piece."""

import asyncio
import re
from collections.abc import Callable

import aiohttp

MOST_UNSENT = 64 << 10
"""Bytes that wait for a client; beyond, it is slow."""
_BATCH = 16 << 10
"""Bytes that are read together after they have been sent."""
_END = b"\n\n\r\n"
"""Of a chunk that ends with an event."""
_CHUNK = re.compile(rb"([0-9a-f]{1,8})\r\n[^\r]*" + _END)
"""A whole chunk. Not every match is one: the length may be another."""


async def relay(
    upstream: aiohttp.ClientResponse,
    client: asyncio.WriteTransport | None,
    passes: Callable[[bytes], None],
    waits: Callable[[bytes], bool],
) -> None:
    """Send on what comes, until the body ends, the server breaks it off or the client is slow.

    Args:
        client: its connection, over which the head has gone and chunks are sent; None where it has
            left.
        passes: called with each piece, decoded: before it is sent, unless it need not wait.
        waits: must `passes` have been called with this piece, as it came, before it is sent?
    """
    connection = upstream.connection
    if connection is None or client is None:
        return  # all of the body has come, or nobody is there
    server, protocol = connection.transport, connection.protocol
    if server is not None and protocol is not None:  # uvloop's are no asyncio.Transport
        await _Between(upstream.content, server, protocol, client, passes, waits).run()


class _Between(asyncio.Protocol):
    """Stands before the protocol of the HTTP client, which reads what comes from the server.

    What that has read is written to the client at once. A task that waits for each piece would be
    woken only in the next round of the event loop. A piece that is a whole event in a whole chunk
    is written even before it is read, as it came, unless it has to wait.
    """

    def __init__(
        self,
        content: aiohttp.StreamReader,
        server: asyncio.Transport,
        protocol: asyncio.Protocol,
        client: asyncio.WriteTransport,
        passes: Callable[[bytes], None],
        waits: Callable[[bytes], bool],
    ) -> None:
        self._content, self._server, self._protocol = content, server, protocol
        self._client, self._passes, self._waits = client, passes, waits
        self._over = asyncio.Event()
        self._at_event = False
        """Does what comes next begin with a chunk and an event, as far as is known?"""
        self._unread, self._size = list[bytes](), 0
        """What has been sent and not read yet, and its bytes."""

    async def run(self) -> None:
        self._content.on_eof(self._end)
        self._server.set_protocol(self)
        try:
            self._take()
            if not self._content.is_eof():
                await self._over.wait()
        finally:
            self._end()

    def data_received(self, data: bytes) -> None:
        if self._at_event and _is_chunk(data) and not self._waits(data):
            self._client.write(data)
            self._unread.append(data)
            self._size += len(data)
            if self._size >= _BATCH:
                self._read()
                self._end_if_slow()
        else:
            self._read()
            self._protocol.data_received(data)
            # If they are equal, this was one chunk: nothing of another has been read before or yet.
            self._at_event = self._take() == data and data.endswith(_END)

    def eof_received(self) -> None:
        self._read()
        self._protocol.eof_received()
        self._take()

    def connection_lost(self, error: Exception | None) -> None:
        self._read()
        self._protocol.connection_lost(error)
        self._end()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def _take(self) -> bytes:
        """Send on what has been read; what is written to the client."""
        if self._content.exception() is not None:
            self._end()
        elif data := self._content.read_nowait():
            self._passes(data)
            chunk = b"%x\r\n%b\r\n" % (len(data), data)
            self._client.write(chunk)
            self._end_if_slow()
            return chunk
        return b""

    def _end_if_slow(self) -> None:
        if self._client.get_write_buffer_size() > MOST_UNSENT:
            self._end()

    def _read(self) -> None:
        """Read what has been sent."""
        if self._unread:
            data, self._unread, self._size = b"".join(self._unread), [], 0
            self._protocol.data_received(data)
            if self._content.exception() is None:
                self._passes(self._content.read_nowait())

    def _end(self) -> None:
        """Give the connection back: after the body it is used for another request."""
        self._read()
        if self._server.get_protocol() is self:
            self._server.set_protocol(self._protocol)
        self._over.set()


def _is_chunk(data: bytes) -> bool:
    found = _CHUNK.fullmatch(data)
    return found is not None and int(found[1], 16) == len(data) - len(found[1]) - 4
