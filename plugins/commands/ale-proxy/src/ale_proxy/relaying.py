"""Sends a stream on as it comes, without waking a task for each piece."""

import asyncio
from collections.abc import Callable

import aiohttp

MOST_UNSENT = 64 << 10
"""Bytes that wait for a client; beyond, it is slow."""


async def relay(
    upstream: aiohttp.ClientResponse,
    client: asyncio.WriteTransport | None,
    passes: Callable[[bytes], None],
) -> None:
    """Send on what comes, until the body ends, the server breaks it off or the client is slow.

    Args:
        client: its connection, over which the head has gone and chunks are sent; None where it has
            left.
        passes: called with each piece before it is sent.
    """
    connection = upstream.connection
    if connection is None or client is None:
        return  # all of the body has come, or nobody is there
    server, protocol = connection.transport, connection.protocol
    if server is not None and protocol is not None:  # uvloop's are no asyncio.Transport
        await _Between(upstream.content, server, protocol, client, passes).run()


class _Between(asyncio.Protocol):
    """Stands before the protocol of the HTTP client, which reads what comes from the server.

    What that has read is written to the client at once. A task that waits for each piece would be
    woken only in the next round of the event loop.
    """

    def __init__(
        self,
        content: aiohttp.StreamReader,
        server: asyncio.Transport,
        protocol: asyncio.Protocol,
        client: asyncio.WriteTransport,
        passes: Callable[[bytes], None],
    ) -> None:
        self._content, self._server, self._protocol = content, server, protocol
        self._client, self._passes = client, passes
        self._over = asyncio.Event()

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
        self._protocol.data_received(data)
        self._take()

    def eof_received(self) -> None:
        self._protocol.eof_received()
        self._take()

    def connection_lost(self, error: Exception | None) -> None:
        self._protocol.connection_lost(error)
        self._end()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def _take(self) -> None:
        if self._content.exception() is not None:
            self._end()
        elif data := self._content.read_nowait():
            self._passes(data)
            self._client.write(b"%x\r\n%b\r\n" % (len(data), data))
            if self._client.get_write_buffer_size() > MOST_UNSENT:
                self._end()

    def _end(self) -> None:
        """Give the connection back: after the body it is used for another request."""
        if self._server.get_protocol() is self:
            self._server.set_protocol(self._protocol)
        self._over.set()
