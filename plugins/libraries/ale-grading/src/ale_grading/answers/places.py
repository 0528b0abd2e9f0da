"""Where a criterion looks for the answer: the agent's messages, or a file of the workspace."""

import errno
from pathlib import PurePosixPath
from typing import Any

from attrs import Attribute

from ale.protocols import Sandbox
from ale.types import Trajectory
from ale_grading.answers.extracted import Extracted

MAX_BYTES = 1 << 20
"""A longer file is not read: the agent controls its content."""
_FILE = "file:"
_NO_WAY = (
    *(errno.EISDIR, errno.EACCES, errno.EPERM),
    *(errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG),
)
"""Errors that the agent can make a path give."""


def place_of_answer(_: object, attribute: "Attribute[Any]", value: str) -> None:
    """Validator of an option ``answer``: ``message`` or ``file:NAME``."""
    name = value.removeprefix(_FILE)
    if value == "message":
        return
    if not value.startswith(_FILE) or not name.strip() or "\0" in name:
        raise ValueError(f"{attribute.name} must be 'message' or 'file:NAME', found {value!r}")
    if ".." in PurePosixPath(name).parts:
        raise ValueError(f"{attribute.name} must not contain '..', found {value!r}")


def messages_of(trajectory: Trajectory) -> tuple[str, ...]:
    """The model's texts, oldest first."""
    return tuple(turn.completion.message.content or "" for turn in trajectory.turns)


async def read_answer_file(place: str, sandbox: Sandbox) -> tuple[Extracted | None, str]:
    """The text of the file that a place ``file:NAME`` names; or None, and why it can't be had.

    Raises:
        SandboxError: the sandbox is gone.
    """
    name = place.removeprefix(_FILE)
    try:
        data = await sandbox.read(name, max_bytes=MAX_BYTES + 1)
    except FileNotFoundError:
        return None, f"{name} does not exist"
    except OSError as error:
        if error.errno not in _NO_WAY:
            raise
        return None, f"{name} can't be read: {error.strerror}"
    if len(data) > MAX_BYTES:
        return None, f"{name} is longer than {MAX_BYTES} bytes"
    try:
        return Extracted(data.decode("utf-8-sig"), f"the file {name}"), ""
    except UnicodeDecodeError as error:
        return None, f"{name} is not UTF-8: {error.reason} at byte {error.start}"
