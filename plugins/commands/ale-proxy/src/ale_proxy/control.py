"""``/v1/sessions``: see open sessions, end them, and say how good they were."""

import json
from typing import Annotated, Any

import attrs
import msgspec
from aiohttp import web

from ale.errors import StoreError
from ale_openai_wire.listening import is_one_of
from ale_proxy.admission import MOST_FORM, body_of, refusal
from ale_proxy.exchange import Ending, Session
from ale_proxy.forwarding import IN_PATH, Forwarder
from ale_proxy.journal import Feedback
from ale_proxy.sessions import Sessions, SeveralError

CURRENT = "current"
"""In place of a session's name: that of the request's own header or key."""


class _FeedbackBody(msgspec.Struct, forbid_unknown_fields=True):
    score: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    text: str = ""
    author: str = ""
    turn: Annotated[int, msgspec.Meta(ge=0)] | None = None


class _End(msgspec.Struct, forbid_unknown_fields=True):
    pass


@attrs.frozen
class Control:
    """The requests about sessions.

    Args:
        key: that requests must have as their bearer; None: none is needed.
    """

    sessions: Sessions
    forwarder: Forwarder
    key: str | None = attrs.field(default=None, repr=False)

    def routes(self) -> list[web.RouteDef]:
        """Their paths."""
        return [
            route
            for base in ("/v1/sessions", f"{IN_PATH}/v1/sessions")
            for route in (
                web.get(base, self._list),
                web.get(f"{base}/{{name}}", self._show),
                web.post(f"{base}/{{name}}/end", self._end),
                web.post(f"{base}/{{name}}/feedback", self._feedback),
            )
        ]

    async def _list(self, request: web.Request) -> web.Response:
        self._admit(request)
        return _json({"sessions": [_shown(session) for session in self.sessions]})

    async def _show(self, request: web.Request) -> web.Response:
        return _json(_shown(self._session(request)))

    async def _end(self, request: web.Request) -> web.Response:
        session = self._session(request)
        await _read(request, _End)
        return self._ended(session, "end")

    async def _feedback(self, request: web.Request) -> web.Response:
        """Keep a text, or the score of a turn; with a score of the session, end it."""
        session = self._session(request)
        body = await _read(request, _FeedbackBody)
        if body.score is None and not body.text:
            raise refusal(web.HTTPBadRequest, "feedback needs a score, a text, or both")
        feedback = Feedback(score=body.score, text=body.text, author=body.author, turn=body.turn)
        if body.turn is not None:
            self._check_turn(session, body)
        # A score that is here already is of a request whose episode could not be stored.
        repeated = body.score is not None and feedback in session.feedback
        try:
            if not repeated:
                self.sessions.say(session, feedback)
        except StoreError as error:
            raise refusal(web.HTTPInsufficientStorage, str(error)) from None
        if body.score is None or body.turn is not None:
            return _json(_shown(session))
        return self._ended(session, "feedback")

    def _check_turn(self, session: Session, body: _FeedbackBody) -> None:
        if body.score is None:
            raise refusal(web.HTTPBadRequest, "feedback on a turn needs a score")
        if body.turn not in session.conversation.order:
            n = len(session.conversation)
            message = f"no turn {body.turn} is recorded; there are {n}, counted from 0"
            raise refusal(web.HTTPBadRequest, message)

    def _ended(self, session: Session, how: Ending) -> web.Response:
        try:
            return _json(attrs.asdict(self.sessions.end(session, how)))
        except StoreError as error:
            raise refusal(web.HTTPInsufficientStorage, str(error)) from None

    def _session(self, request: web.Request) -> Session:
        self._admit(request)  # for `current` too: an agent must not score itself
        name = request.match_info["name"]
        session = self._current(request) if name == CURRENT else self.sessions.get(name)
        if session is None:
            message = f"no session '{name}' is open; it may have ended"
            raise refusal(web.HTTPNotFound, message)
        return session

    def _current(self, request: web.Request) -> Session | None:
        try:
            return self.sessions.current(self.forwarder.asker(request))
        except SeveralError as error:
            message = (
                f"several sessions were asked at the same time: {error}; name one, or give each "
                "task a base URL of its own: /s/NAME/v1"
            )
            raise refusal(web.HTTPConflict, message) from None

    def _admit(self, request: web.Request) -> None:
        given = request.headers.get("Authorization", "")
        if self.key is not None and not is_one_of(given, [f"Bearer {self.key}"]):
            raise refusal(web.HTTPUnauthorized, "the key for sessions is missing or wrong")


async def _read(request: web.Request, form: type[Any]) -> Any:
    body = await body_of(request, MOST_FORM)
    try:
        return msgspec.json.decode(body or b"{}", type=form)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise refusal(web.HTTPBadRequest, str(error)) from None


def _shown(session: Session) -> dict[str, Any]:
    return {
        "session": session.name,
        "task": session.task_id if session.task is None else session.task.id,
        "started": session.started.isoformat(timespec="milliseconds"),
        "turns": len(session.conversation),
        "running": len(session.running),
        "feedback": len(session.feedback),
        "not_recorded": dict(session.left_out),
    }


def _json(value: Any) -> web.Response:
    return web.Response(text=json.dumps(value), content_type="application/json")
