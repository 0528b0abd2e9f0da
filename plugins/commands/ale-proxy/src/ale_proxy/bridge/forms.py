"""Bodies of the bridge's requests and replies. The OpenAPI document is made from these classes."""

from typing import Annotated, Literal

import msgspec

from ale.types import EnvironmentKind
from ale_proxy.assignment import State

# In Python `$` matches before a last newline too; `\Z` means something else in OpenAPI.
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$(?!\n)")]
TaskId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,79}$(?!\n)")]
Wait = Annotated[float, msgspec.Meta(ge=0, le=60)]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class Assign(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A task for a worker."""

    prompt: Text
    task_id: TaskId | None = None
    """Default: made of the prompt, so that the same prompt is the same task."""
    id: Name | None = None
    """Of this assignment; given, the request can be repeated without a second assignment."""
    worker: Name | None = None
    """Default: any worker may take it."""
    environment: EnvironmentKind = "chat"
    """What kind of environment it needs; kept as `metadata.environment` of the task."""
    tags: list[str] = []


class Take(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A worker asks for a task."""

    worker: Name
    environments: list[EnvironmentKind] | None = None
    """The kinds that it has; default: all."""
    wait_s: Wait = 0


class HandIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a worker hands in."""

    id: Name
    result: str
    worker: Name | None = None
    steps: list[str] = []
    """How it came to it."""


class Said(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a manager says of a result. A score ends the assignment."""

    id: Name
    score: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    text: str = ""
    author: str = ""


class ChatMessage(msgspec.Struct, kw_only=True):
    """A message of a conversation."""

    role: str
    content: str


class Taken(msgspec.Struct, kw_only=True):
    """A task that a worker is to do."""

    id: str
    """Hand the result in with it; as `X-Ale-Session` of requests to a model, these are recorded."""
    task_id: str
    prompt: str
    environment: str
    messages: list[ChatMessage]
    """The prompt with what skills and hints add; without, where the proxy adds them."""


class Assigned(msgspec.Struct, kw_only=True):
    """Where a task is now."""

    id: str
    task_id: str
    state: State
    worker: str = ""
    """Who has it, or for whom it is; empty: nobody yet."""
    result: str | None = None
    steps: list[str] = []
    episode: str | None = None
    """Where it has ended: the id of the stored episode."""
    reward: float | None = None


class Worker(msgspec.Struct, kw_only=True):
    """A worker that has asked since the bridge was started."""

    name: str
    seen_s: float
    """Seconds since it last asked for a task or handed one in."""
    has: list[str]
    """Assignments that it has taken and not handed in."""


class Status(msgspec.Struct, kw_only=True):
    """What the bridge has."""

    run: str
    tasks: dict[str, int]
    """Number of assignments in each state; of those that ended, since the bridge was started."""
    open: list[Assigned]
    workers: list[Worker]


class Health(msgspec.Struct, kw_only=True):
    """The bridge answers."""

    status: Literal["ok"] = "ok"


class Problem(msgspec.Struct, kw_only=True):
    """What was wrong."""

    type: str
    message: str


class Error(msgspec.Struct, kw_only=True):
    """An error, as clients of OpenAI and of Anthropic read it."""

    type: Literal["error"] = "error"
    error: Problem
