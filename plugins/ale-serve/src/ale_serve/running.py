"""A model behind HTTP: what is asked for is built, served, and let go of at the end."""

import asyncio
import hmac
import os
import signal
import time
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ale.errors import AleError, ContextLengthError, InputError, LLMError, Problem
from ale.plugin import BuildContext
from ale.protocols import LLM
from ale.runs import Registry, build_choice, parse_choice
from ale.strict import Node, read_yaml
from ale_serve import wire
from ale_serve.http import MOST_HEAD, BadRequestError, Request, Response, serve_connection


@frozen(kw_only=True)
class Place:
    """Where and for whom."""

    host: str
    port: int
    name: str | None = None
    api_key_env: str | None = None


def chosen(llm: str | None, config: Path | None) -> Node:
    """The section ``llm``: as written on the command line, or of a config.

    Raises:
        InputError: the file can't be read or has no such section.
    """
    if llm is not None:
        return parse_choice(llm, option="LLM")
    assert config is not None
    root = read_yaml(config)
    section = root.get("llm")
    if section is None:
        raise root.error("section 'llm' is missing", expected="llm: {type: ...}")
    return section


def run(section: Node, registry: Registry, place: Place, say: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        InputError: the model can't be built, or the key's variable is not set.
        AleError: the address can't be listened at.
    """
    environ = dict(os.environ)
    key = _key(place.api_key_env, environ)
    name, llm = build_choice(section, "llm", registry, BuildContext(environ=environ))
    shown = place.name or _model_name(section) or name
    asyncio.run(_serve(Served(llm=llm, name=shown, key=key), place, say))


def _key(variable: str | None, environ: Mapping[str, str]) -> str | None:
    if variable is None:
        return None
    key = environ.get(variable, "").strip()
    if not key:
        message = f"the environment variable {variable} is not set"
        raise InputError([Problem(message=message, path="--api-key-env")])
    return key


def _model_name(section: Node) -> str | None:
    node = section.get("model")
    return node.value if node is not None and isinstance(node.value, str) else None


@frozen(kw_only=True)
class Served:
    """Answers requests with a model."""

    llm: LLM
    name: str
    key: str | None = field(default=None, repr=False)
    clock: Callable[[], float] = time.time
    new_id: Callable[[], str] = lambda: os.urandom(12).hex()

    async def handle(self, request: Request) -> Response:
        """One request to one response; nothing but cancellation is raised."""
        if not self._allowed(request):
            return _refusal(401, "the key is missing or wrong", "authentication_error")
        known = {"/v1/models": "GET", "/v1/chat/completions": "POST", "/health": "GET"}
        method = known.get(request.path)
        if method is None:
            return _refusal(404, f"there is nothing at {request.path}", "not_found")
        if method != request.method:
            return _refusal(405, f"{request.path} takes {method}", "method_not_allowed")
        if request.path == "/health":
            return Response(body=b"{}")
        if request.path == "/v1/models":
            model = {"id": self.name, "object": "model", "created": 0, "owned_by": "ale"}
            return Response(body=wire.encoded({"object": "list", "data": [model]}))
        return await self._chat(request)

    def _allowed(self, request: Request) -> bool:
        if self.key is None:
            return True
        given = request.headers.get("authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {self.key}".encode())

    async def _chat(self, request: Request) -> Response:
        try:
            asked = wire.read(request.body)
        except ValueError as error:
            return _refusal(400, str(error), "invalid_request_error")
        identity = self.new_id()
        given = wire.request(asked, episode_id=identity, seed=int(identity[:8], 16))
        try:
            done = await self.llm.complete(given)
        except ContextLengthError as error:
            code = "context_length_exceeded"
            return _refusal(400, str(error), "invalid_request_error", code=code)
        except LLMError as error:
            return _refusal(503 if error.transient else 502, str(error), "server_error")
        except AleError as error:
            return _refusal(400, str(error), "invalid_request_error")
        except Exception as error:
            traceback.print_exc()
            return _refusal(500, f"the model failed: {type(error).__name__}", "server_error")
        head = {"id": f"chatcmpl-{identity}", "created": int(self.clock()), "model": self.name}
        if not asked.stream:
            return Response(body=wire.encoded(wire.answer(done, head, asked)))
        events = wire.events(done, head, asked)
        return Response(pieces=_stream(events), kind="text/event-stream")


async def _stream(events: Any) -> AsyncIterator[bytes]:
    for event in events:
        yield b"data: " + wire.encoded(event) + b"\n\n"
    yield b"data: [DONE]\n\n"


def _refusal(status: int, message: str, kind: str, *, code: str | None = None) -> Response:
    return Response(status=status, body=wire.encoded(wire.error(message, kind=kind, code=code)))


def _unreadable(error: BadRequestError) -> Response:
    return _refusal(error.status, str(error), "invalid_request_error")


async def _serve(served: Served, place: Place, say: Callable[[str], None]) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    try:
        server, url = await listen(served, place)
    except OSError as error:
        await served.llm.aclose()
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise AleError(f"can't listen at {place.host}:{place.port}: {reason}") from error
    say(url)
    try:
        await ended.wait()
    finally:
        server.close()
        await served.llm.aclose()


async def listen(served: Served, place: Place) -> tuple[asyncio.Server, str]:
    """Start to answer; the server and its base URL.

    Raises:
        OSError: the address is taken, or is none of this machine.
    """

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve_connection(reader, writer, served.handle, _unreadable)
        except asyncio.CancelledError:
            writer.close()  # the server ends; Python 3.11 would report it as an error

    server = await asyncio.start_server(connected, place.host, place.port, limit=MOST_HEAD)
    address, port = server.sockets[0].getsockname()[:2]
    return server, f"http://{f'[{address}]' if ':' in address else address}:{port}/v1"
