"""What a loop has decided, as its event log says, and what was asked of it."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from attrs import field, frozen

from ale.errors import StoreError
from ale.files import write_whole

DEPLOYED, REFUSED, RESTORED = "policy_deployed", "policy_refused", "policy_restored"
UNCHANGED = "policy_unchanged"
"""The trainer made no update of a batch, so that there is nothing to compare."""
T = TypeVar("T")
_REQUEST = "restore.json"
_DONE = "restored"


@frozen(kw_only=True)
class Decision:
    """What happened to a version."""

    what: Literal["deployed", "refused", "restored", "unchanged"]
    version: int
    at: float
    """Seconds since the epoch."""
    reason: str = ""
    compared: Sequence[dict[str, Any]] = field(factory=list)


_NAMES: dict[str, Any] = {
    DEPLOYED: "deployed",
    REFUSED: "refused",
    RESTORED: "restored",
    UNCHANGED: "unchanged",
}


def decisions(events: Iterable[dict[str, Any]]) -> list[Decision]:
    """Every decision of an event log, oldest first."""
    return [
        Decision(
            what=_NAMES[event["event"]],
            version=event["version"],
            at=event["at"],
            reason=event.get("reason", ""),
            compared=event.get("compared", []),
        )
        for event in events
        if event["event"] in _NAMES
    ]


def in_use(found: Sequence[Decision]) -> list[int]:
    """The versions that were deployed or restored, in the order of the decisions."""
    return [each.version for each in found if each.what in ("deployed", "restored")]


def deployed(found: Sequence[Decision]) -> int:
    """The version that is deployed: the first one until another is."""
    return next(reversed(in_use(found)), 0)


def decided(found: Sequence[Decision]) -> int:
    """The last version that was decided on."""
    return max((each.version for each in found), default=0)


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """A version that a running loop shall deploy."""

    version: int
    id: str


class Answer(msgspec.Struct):
    """What a loop did with a request."""

    id: str
    error: str = ""


def ask(directory: Path, version: int) -> Request:
    """Ask the loop of this directory to deploy a version; the last one that asks is heard."""
    request = Request(version=version, id=os.urandom(8).hex())
    write_whole(directory / _REQUEST, msgspec.json.encode(request))
    return request


def asked(directory: Path) -> Request | None:
    """What is asked, if anything. Raises `StoreError` where the file is damaged."""
    return _read(directory / _REQUEST, Request)


def answer(directory: Path, request: Request, error: str = "") -> None:
    """Say what became of a request, which is done."""
    answer = Answer(id=request.id, error=error)
    write_whole(directory / f"{_DONE}.json", msgspec.json.encode(answer))
    if asked(directory) == request:
        (directory / _REQUEST).unlink()


def answered(directory: Path) -> Answer | None:
    """The last answer. Raises `StoreError` where the file is damaged."""
    return _read(directory / f"{_DONE}.json", Answer)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} is damaged: {error}; remove it") from error
