"""The server of the page: its files, what it shows and takes, and which runs change."""

import asyncio
import getpass
import os
import re
import secrets
import signal
import socket
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from attrs import frozen
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ale.errors import AleError, InputError
from ale.runs import Registry
from ale_look.store.comparing import compared
from ale_look.view import live
from ale_look.view.catalog import Catalog
from ale_look.view.noting import MOST_BYTES
from ale_look.view.pages import KINDS, static_files
from ale_look.view.saved import file_of, save, saved
from ale_look.view.searching import search
from ale_look.view.steering import steer, steering
from ale_look.view.watched import Kept
from ale_openai_wire import Admission, cannot_listen, key_from
from ale_openai_wire.listening import BODY_S, is_one_of

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
SHUTDOWN_S = 1
"""Seconds for requests in progress when the server ends; streams of events have no end."""


@frozen(kw_only=True)
class Endpoint:
    """Where to listen, and the variable of the token."""

    host: str
    port: int
    allow_host: tuple[str, ...] = ()
    token_env: str | None = None


def about(registry: Registry, catalog: Catalog, *, is_live: bool) -> dict[str, Any]:
    """Facts that the page needs before all others."""
    return {
        "version": version("ale-look"),
        "folder": str(catalog.folder),
        "live": is_live,
        "schemes": sorted(registry.names("credit")) if is_live else [],
        "by": _user() if is_live else "",
    }


def _user() -> str:
    """The name under which notes are written unless somebody gives another one."""
    with suppress(OSError, KeyError):  # this machine has no name for the user
        return getpass.getuser()
    return ""


def app(catalog: Catalog, registry: Registry, token: str, admission: Admission) -> ASGIApp:
    """The application: who may come in is said by `admission`, and who is told of runs by `token`.

    The page's own files are the same for everybody and have nothing of a run, so they need no
    token: the page reads it from the part of its address that is never sent.
    """
    pages, kept = static_files(), Kept(catalog.path)
    routes = [Route("/", _page(pages, "index.html"))]
    routes += [Route(f"/{name}", _page(pages, name)) for name in pages if name != "index.html"]
    answers = _answers(catalog, registry, kept)
    routes += [Route(path, _told(token, answer)) for path, answer in answers.items()]
    taken = _taken(catalog, kept).items()
    routes += [Route(path, _does(token, do), methods=["POST"]) for path, do in taken]
    routes.append(Route("/api/live", _events(token, catalog)))
    return _guarded(Starlette(routes=routes), admission)


_NOTES = "/api/run/{key}/notes.json"
_STEER = "/api/run/{key}/steer.json"
_SEARCHES = "/api/searches.json"
_Answer = Callable[[Request], bytes | dict[str, Any]]
_Do = Callable[[Request, bytes], bytes | dict[str, Any]]


def _taken(catalog: Catalog, kept: Kept) -> dict[str, _Do]:
    """A function for each address that takes something, given the body; called in threads."""
    return {
        _NOTES: lambda asked, body: kept.run(asked.path_params["key"]).write_note(body),
        _STEER: lambda asked, body: steer(kept.path_of(asked.path_params["key"]), body),
        _SEARCHES: lambda _, body: save(file_of(catalog), body),
    }


def _answers(catalog: Catalog, registry: Registry, kept: Kept) -> dict[str, _Answer]:
    """A function for each address, which makes its answer; called in threads."""

    def runs(_: Request) -> dict[str, Any]:
        catalog.refresh()
        reading = catalog.reading  # before: what is read while the rows are made is not in them
        return {"runs": catalog.rows(), "reading": reading, "problems": [*catalog.problems]}

    def found(request: Request) -> dict[str, Any]:
        catalog.refresh()
        return search(catalog, request.query_params)

    def compare(request: Request) -> dict[str, Any]:
        keys = request.query_params.getlist("run")
        both = compared([catalog.path(key) for key in keys])
        return {"keys": keys, "results": both.results, "settings": both.settings}

    def episodes(request: Request) -> bytes:
        reading, _, known = request.query_params.get("since", "0.0").partition(".")
        since = (_whole(reading), _whole(known))
        return kept.run(request.path_params["key"]).episodes(since)

    def episode(request: Request) -> bytes:
        whole = request.query_params.get("whole") == "1"
        return kept.run(request.path_params["key"]).episode(_offset(request), whole=whole)

    def credit(request: Request) -> bytes:
        schemes = request.query_params.getlist("scheme")
        if not 1 <= len(schemes) <= _SCHEMES:
            raise InputError.of(f"expected 1 to {_SCHEMES} schemes", path="scheme")
        return kept.run(request.path_params["key"]).credit(_offset(request), schemes, registry)

    return {
        "/api/about.json": lambda _: about(registry, catalog, is_live=True),
        "/api/runs.json": runs,
        "/api/search.json": found,
        _SEARCHES: lambda _: saved(file_of(catalog)),
        "/api/compare.json": compare,
        "/api/run/{key}.json": lambda asked: kept.run(asked.path_params["key"]).summary(),
        "/api/run/{key}/episodes.json": episodes,
        "/api/run/{key}/timeline.json": lambda asked: kept.run(asked.path_params["key"]).timeline(),
        _NOTES: lambda asked: kept.run(asked.path_params["key"]).notes(),
        _STEER: lambda asked: steering(kept.path_of(asked.path_params["key"])),
        "/api/run/{key}/episode/{offset}.json": episode,
        "/api/run/{key}/tokens/{offset}.json": lambda asked: kept.run(
            asked.path_params["key"]
        ).tokens(_offset(asked)),
        "/api/run/{key}/credit/{offset}.json": credit,
        "/api/run/{key}/worth/{offset}.json": lambda asked: kept.run(
            asked.path_params["key"]
        ).worth(_offset(asked), registry),
    }


