"""A server of the protocol behind HTTP: routes of Starlette."""

import asyncio
import ipaddress
import re
import socket
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from attrs import frozen
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ale.errors import AleError
from ale_openai_wire import Admission
from ale_openai_wire.listening import BODY_S, MOST_BODY
from ale_servers.fetching import FetchedWeights
from ale_servers.leases import Leases
from ale_servers.protocol import REFUSALS, InferenceServer, WeightsError
from ale_servers.records import (
    AbortRequest,
    HoldRequest,
    PauseRequest,
    Refusal,
    ReleaseRequest,
    SampleRequest,
    Weights,
)

T = TypeVar("T")
_STATUS = {
    "invalid": 400,
    "context": 400,
    "unauthorized": 401,
    "held": 409,
    "weights": 409,
    "failed": 500,
    "not-sampled": 503,
}
_CLIENT_LEFT = 499
"""The status that nginx logs when the client has disconnected."""
_ORIGIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,100}")
_VERSION = re.compile(r"v[0-9]{8,20}")


def guarded(app: ASGIApp, admission: Admission) -> ASGIApp:
    """An application that answers only what may come in.

    What it refuses is answered as clients of the protocol and those of OpenAI read it.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        refused = admission.refusal(Headers(scope=scope)) if scope["type"] == "http" else None
        if refused is None:
            return await app(scope, receive, send)
        kind, message = "invalid", refused.message
        error = {"message": message, "type": "invalid_request_error", "code": None, "param": None}
        body = msgspec.json.encode({"kind": kind, "message": message, "error": error})
        # The rest of the body is not waited for.
        head = {"Connection": "close"}
        response = Response(body, refused.status, head, media_type="application/json")
        return await response(scope, receive, send)

    return answer


def routes(
    server: InferenceServer,
    admits: Callable[[Request], bool],
    fetched: FetchedWeights,
    *,
    keyed: bool = False,
) -> list[Route]:
    """``POST /ale/sample``, ``abort``, ``pause``, ``prepare``, ``update``, ``resume``, ``status``,
    ``hold`` and ``release``.

    Args:
        server: carries out the requests.
        admits: whether a request has the key, if one is needed.
        fetched: for weights that this machine has to fetch.
        keyed: `admits` asks for a key, so that a request says for its owner where weights are.
            Otherwise they are had from this machine only.
    """
    asked = _Asked(server, fetched, keyed, Leases())
    verbs = (asked.sample, asked.abort, asked.pause, asked.prepare, asked.update, asked.resume)
    more = (asked.status, asked.hold, asked.release)
    return [_route(verb, admits) for verb in (*verbs, *more)]


def _route(
    verb: Callable[[Request], Awaitable[Response]], admits: Callable[[Request], bool]
) -> Route:
    async def handle(request: Request) -> Response:
        if not admits(request):
            return _refused("unauthorized", "the key is missing or wrong")
        # Also where the application is not `guarded`.
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _refused("invalid", "expected Content-Type: application/json", status=415)
        try:
            return await verb(request)
        except ClientDisconnect:
            return Response(status_code=_CLIENT_LEFT)
        except _BodyError as error:
            return _refused("invalid", str(error), status=error.status)
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
    keyed: bool
    leases: Leases

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
        status = await self.server.status()
        return _json(msgspec.structs.replace(status, leases=self.leases.present()))

    async def hold(self, request: Request) -> Response:
        return _json(self.leases.hold(await _read(request, HoldRequest)))

    async def release(self, request: Request) -> Response:
        asked = await _read(request, ReleaseRequest)
        self.leases.release(asked.run, asked.adapter)
        return _json({})

    async def _weights(self, request: Request) -> Weights:
        weights = await _read(request, Weights)
        self.leases.check(weights)
        asker = request.client.host if request.client else ""
        origin = weights.origin
        if origin is not None:
            if not (_ORIGIN_KEY.fullmatch(origin.key) and _VERSION.fullmatch(_name(weights))):
                raise WeightsError("the origin of the weights has no key or version of a trainer")
            host = await self._place(origin.host or asker)
            origin = msgspec.structs.replace(origin, host=host)
        sent = weights.broadcast
        if sent is not None:
            sent = msgspec.structs.replace(sent, host=await self._place(sent.host or asker))
        weights = msgspec.structs.replace(weights, origin=origin, broadcast=sent)
        return await self.fetched.local(weights, asker)

    async def _place(self, host: str) -> str:
        """The address of a trainer, which must be this machine's where no key says who asks."""
        return host if self.keyed else await asyncio.to_thread(_own_address, host)


def _name(weights: Weights) -> str:
    return weights.folder.rpartition("/")[2]


def _own_address(host: str) -> str:
    """The first address of a name, all of which are this machine's."""
    try:
        addresses = [str(each[4][0]) for each in socket.getaddrinfo(host, None)]
        for each in addresses:
            if not ipaddress.ip_address(each.partition("%")[0]).is_loopback:
                family = socket.AF_INET6 if ":" in each else socket.AF_INET
                socket.create_server((each, 0), family=family).close()  # only at its own
    except (OSError, UnicodeError) as error:
        raise WeightsError(
            f"a server without a key has no weights from {host!r}, which is another machine or "
            f"none: {error}; start it with --api-key-env VARIABLE, and set 'api_key_env' in the "
            "trainer's 'llm: {type: servers}'"
        ) from error
    return addresses[0]


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


class _BodyError(Exception):
    """The body of a request is too long, or too slow."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def _read(request: Request, kind: type[T]) -> T:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.stream():
                body += piece
                if len(body) > MOST_BODY:
                    raise _BodyError(413, f"the request is longer than {MOST_BODY} bytes")
    except TimeoutError:
        message = f"the body of the request did not come within {BODY_S:g} s"
        raise _BodyError(408, message) from None
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
