"""The requests of the bridge as one table, from which routes and OpenAPI document are made."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from aiohttp import web
from attrs import field, frozen

from ale_proxy.bridge.assignments import Assignments, RefusedError
from ale_proxy.bridge.forms import Assign, Assigned, HandIn, Health, Said, Status, Take, Taken

Role = Literal["manager", "worker", "anybody"]
Reply = msgspec.Struct | None
LONGEST_WAIT_S = 60.0
_ERRORS: Mapping[int, str] = {
    400: "The body is no JSON.",
    401: "The key is missing or wrong.",
    403: "A page of another site has sent it.",
    404: "There is no such assignment.",
    408: "The body did not come in time.",
    409: "It contradicts what was said before.",
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
    421: "The server is named otherwise.",
    422: "The JSON does not have the form that is expected.",
    500: "A middleware failed.",
    503: "Too many sessions are open.",
    507: "It could not be stored.",
}


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
    answer: Callable[[Assignments, Any, web.Request], Reply | Awaitable[Reply]] = field(repr=False)
    """Given the form, if there is one."""
    form: type[msgspec.Struct] | None = None
    waits: bool = False
    """Takes `wait_s` in the query."""

    @property
    def statuses(self) -> Mapping[int, str]:
        """The errors that it may be answered with, and what they mean."""
        codes = {*self.errors, *((400, 408, 413, 415, 422) if self.form else ()), 403, 421}
        return {code: _ERRORS[code] for code in sorted(codes)}


def _waited(assignments: Assignments, _: None, request: web.Request) -> Awaitable[Assigned]:
    text = request.query.get("wait_s", "0")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_WAIT_S:
        raise RefusedError(422, f"wait_s: expected 0 to {LONGEST_WAIT_S:g} seconds, found '{text}'")
    return assignments.waited(request.match_info["id"], seconds)


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
        errors=(401, 409, 503, 507),
        answer=lambda known, form, _: known.assign(form),
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
        answer=lambda known, form, _: known.take(form),
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
        answer=lambda known, form, _: known.hand_in(form),
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
        answer=lambda known, form, _: known.say(form),
    ),
    Operation(
        name="task",
        method="GET",
        path="/tasks/{id}",
        role="worker",
        summary="Where an assignment is, after waiting for its result.",
        replies={200: Assigned},
        errors=(401, 404, 422),
        answer=_waited,
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
        answer=lambda known, _, request: known.end(request.match_info["id"]),
    ),
    Operation(
        name="status",
        method="GET",
        path="/status",
        role="manager",
        summary="Open assignments, counts and workers.",
        replies={200: Status},
        errors=(401,),
        answer=lambda known, *_: known.status(),
    ),
    Operation(
        name="health",
        method="GET",
        path="/health",
        role="anybody",
        summary="Whether the bridge answers.",
        replies={200: Health},
        errors=(),
        answer=lambda *_: Health(),
    ),
)
