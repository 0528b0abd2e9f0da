"""A server of the protocol behind HTTP: routes of Starlette."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from attrs import frozen
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from ale.errors import AleError
from ale_servers.fetching import FetchedWeights
from ale_servers.protocol import REFUSALS, InferenceServer
from ale_servers.records import AbortRequest, PauseRequest, Refusal, SampleRequest, Weights

T = TypeVar("T")
_STATUS = {
    "invalid": 400,
    "context": 400,
    "unauthorized": 401,
    "weights": 409,
    "failed": 500,
    "not-sampled": 503,
}
MOST_BODY = 64 << 20
"""Most bytes of a request's body: the ids of some ten million tokens."""
_CLIENT_LEFT = 499
"""The status that nginx logs when the client has disconnected."""


def routes(
    server: InferenceServer, admits: Callable[[Request], bool], fetched: FetchedWeights
) -> list[Route]:
    """``POST /ale/sample``, ``abort``, ``pause``, ``prepare``, ``update``, ``resume``, ``status``.

    Args:
        server: carries out the requests.
        admits: whether a request has the key, if one is needed.
        fetched: for weights that this machine has to fetch.
    """
    asked = _Asked(server, fetched)
    verbs = (asked.sample, asked.abort, asked.pause, asked.prepare, asked.update, asked.resume)
    return [_route(verb, admits) for verb in (*verbs, asked.status)]


def _route(
    verb: Callable[[Request], Awaitable[Response]], admits: Callable[[Request], bool]
) -> Route:
    async def handle(request: Request) -> Response:
        if not admits(request):
            return _refused("unauthorized", "the key is missing or wrong")
        # Requests that a page in a browser can send without permission have another type.
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _refused("invalid", "expected Content-Type: application/json")
        try:
            return await verb(request)
        except ClientDisconnect:
            return Response(status_code=_CLIENT_LEFT)
        except _TooLongError as error:
            return _refused("invalid", str(error), status=413)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _refused("invalid", str(error))
        except Exception as error:
            return _failed(error)

    return Route(f"/ale/{verb.__name__}", handle, methods=["POST"])


@frozen
class _Asked:
    """The server, asked by requests."""

    server: InferenceServer
    fetched: FetchedWeights

    async def sample(self, request: Request) -> Response:
        asked = await _read(request, SampleRequest)
        if not (asked.prompt_ids or asked.answer_ids):
            return _refused("invalid", "expected prompt_ids or answer_ids")

        async def work() -> Response:
            return _json(await self.server.sample(asked))

        return await while_connected(request, work())

    async def abort(self, request: Request) -> Response:
        await self.server.abort((await _read(request, AbortRequest)).ids)
        return _json({})

    async def pause(self, request: Request) -> Response:
        asked = await _read(request, PauseRequest)
        await self.server.pause(asked.mode, asked.seconds)
        return _json({})

    async def prepare(self, request: Request) -> Response:
        await self.server.prepare(await self._weights(request))
        return _json({})

    async def update(self, request: Request) -> Response:
        await self.server.update(await self._weights(request))
        return _json({})

    async def resume(self, request: Request) -> Response:
        await self.server.resume()
        return _json({})

    async def status(self, request: Request) -> Response:
        return _json(await self.server.status())

    async def _weights(self, request: Request) -> Weights:
        weights = await _read(request, Weights)
        asker = request.client.host if request.client else ""
        if weights.broadcast is not None and not weights.broadcast.host:
            sent = msgspec.structs.replace(weights.broadcast, host=asker)
            weights = msgspec.structs.replace(weights, broadcast=sent)
        return await self.fetched.local(weights, asker)


async def while_connected(request: Request, answering: Coroutine[Any, Any, Response]) -> Response:
    """The answer; cancelled when the client disconnects, so that no sampled tokens are wasted.

    The request's body must have been read.
    """
    task = asyncio.create_task(answering)
    left = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else Response(status_code=_CLIENT_LEFT)
    finally:
        for each in (task, left):
            if not each.done():
                each.cancel()
                with suppress(asyncio.CancelledError):
                    await each


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _TooLongError(Exception):
    """The body of a request is longer than `MOST_BODY`."""


async def _read(request: Request, kind: type[T]) -> T:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BODY:
            raise _TooLongError(f"the request is longer than {MOST_BODY} bytes")
    return msgspec.json.decode(body, type=kind)


def _failed(error: Exception) -> Response:
    for kind, known in REFUSALS.items():
        if isinstance(error, known):
            return _refused(kind, str(error))
    if not isinstance(error, AleError):
        traceback.print_exception(error)
    return _refused("failed", f"{error}" if isinstance(error, AleError) else type(error).__name__)


def _refused(kind: Any, message: str, *, status: int | None = None) -> Response:
    body = msgspec.json.encode(Refusal(kind=kind, message=message))
    return Response(body, status or _STATUS[kind], media_type="application/json")


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
