"""Sends requests on as they came, and their answers back as they come."""

import asyncio
import os
import re
import socket
from collections.abc import Callable, Collection, Iterable
from urllib.parse import unquote

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from ale.errors import AleError
from ale_openai_wire.listening import is_one_of
from ale_proxy.admission import KEY, PassedBody, body_of, refusal, target_of
from ale_proxy.apis import api_at
from ale_proxy.credentials import NAMED, bare, keys_of, secrets_of
from ale_proxy.exchange import READ_ENCODINGS, Asker, Exchange
from ale_proxy.relaying import relay
from ale_proxy.sessions import BROKE_OFF, Sessions, TooManyError

SESSION = "X-Ale-Session"
TASK = "X-Ale-Task"
SENT_BY_S = 0.002
"""After which a request has been sent on."""
_OWN = "x-ale-"
"""What request headers for the proxy itself begin with; they are not sent on."""
IN_PATH = "/s/{place}"
"""Before ``/v1`` in the path: the name of the session, and of its task after an ``@``."""
_BELOW = re.compile(r"/s/(?P<place>[^/?#]+)(?=/v1(?:[/?#]|$))")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
_OF_THE_CONNECTION = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
"""Headers that say something about one connection alone: RFC 9110, 7.6.1."""
_NOT_ADDED = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
"""What the HTTP client would add to a request that does not have it."""


