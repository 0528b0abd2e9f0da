"""Middleware: what is added to a conversation on its way to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ale.types import Conversation, Message, Task


@frozen(kw_only=True)
class MiddlewareContext:
    """The episode that a conversation belongs to."""

    task: Task
    """In a proxy: the task that the agent names, or one made from its first message."""
    conversation: Conversation


@frozen(kw_only=True)
class Rewritten:
    """The first messages of a conversation, as the model is to see them."""

    messages: tuple[Message, ...]
    facts: Mapping[str, Any] = field(factory=dict)
    """The additions, as plain values; stored in the episode's metadata under ``middleware``."""


@runtime_checkable
class Middleware(Protocol):
    """Rewrites the first messages of a conversation: system messages and the first user message.

    Later messages are not rewritten, so what the model has read stays a prefix of what it reads
    next. The rewritten messages are recorded, so a trainer sees what the model saw.
    """

    async def rewrite(self, head: tuple[Message, ...], context: MiddlewareContext) -> Rewritten:
        """The first messages as the model is to see them.

        Called once per episode, and again if its agent starts over with other first messages, as
        after a compaction. What is added depends only on the context, and so is the same in the
        whole episode.

        Args:
            head: the messages up to and including the first one with role ``user``; all messages if
                there is none.

        Raises:
            AleError: the messages can't be rewritten; the episode is broken.
        """
        ...
