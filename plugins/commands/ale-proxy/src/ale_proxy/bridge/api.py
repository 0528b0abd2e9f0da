"""The requests of the bridge: one table, from which both the routes and the document are made."""

import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from aiohttp import web
from attrs import field, frozen

from ale.errors import AleError, StoreError
from ale_proxy.bridge.assignments import Assignments, ConflictError, UnknownError
from ale_proxy.bridge.forms import (
    Assign,
    Assigned,
    Error,
    HandIn,
    Health,
    Problem,
    Said,
    Status,
    Take,
    Taken,
)

Role = Literal["manager", "worker", "anybody"]
Reply = tuple[int, msgspec.Struct | None]
LONGEST_WAIT_S = 60.0
_ERRORS: Mapping[int, str] = {
    400: "The body is no JSON.",
    401: "The key is missing or wrong.",
    404: "There is no such assignment.",
    409: "It contradicts what was said before.",
    422: "The JSON does not have the form that is expected.",
    500: "A middleware failed.",
    507: "It could not be stored.",
}


class RefusedError(Exception):
    """A request can't be answered; `status` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@frozen(kw_only=True)
class Operation:
    """One request that the bridge answers."""

    name: str
    method: str
    path: str
    role: Role
    """Whose key it needs; a manager's is good for everything."""
    summary: str
    replies: Mapping[int, type[msgspec.Struct] | None]
    errors: Sequence[int]
    form: type[msgspec.Struct] | None = None
    waits: bool = False
    """Takes `wait_s` in the query."""

    @property
    def statuses(self) -> Mapping[int, str]:
        """The errors that it may be answered with, and what they mean."""
        codes = (*self.errors, *((400, 422) if self.form else ()))
        return {code: _ERRORS[code] for code in sorted(codes)}


_ONE = {201: Assigned}
OPERATIONS = (
    Operation(
        name="assign",
        method="POST",
        path="/tasks/assign",
        role="manager",
        summary="Assign a task.",
        form=Assign,
        replies=_ONE,
        errors=(401, 409, 507),
    ),
    Operation(
        name="take",
        method="POST",
        path="/tasks/take",
        role="worker",
        summary="Take a task to do; 204 if there is none.",
        form=Take,
        replies={200: Taken, 204: None},
        errors=(401, 500, 507),
    ),
    Operation(
        name="result",
        method="POST",
        path="/tasks/result",
        role="worker",
        summary="Hand in the result of a task.",
        form=HandIn,
        replies=_ONE,
        errors=(401, 404, 409, 507),
    ),
    Operation(
        name="feedback",
        method="POST",
        path="/feedback",
        role="manager",
        summary="Say something of a result; a score ends the assignment and stores its episode.",
        form=Said,
        replies=_ONE,
        errors=(401, 404, 409, 507),
    ),
    Operation(
        name="task",
        method="GET",
        path="/tasks/{id}",
        role="worker",
        summary="Where an assignment is, after waiting for its result.",
        replies={200: Assigned},
        errors=(401, 404, 422),
        waits=True,
    ),
    Operation(
        name="end",
        method="DELETE",
        path="/tasks/{id}",
        role="manager",
        summary="End an assignment without a score: its episode is stored as broken.",
        replies={200: Assigned},
        errors=(401, 404, 507),
    ),
    Operation(
        name="status",
        method="GET",
        path="/status",
        role="manager",
        summary="Open assignments, counts and workers.",
        replies={200: Status},
        errors=(401,),
    ),
    Operation(
        name="health",
        method="GET",
        path="/health",
        role="anybody",
        summary="Whether the bridge answers.",
        replies={200: Health},
        errors=(),
    ),
)


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
        from ale_proxy.bridge.openapi import document

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


def _read(body: bytes, form: type[msgspec.Struct]) -> Any:
    try:
        return msgspec.json.decode(body, type=form)
    except msgspec.ValidationError as error:
        raise RefusedError(422, str(error)) from None
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