_SCHEMES = 12


_DIGITS = re.compile(r"[0-9]{1,18}")
"""Whole numbers that a file's offset can be."""


def _whole(text: str) -> int:
    return int(text) if _DIGITS.fullmatch(text) else 0


def _offset(request: Request) -> int:
    text = request.path_params["offset"]
    if not _DIGITS.fullmatch(text):
        raise InputError.of("expected the offset of an episode", path="offset")
    return int(text)


_Handle = Callable[[Request], Awaitable[Response]]


def _page(pages: Mapping[str, bytes], name: str) -> _Handle:
    async def handle(_: Request) -> Response:
        return Response(pages[name], media_type=KINDS[Path(name).suffix])

    return handle


def _refused(request: Request, token: str) -> Response | None:
    """An answer for who has not the token; None for who has."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and is_one_of(given.strip(), (token,)):
        return None
    message = "the token is missing or wrong: open the address that `ale view` has printed"
    return JSONResponse({"error": message}, 401, {"WWW-Authenticate": "Bearer"})


def _told(token: str, answer: _Answer) -> _Handle:
    async def handle(request: Request) -> Response:
        return _refused(request, token) or await _made(partial(answer, request))

    return handle


def _does(token: str, do: _Do) -> _Handle:
    """Do what a request asks for. Its body is read only of who has the token."""

    async def handle(request: Request) -> Response:
        if refused := _refused(request, token):
            return refused
        body = await _body(request)
        if isinstance(body, Response):
            return body
        return await _made(partial(do, request, body))

    return handle


async def _body(request: Request) -> bytes | Response:
    """The body; an answer for one that is too long, or does not come."""
    body = bytearray()
    close = {"Connection": "close"}  # the rest of it is not waited for
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.stream():
                body += piece
                if len(body) > MOST_BYTES:
                    message = f"the request is longer than {MOST_BYTES} bytes"
                    return JSONResponse({"error": message}, 413, close)
    except (TimeoutError, ClientDisconnect):
        return JSONResponse({"error": "the body of the request did not come"}, 408, close)
    return bytes(body)


async def _made(answer: Callable[[], bytes | dict[str, Any]]) -> Response:
    """The answer of a function, which is called in a thread; or why there is none."""
    try:
        made = await run_in_threadpool(answer)
    except AleError as error:
        return JSONResponse({"error": str(error)}, 400)
    except Exception as error:
        traceback.print_exception(error)
        return JSONResponse({"error": f"the server failed: {type(error).__name__}"}, 500)
    body = made if isinstance(made, bytes) else msgspec.json.encode(made)
    return Response(body, media_type="application/json")


def _events(token: str, catalog: Catalog) -> _Handle:
    async def handle(request: Request) -> Response:
        if refused := _refused(request, token):
            return refused
        return StreamingResponse(live.events(catalog), media_type="text/event-stream")

    return handle


def _guarded(inner: ASGIApp, admission: Admission) -> ASGIApp:
    """The application with what every answer has, closed to pages of other sites."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await inner(scope, receive, send)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        refused = admission.refusal(Headers(scope=scope))
        if refused is None:
            return await inner(scope, receive, with_headers)
        response = JSONResponse({"error": refused.message}, refused.status, {"Connection": "close"})
        return await response(scope, receive, with_headers)

    return answer


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End upon SIGINT or SIGTERM, which is how this command ends and no interruption."""
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def run(
    catalog: Catalog, registry: Registry, endpoint: Endpoint, say: Callable[[str], object]
) -> None:
    """Serve until SIGINT or SIGTERM; the address, with the token, is said first.

    Raises:
        InputError: the token's variable is not set.
        AleError: the server can't listen at the address.
    """
    given = key_from(endpoint.token_env, os.environ, path="--token-env")
    token = secrets.token_urlsafe(24) if given is None else given.value
    admission = Admission.at(endpoint.host, endpoint.allow_host)
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    try:
        listener = socket.create_server((endpoint.host, endpoint.port), family=family)
    except OSError as error:
        raise cannot_listen(endpoint.host, endpoint.port, error) from error
    with listener:
        address, port = listener.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        first = catalog.only
        view = "" if first is None else f"/run/{first}"
        secret = f"#{view}" if given else f"#token={token}{view}"
        say(f"http://{shown}:{port}/{secret}")
        config = uvicorn.Config(
            app(catalog, registry, token, admission),
            lifespan="off",
            access_log=False,
            server_header=False,
            log_level="critical",  # streams of events are cut off at the end
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
        _Server(config).run(sockets=[listener])
