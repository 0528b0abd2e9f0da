"""Steering: the page asks something of a run while it runs, by the function of `ale steer`."""

from pathlib import Path
from typing import Any

import msgspec

import ale
from ale.errors import AleError, InputError
from ale.runs import holder
from ale.text import visible


class Asked(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The body of a request to a run."""

    action: str
    to: int | str | None = None
    """The number of ``concurrency``, or the id of the episode to ``cancel``."""


def steering(path: Path) -> dict[str, Any]:
    """The state of a run, or that it does not run, or why it can't be asked though it does."""
    if holder(path) is None:
        return {"alive": False}
    try:
        state = ale.steer(path)
    except AleError as error:
        if holder(path) is None:  # it has ended meanwhile
            return {"alive": False}
        return {"alive": False, "problem": str(error)}
    return {**state, "alive": True}


def steer(path: Path, body: bytes) -> dict[str, Any]:
    """Do what a request asks for in its body; the state then.

    Raises:
        InputError: it asks for nothing that there is, the run does not run, or refuses.
        StoreError: the run does not answer.
    """
    try:
        asked = msgspec.json.decode(body, type=Asked)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError.of(f"nothing can be asked of a run so: {error}") from None
    to = asked.to
    if asked.action == "cancel":
        running = [each["id"] for each in ale.steer(path)["episodes"]]
        to = next((id for id in running if visible(id) == to), to)
    ale.steer(path, asked.action, to)
    return steering(path)
