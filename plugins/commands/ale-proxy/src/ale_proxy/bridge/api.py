"""Answers the requests of the bridge."""

import hmac
import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web
from attrs import field, frozen

from ale.errors import AleError, StoreError
from ale_proxy.bridge.assignments import Assignments, ConflictError, UnknownError
from ale_proxy.bridge.forms import Assign, Error, HandIn, Health, Problem, Said, Take
from ale_proxy.bridge.openapi import document
from ale_proxy.bridge.operations import LONGEST_WAIT_S, OPERATIONS, Operation, Role

Reply = tuple[int, msgspec.Struct | None]
_NAME = re.compile(r"`str` matching regex '\^.*\{0,(\d+)\}.*'")
"""How msgspec refuses a `Name` or a `TaskId`."""


class RefusedError(Exception):
    """A request can't be answered; `status` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@frozen(kw_only=True)
class Keys:
    """What requests must have as their bearer; None: nothing is asked for."""

    manager: str | None = field(default=None, repr=False)
    worker: str | None = field(default=None, repr=False)

    def admits(self, role: Role, request: web.Request) -> bool:
        """Whether the request has the key for it."""
        if role == "anybody" or self.manager is None:
            return True
        keys = [self.manager, *([self.worker] if role == "worker" and self.worker else [])]
        given = request.headers.get("Authorization", "").encode()
        return any([hmac.compare_digest(given, f"Bearer {key}".encode()) for key in keys])


class Bridge:
    """Answers managers and workers."""

    def __init__(self, assignments: Assignments, keys: Keys) -> None:
        self._assignments = assignments
        self._keys = keys
        self._answers: dict[str, Callable[[Any, web.Request], Awaitable[Reply]]] = {
            "assign": self._assign,
            "take": self._take,
            "result": self._result,
            "feedback": self._feedback,
            "task": self._task,
            "end": self._end,
            "status": self._status,
            "health": self._health,
        }

    def routes(self) -> list[web.RouteDef]:
        """One for each operation, and the document."""
        text = msgspec.json.encode(document())

        async def described(request: web.Request) -> web.Response:
            return web.Response(body=text, content_type="application/json")

        made = [web.route(each.method, each.path, self._handler(each)) for each in OPERATIONS]
        return [*made, web.get("/openapi.json", described)]

    def _handler(self, operation: Operation) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            try:
                status, reply = await self._answer(operation, request)
            except RefusedError as error:
                status, reply = error.status, _error(str(error))
            if reply is None:
                return web.Response(status=status)
            body = msgspec.json.encode(reply)
            return web.Response(status=status, body=body, content_type="application/json")

        return handle

    async def _answer(self, operation: Operation, request: web.Request) -> Reply:
        if not self._keys.admits(operation.role, request):
            raise RefusedError(401, f"the key of a {operation.role} is missing or wrong")
        form = None if operation.form is None else _read(await request.read(), operation.form)
        try:
            return await self._answers[operation.name](form, request)
        except UnknownError as error:
            raise RefusedError(404, str(error)) from None
        except ConflictError as error:
            raise RefusedError(409, str(error)) from None
        except StoreError as error:
            raise RefusedError(507, str(error)) from None
        except AleError as error:
            raise RefusedError(500, str(error)) from None

    async def _assign(self, form: Assign, request: web.Request) -> Reply:
        return 201, self._assignments.assign(form)

    async def _take(self, form: Take, request: web.Request) -> Reply:
        taken = await self._assignments.take(form)
        return (204, None) if taken is None else (200, taken)

    async def _result(self, form: HandIn, request: web.Request) -> Reply:
        return 201, self._assignments.hand_in(form)

    async def _feedback(self, form: Said, request: web.Request) -> Reply:
        if form.score is None and not form.text:
            raise RefusedError(422, "feedback needs a score, a text, or both")
        return 201, self._assignments.say(form)

    async def _task(self, form: None, request: web.Request) -> Reply:
        wait_s = _seconds(request.query.get("wait_s", "0"))
        return 200, await self._assignments.waited(request.match_info["id"], wait_s)

    async def _end(self, form: None, request: web.Request) -> Reply:
        return 200, self._assignments.end(request.match_info["id"])

    async def _status(self, form: None, request: web.Request) -> Reply:
        return 200, self._assignments.status()

    async def _health(self, form: None, request: web.Request) -> Reply:
        return 200, Health()


def _named(found: re.Match[str]) -> str:
    return f"a letter or digit, and then up to {found[1]} letters, digits and . _ : -"


def _read(body: bytes, form: type[msgspec.Struct]) -> Any:
    try:
        return msgspec.json.decode(body, type=form)
    except msgspec.ValidationError as error:
        raise RefusedError(422, _NAME.sub(_named, str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError(400, f"the body is no JSON: {error}") from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_WAIT_S:
        raise RefusedError(422, f"wait_s: expected 0 to {LONGEST_WAIT_S:g} seconds, found '{text}'")
    return seconds


def _error(message: str) -> Error:
    return Error(error=Problem(type="bridge_error", message=message))
