"""As much of HTTP/1.1 as clients of a model need: keep-alive, lengths, chunks, clear refusals."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus

from attrs import frozen

MOST_HEAD = 64 << 10
MOST_BODY = 64 << 20
_LINGER_S = 2.0


class GoneError(Exception):
    """The other side has left."""


@frozen(kw_only=True)
class Request:
    """One request, read whole. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@frozen(kw_only=True)
class Response:
    """An answer, whole or in pieces."""

    status: int = 200
    body: bytes = b""
    pieces: AsyncIterator[bytes] | None = None
    kind: str = "application/json"


class BadRequestError(Exception):
    """It can't be read; the connection is closed after the answer."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


Handler = Callable[[Request], Awaitable[Response]]
Refuse = Callable[[BadRequestError], Response]


async def serve_connection(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    handle: Handler,
    refuse: Refuse,
) -> None:
    """Answer one connection's requests, one after the other, until either side closes."""
    try:
        while True:
            try:
                request = await _read(reader)
            except BadRequestError as error:
                await _write(writer, refuse(error), last=True)
                await _read_out(reader, writer)
                return
            response = await _while_connected(reader, handle(request))
            last = request.headers.get("connection", "").lower() == "close"
            await _write(writer, response, last=last)
            if last:
                return
    except (GoneError, ConnectionError):
        return
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _read_out(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Let the other side finish: what is closed with unread bytes loses the answer too."""
    writer.write_eof()
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            while await reader.read(MOST_HEAD):
                pass


async def _read(reader: asyncio.StreamReader) -> Request:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError as error:
        raise GoneError from error
    except asyncio.LimitOverrunError as error:
        raise BadRequestError(431, "the head of the request is too long") from error
    first, *lines = head.rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequestError(400, "that is no request of HTTP/1.1")
    fields = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    body = await _body(reader, headers)
    return Request(method=words[0], path=words[1].partition("?")[0], headers=headers, body=body)


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if "transfer-encoding" in headers:
        raise BadRequestError(411, "send a Content-Length; chunks are not read")
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit():
        raise BadRequestError(400, "the Content-Length is no number")
    if int(length) > MOST_BODY:
        raise BadRequestError(413, f"the request is longer than {MOST_BODY} bytes")
    try:
        return await reader.readexactly(int(length))
    except asyncio.IncompleteReadError as error:
        raise GoneError from error


async def _while_connected(
    reader: asyncio.StreamReader, answering: Awaitable[Response]
) -> Response:
    """The answer; given up when the client leaves, so that nobody samples for nobody."""
    task = asyncio.ensure_future(answering)
    try:
        while not (await asyncio.wait({task}, timeout=0.1))[0]:
            if reader.at_eof():
                raise GoneError
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _write(writer: asyncio.StreamWriter, response: Response, *, last: bool) -> None:
    lines = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"Content-Type: {response.kind}",
        f"Connection: {'close' if last else 'keep-alive'}",
    ]
    if response.pieces is None:
        lines.append(f"Content-Length: {len(response.body)}")
    else:
        lines.append("Transfer-Encoding: chunked")
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + response.body)
    if response.pieces is not None:
        async for piece in response.pieces:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
    await writer.drain()
