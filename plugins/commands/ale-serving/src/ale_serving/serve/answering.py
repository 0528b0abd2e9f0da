"""Requests to responses: a model as an application of Starlette."""

import asyncio
import os
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from attrs import field, frozen
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from ale.errors import AleError, ContextLengthError, LLMError
from ale.protocols import LLM
from ale_openai_wire import Admission
from ale_openai_wire.listening import BODY_S, MOST_BODY, is_one_of
from ale_servers.fetching import FetchedWeights
from ale_servers.protocol import HasServer, InferenceServer
from ale_servers.web import guarded, routes, while_connected
from ale_serving.serve import wire

_CLIENT_LEFT = 499
"""As nginx logs it; the client has disconnected."""


@frozen(kw_only=True)
class Served:
    """Answers requests with a model."""

    llm: LLM
    name: str
    key: str | None = field(default=None, repr=False)
    fetched: FetchedWeights = field(factory=FetchedWeights)
    """Weights of trainers on other machines; whoever serves closes it."""
    clock: Callable[[], float] = time.time
    new_id: Callable[[], str] = lambda: os.urandom(12).hex()
    admission: Admission = field(factory=Admission)

    def app(self) -> ASGIApp:
        """The application, for any ASGI server."""
        paths = [
            Route("/health", self._health),
            Route("/v1/models", self._models),
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
        ]
        if self.inference is not None:
            keyed = self.key is not None
            paths += routes(self.inference, self._has_key, self.fetched, keyed=keyed)
        app = Starlette(routes=paths, exception_handlers={HTTPException: _refused})
        return guarded(app, self.admission)

    @property
    def inference(self) -> InferenceServer | None:
        """The model as a server for training; None if it does not sample by token ids."""
        return self.llm.server if isinstance(self.llm, HasServer) else None

    async def _health(self, request: Request) -> Response:
        self._admit(request)
        return _json({})

    async def _models(self, request: Request) -> Response:
        self._admit(request)
        model = {"id": self.name, "object": "model", "created": 0, "owned_by": "ale"}
        return _json({"object": "list", "data": [model]})

    async def _chat(self, request: Request) -> Response:
        self._admit(request)
        try:
            asked = wire.read(await _body(request))
        except ValueError as error:
            return _refusal(400, str(error), "invalid_request_error")
        except ClientDisconnect:
            return Response(status_code=_CLIENT_LEFT)
        return await while_connected(request, self._answer(asked))

    def _admit(self, request: Request) -> None:
        if not self._has_key(request):
            raise HTTPException(401, "the key is missing or wrong")

    def _has_key(self, request: Request) -> bool:
        given = request.headers.get("authorization", "")
        return self.key is None or is_one_of(given, [f"Bearer {self.key}"])

    async def _answer(self, asked: wire.ChatRequest) -> Response:
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
            return _json(wire.answer(done, head, asked))
        events = _stream(wire.events(done, head, asked))
        return StreamingResponse(events, media_type="text/event-stream")


async def _body(request: Request) -> bytes:
    body = bytearray()
    close = {"Connection": "close"}  # the rest of the body is not waited for
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.stream():
                body += piece
                if len(body) > MOST_BODY:
                    raise HTTPException(413, f"the request is longer than {MOST_BODY} bytes", close)
    except TimeoutError:
        message = f"the body of the request did not come within {BODY_S:g} s"
        raise HTTPException(408, message, close) from None
    return bytes(body)


async def _stream(events: Iterable[Mapping[str, Any]]) -> AsyncIterator[bytes]:
    for event in events:
        yield b"data: " + wire.encoded(event) + b"\n\n"
        await asyncio.sleep(0)  # or a client that has left is noticed only after the last event
    yield b"data: [DONE]\n\n"


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answers = {
        404: (f"there is nothing at {request.url.path}", "not_found"),
        405: (f"{request.url.path} takes no {request.method}", "method_not_allowed"),
        401: (error.detail, "authentication_error"),
    }
    message, kind = answers.get(error.status_code, (error.detail, "invalid_request_error"))
    return _refusal(error.status_code, message, kind, headers=error.headers)


def _refusal(
    status: int,
    message: str,
    kind: str,
    *,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    body = wire.encoded(wire.error(message, kind=kind, code=code))
    return Response(body, status, headers, "application/json")


def _json(value: Any) -> Response:
    return Response(wire.encoded(value), media_type="application/json")