class Forwarder:
    """The proxy's answer to every request that is not about sessions.

    Args:
        upstream: the server's URL, without ``/v1``.
        session_header: the request header that names the session.
        ask_tokens: ask the server for token ids and log-probabilities, where the agent does not.
        keys: of which each request needs one, if there are any: in `KEY`, or where it has the
            server's key, which is then not sent on.
    """

    def __init__(
        self,
        client: aiohttp.ClientSession,
        upstream: URL,
        sessions: Sessions,
        *,
        session_header: str = SESSION,
        ask_tokens: bool = False,
        keys: Collection[str] = (),
    ) -> None:
        self._client = client
        self._upstream = str(upstream).rstrip("/")
        self._sessions = sessions
        self._session_header = session_header
        self._ask_tokens = ask_tokens
        self._keys = keys

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request.

        Raises:
            web.HTTPForbidden: it is for a route with which a run changes the server's weights.
            web.HTTPUnauthorized: it needs a key of this program, and has none.
        """
        target = target_of(request)
        # Any segment, also an escaped one: whatever stands before the server may resolve `..`.
        if "ale" in unquote(target.partition("?")[0]).split("/"):
            message = "ale proxy: the routes below /ale/, which change weights, are not forwarded"
            raise refusal(web.HTTPForbidden, message)
        given = (request.headers.get(KEY, ""), *(_key_in(request, name) for name in NAMED))
        if self._keys and not any([is_one_of(key, self._keys) for key in given]):
            message = f"the key is missing or wrong; it may be in {KEY}"
            raise refusal(web.HTTPUnauthorized, message)
        api = api_at(target) if request.method == "POST" else None
        if api is None:
            return await self._forward(
                request, PassedBody(request) if request.body_exists else None
            )
        body = await body_of(request)
        exchange = Exchange(api, body, request.headers.get("Content-Encoding", ""))
        asker = self.asker(request)
        try:
            self._sessions.check_room_for(asker)
        except TooManyError as error:
            raise refusal(web.HTTPServiceUnavailable, f"ale proxy: {error}") from None
        # The request is sent on first: reading a long conversation takes milliseconds.
        asyncio.get_running_loop().call_later(SENT_BY_S, self._sessions.place, exchange)
        if self._ask_tokens:
            body = exchange.with_fields(api.token_fields) or body
        with self._sessions.exchanging(asker, exchange):
            try:
                if exchange.session is not None and exchange.session.rewriting is not None:
                    body = await exchange.rewrite(exchange.session.rewriting) or body
            except AleError as error:
                exchange.give_up("a middleware failed")
                raise refusal(web.HTTPInternalServerError, f"ale proxy: {error}") from error
            return await self._forward(request, body, exchange)

    def asker(self, request: web.Request) -> Asker:
        """Whose a request is: by its path, its header, or else its key.

        Raises:
            web.HTTPBadRequest: a name is none, or path and header have two.
            web.HTTPConflict: the session that it names is open, of another task than it names.
        """
        found = _BELOW.match(target_of(request))
        session, _, task = (unquote(found["place"]) if found else "").partition("@")
        keys = keys_of(request)
        asker = Asker(
            name=_one_name(request, self._session_header, session),
            of=self._sessions.name_for(keys[0]) if keys else "unnamed",
            task_id=_one_name(request, TASK, task),
            secrets=secrets_of(request),
        )
        self._check_task(asker)
        return asker

    def _check_task(self, asker: Asker) -> None:
        named = None if asker.name is None else self._sessions.get(asker.name)
        if named is not None and asker.task_id not in (None, named.task_id or asker.task_id):
            message = (
                f"the session '{named.name}' is open, of the task '{named.task_id}', and not of "
                f"'{asker.task_id}': end it first, or give the session another name"
            )
            raise refusal(web.HTTPConflict, message)

    def _sent_on(self, request: web.Request, exchange: Exchange | None) -> CIMultiDict[str]:
        headers = _sent_on(request, exchange)
        for name in NAMED if self._keys else ():
            if is_one_of(_key_in(request, name), self._keys):
                headers.popall(name, None)
        return headers

    async def _forward(
        self,
        request: web.Request,
        body: bytes | PassedBody | None,
        exchange: Exchange | None = None,
    ) -> web.StreamResponse:
        asking = self._client.request(
            request.method,
            URL(self._upstream + _below(target_of(request)), encoded=True),
            headers=self._sent_on(request, exchange),
            data=body,
            skip_auto_headers=_NOT_ADDED,
            allow_redirects=False,
        )
        try:
            upstream = await asking
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(body, PassedBody) and body.refusal is not None:
                raise body.refusal from None
            reason = f"the server at {self._upstream} did not answer: {_why(error)}"
            if exchange is not None:
                exchange.give_up(reason)
            raise refusal(web.HTTPBadGateway, f"ale proxy: {reason}") from error
        async with upstream:
            if exchange is not None:
                exchange.answer_begins(upstream.status, upstream.headers)

            def passes(data: bytes | None) -> None:
                if exchange is None:
                    return
                if data is None or (exchange.feed(data) and exchange.complete):
                    self._sessions.finish(exchange)

            return await _answer(request, upstream, exchange, passes)


def _why(error: Exception) -> str:
    """What the system or the HTTP client says, in one line."""
    failed = getattr(error, "os_error", error)
    if isinstance(failed, OSError) and failed.errno and not isinstance(failed, socket.gaierror):
        return os.strerror(failed.errno)
    return " ".join(str(failed).split()) or type(failed).__name__


async def _answer(
    request: web.Request,
    upstream: aiohttp.ClientResponse,
    exchange: Exchange | None,
    passes: Callable[[bytes | None], None],
) -> web.StreamResponse:
    """Send an answer on.

    Args:
        passes: called with each piece before it is sent, and with None before the end is.
    """
    response = _head(upstream)
    await response.prepare(request)
    waits = (lambda _: False) if exchange is None else exchange.may_end
    try:
        while data := await upstream.content.readany():
            # Before it is sent: who has the whole answer may end the session, or kill the proxy.
            passes(data)
            await response.write(data)
            if response.chunked:
                await relay(upstream, request.transport, passes, waits)
    except (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError) as error:
        if isinstance(error, aiohttp.ClientConnectionResetError):
            raise  # the client's connection, not the server's
        if exchange is not None and not exchange.complete:
            exchange.give_up(BROKE_OFF)
        # As the server did: the end of the answer does not come.
        if request.transport is not None:
            request.transport.close()
        return response
    passes(None)
    await response.write_eof()
    return response


class _Passed(web.StreamResponse):
    """The head of an answer that has only the headers that the server sent, and a date."""

    async def _prepare_headers(self) -> None:
        given = {name.lower() for name in self.headers}
        await super()._prepare_headers()
        for name in ("Server", "Content-Type"):
            if name.lower() not in given:
                self.headers.popall(name, None)


def _head(upstream: aiohttp.ClientResponse) -> web.StreamResponse:
    dropped = _dropped(upstream.headers.getall("Connection", ()))
    headers = CIMultiDict(
        (name, value) for name, value in upstream.headers.items() if name.lower() not in dropped
    )
    response = _Passed(status=upstream.status, reason=upstream.reason, headers=headers)
    if "Content-Length" not in headers and upstream.status not in (204, 304):
        response.enable_chunked_encoding()
    return response


def _dropped(connection: Iterable[str]) -> frozenset[str]:
    named = (name.strip().lower() for value in connection for name in value.split(","))
    return _OF_THE_CONNECTION.union(named)


def _sent_on(request: web.Request, exchange: Exchange | None) -> CIMultiDict[str]:
    """The headers of a request that the server gets.

    An answer that is read may not come in an encoding that can't be.
    """
    dropped = {*_dropped(request.headers.getall("Connection", ())), "host", "expect"}
    if exchange is not None:
        dropped |= {"content-length"} | ({"content-encoding"} if exchange.changed else set())
    headers = CIMultiDict(
        (name, value)
        for name, value in request.headers.items()
        if name.lower() not in dropped and not name.lower().startswith(_OWN)
    )
    if exchange is not None and "Accept-Encoding" in headers:
        headers["Accept-Encoding"] = _readable(headers.getall("Accept-Encoding"))
    return headers


def _readable(accepted: Iterable[str]) -> str:
    """The encodings of those that the client accepts that can be read here too."""
    offered = [part.strip() for value in accepted for part in value.split(",")]
    kept = [part for part in offered if part.partition(";")[0].lower() in READ_ENCODINGS]
    return ", ".join(kept) or "identity"


def _key_in(request: web.Request, header: str) -> str:
    return bare(request.headers.get(header, ""))


def _below(target: str) -> str:
    """The path at the server, without the session's name."""
    found = _BELOW.match(target)
    return target if found is None else target[found.end("place") :]


def _one_name(request: web.Request, header: str, in_path: str) -> str | None:
    """A name that a header or the path has. Raises `web.HTTPBadRequest`."""
    given = request.headers.get(header)
    for where, name in ((header, given), ("a name in the path", in_path or None)):
        if name is not None and not _NAME.fullmatch(name):
            message = f"{where} may have letters, digits and . _ : - and at most 100 of them"
            raise refusal(web.HTTPBadRequest, message)
    if given and in_path and given != in_path:
        message = f"the path names '{in_path}', and {header} names '{given}'"
        raise refusal(web.HTTPBadRequest, message)
    return given or in_path or None
