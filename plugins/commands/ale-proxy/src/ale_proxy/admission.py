"""Which requests may come in, how large they may be, and how slow."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from urllib.parse import urlsplit

from aiohttp import web

from ale_openai_wire import Admission
from ale_openai_wire.listening import BODY_S, HEAD_S, MOST_BODY, Refused
from ale_proxy.apis import api_at

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
EVERYTHING = "/{path:.*}"
"""The path of requests that are sent on to a server."""
KEY = "X-Ale-Key"
"""Request header with a key for this program, beside the one for the server."""
MOST_FORM = 8 << 20
"""Most bytes of a body for the program itself, which is JSON of a few texts."""
_EMPTY = (204, 304)
_CANONICAL = "/{path}"
"""`EVERYTHING`, as aiohttp shows it."""


class Entrance:
    """Middleware of a server, and the protocols of its connections.

    A connection on which nothing has been asked by `head_s` seconds is closed.
    """

    def __init__(self, admission: Admission, *, head_s: float = HEAD_S) -> None:
        self._admission = admission
        self._head_s = head_s
        self._silent: set[asyncio.BaseProtocol] = set()
        """Connections that are young and have asked nothing."""

    def protocols(self, server: web.Server) -> Callable[[], asyncio.BaseProtocol]:
        """What makes a connection's protocol, for `loop.create_server`."""
        loop = asyncio.get_running_loop()

        def made() -> asyncio.BaseProtocol:
            protocol = server()
            self._silent.add(protocol)
            loop.call_later(self._head_s, self._close_if_silent, protocol)
            return protocol

        return made

    def _close_if_silent(self, protocol: web.RequestHandler) -> None:
        if protocol in self._silent:
            self._silent.discard(protocol)
            protocol.force_close()

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what may not come in; answer what is not there in JSON as well."""
        self._silent.discard(request.protocol)
        if refused := self._refusal(request):
            return _answered(refused)
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.content_type == "application/json" or error.status in _EMPTY:
                raise
            allowed = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            what = HTTPStatus(error.status).phrase.lower()
            refused = Refused(error.status, f"{request.method} {request.path}: {what}")
            return _answered(refused, allowed)

    def _refusal(self, request: web.Request) -> Refused | None:
        refused = self._admission.refusal(request.headers, json=not _is_for_any(request))
        if refused is not None or request.raw_path.startswith("/"):
            return refused
        parts = urlsplit(request.raw_path)
        if parts.scheme not in ("http", "https"):
            return Refused(400, "the target of the request is no path")
        return self._admission.other_host(parts.netloc)


def _is_for_any(request: web.Request) -> bool:
    """Is it sent on to a server unread, so that its body may be a file?"""
    resource = request.match_info.route.resource
    sent_on = resource is not None and resource.canonical == _CANONICAL
    return sent_on and (request.method != "POST" or api_at(target_of(request)) is None)


def target_of(request: web.Request) -> str:
    """Path and query as they were sent, also where the target is a whole URL (RFC 9112, 3.2.2)."""
    if request.raw_path.startswith("/"):
        return request.raw_path
    parts = urlsplit(request.raw_path)
    return f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"


async def body_of(request: web.Request, most: int = MOST_BODY) -> bytes:
    """A request's body, read whole, as it was sent.

    Raises:
        web.HTTPRequestEntityTooLarge: it, or what it is inflated to, has more than `most` bytes.
        web.HTTPRequestTimeout: it does not come.
    """
    if (request.content_length or 0) > most:
        raise _too_large(most)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.content.iter_any():
                body += piece
                if len(body) > most:
                    raise _too_large(most)
    except TimeoutError:
        raise _too_slow() from None
    if request.headers.get("Content-Encoding", "").lower() in ("gzip", "deflate"):
        await asyncio.to_thread(_check_inflated, bytes(body), most)
    return bytes(body)


class PassedBody:
    """A request's body that is sent on as it comes; it ends with `TimeoutError` if that is slow."""

    def __init__(self, request: web.Request) -> None:
        self._content = request.content
        self.refusal: web.HTTPException | None = None
        """The answer to a request whose body did not come."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        deadline = asyncio.get_running_loop().time() + BODY_S
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    piece = await self._content.readany()
            except TimeoutError:
                self.refusal = _too_slow()
                raise
            if not piece:
                return
            yield piece


def _too_slow() -> web.HTTPException:
    message = f"the body of the request did not come within {BODY_S:g} s"
    return refusal(web.HTTPRequestTimeout, message)


def _check_inflated(body: bytes, most: int) -> None:
    try:
        inflated(body, most)
    except OverflowError:
        raise _too_large(most) from None
    except zlib.error:
        return  # it is sent on as it is, and says what it is not


def inflated(body: bytes, most: int = MOST_BODY) -> bytes:
    """What a compressed body holds.

    Raises:
        OverflowError: more than `most` bytes; no more are made.
        zlib.error: it is not compressed, or not whole.
    """
    reader = zlib.decompressobj(wbits=47)
    found = reader.decompress(body, most + 1)
    if len(found) > most:
        raise OverflowError
    if not reader.eof:
        raise zlib.error("it is not whole")
    return found


def _too_large(most: int) -> web.HTTPException:
    message = f"the body of the request has more than {most} bytes"
    return refusal(lambda **kept: web.HTTPRequestEntityTooLarge(most, most + 1, **kept), message)


def _answered(refused: Refused, headers: dict[str, str] | None = None) -> web.Response:
    # The rest of a body that nobody reads is not waited for.
    kept = {"Connection": "close", **(headers or {})}
    return web.json_response(_error(refused.message), status=refused.status, headers=kept)


def refusal(status: Callable[..., web.HTTPException], message: str) -> web.HTTPException:
    """An error as clients of OpenAI and of Anthropic read it, to be raised."""
    return status(text=json.dumps(_error(message)), content_type="application/json")


def _error(message: str) -> dict[str, object]:
    return {"type": "error", "error": {"type": "proxy_error", "message": message}}
