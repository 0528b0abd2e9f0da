"""Answers the requests of the bridge."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web
from attrs import field, frozen

from ale.errors import AleError, StoreError
from ale_openai_wire.listening import is_one_of
from ale_proxy.admission import MOST_FORM, body_of
from ale_proxy.bridge.assignments import Assignments, RefusedError
from ale_proxy.bridge.forms import Error, Problem
from ale_proxy.bridge.openapi import document
from ale_proxy.bridge.operations import OPERATIONS, Operation, Reply, Role
from ale_proxy.sessions import TooManyError

_BEARER = "Bearer "
_NAME = re.compile(r"`str` matching regex '\^.*\{0,(\d+)\}.*'")
"""How msgspec refuses a `Name` or a `TaskId`."""


@frozen(kw_only=True)
class Keys:
    """What requests must have as their bearer; None: nothing is asked for."""

    manager: str | None = field(default=None, repr=False)
    worker: str | None = field(default=None, repr=False)

    @property
    def all(self) -> tuple[str, ...]:
        """Those that there are."""
        return tuple(key for key in (self.manager, self.worker) if key is not None)

    def admits(self, role: Role, request: web.Request) -> bool:
        """Whether the request has the key for it."""
        if role == "anybody" or self.manager is None:
            return True
        keys = self.all if role == "worker" else (self.manager,)
        given = request.headers.get("Authorization", "")
        return given.startswith(_BEARER) and is_one_of(given.removeprefix(_BEARER), keys)


def routes_of(assignments: Assignments, keys: Keys) -> list[web.RouteDef]:
    """A route for each operation, and one for the document."""
    text = msgspec.json.encode(document())

    async def described(request: web.Request) -> web.Response:
        return web.Response(body=text, content_type="application/json")

    def handler(operation: Operation) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            try:
                reply = await _answer(operation, assignments, keys, request)
            except RefusedError as error:
                return _json(error.status, _error(str(error)))
            except AleError as error:
                return _json(_status_of(error), _error(str(error)))
            is_there = {form is not None: status for status, form in operation.replies.items()}
            return _json(is_there[reply is not None], reply)

        return handle

    made = [web.route(each.method, each.path, handler(each)) for each in OPERATIONS]
    return [*made, web.get("/openapi.json", described)]


def _status_of(error: AleError) -> int:
    if isinstance(error, TooManyError):
        return 503
    return 507 if isinstance(error, StoreError) else 500


async def _answer(
    operation: Operation, assignments: Assignments, keys: Keys, request: web.Request
) -> Reply:
    if not keys.admits(operation.role, request):
        raise RefusedError(401, f"the key of a {operation.role} is missing or wrong")
    form = (
        None if operation.form is None else _read(await body_of(request, MOST_FORM), operation.form)
    )
    reply = operation.answer(assignments, form, request)
    return await reply if isinstance(reply, Awaitable) else reply


def _json(status: int, reply: Reply) -> web.Response:
    if reply is None:
        return web.Response(status=status)
    body = msgspec.json.encode(reply)
    return web.Response(status=status, body=body, content_type="application/json")


def _named(found: re.Match[str]) -> str:
    return f"a letter or digit, and then up to {found[1]} letters, digits and . _ : -"


def _read(body: bytes, form: type[msgspec.Struct]) -> Any:
    try:
        return msgspec.json.decode(body, type=form)
    except msgspec.ValidationError as error:
        raise RefusedError(422, _NAME.sub(_named, str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError(400, f"the body is no JSON: {error}") from None


def _error(message: str) -> Error:
    return Error(error=Problem(type="bridge_error", message=message))
