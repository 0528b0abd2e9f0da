"""Apply middleware to the conversation of one episode: in a run, in a proxy, in a test."""

from collections.abc import Sequence
from typing import Any

from ale.errors import PluginError
from ale.protocols import LLM, Middleware, MiddlewareContext
from ale.types import Completion, CompletionRequest, LLMCapabilities, Message, Turn, replace

__all__ = ["Rewriting", "RewritingLLM", "WrappedLLM", "head_of", "with_system_text"]


def head_of(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The first messages, up to the first of the user."""
    first = next((i for i, each in enumerate(messages) if each.role == "user"), len(messages))
    return tuple(messages[: first + 1])


class Rewriting:
    """The middleware of one episode.

    Args:
        middleware: in the order in which they are applied, each with the name of its component.
    """

    def __init__(
        self, middleware: Sequence[tuple[str, Middleware]], context: MiddlewareContext
    ) -> None:
        self.facts: list[dict[str, Any]] = []
        """The note of each on the first conversation, for the episode's metadata."""
        self.heads: dict[tuple[Message, ...], tuple[Message, ...]] = {}
        """First messages, each with what they were rewritten to. With `facts`, what a process needs
        to continue the episode of another one."""
        self._middleware = middleware
        self._context = context

    async def head(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The first messages of a conversation, rewritten; the same whenever it is asked again.

        Raises:
            PluginError: a middleware gave back no messages.
        """
        before = head_of(messages)
        if before not in self.heads:
            after, facts = before, []
            for name, middleware in self._middleware:
                rewritten = await middleware.rewrite(after, self._context)
                if not rewritten.messages:
                    raise PluginError(f"the middleware '{name}' gave back no messages")
                after = tuple(rewritten.messages)
                facts.append({"type": name, **rewritten.facts})
            self.facts = self.facts or facts
            self.heads[before] = after
        return self.heads[before]

    async def messages(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """A whole conversation, with its first messages rewritten. Raises as `head`."""
        after = await self.head(messages)
        return (*after, *messages[len(head_of(messages)) :])

    def turn(self, turn: Turn) -> Turn:
        """A turn as the model saw it, of one that has the agent's own messages."""
        if not turn.fresh_context:
            return turn
        before = head_of(turn.prompt)
        after = self.heads.get(before, before)
        return replace(turn, prompt=(*after, *turn.prompt[len(before) :]))


class WrappedLLM:
    """A model that stands between an agent and a model: derive from it, and define ``complete``."""

    def __init__(self, llm: LLM) -> None:
        self.llm = llm

    @property
    def capabilities(self) -> LLMCapabilities:
        """Those of the model."""
        return self.llm.capabilities

    async def aclose(self) -> None:
        """Does nothing: who made the model closes it."""


class RewritingLLM(WrappedLLM):
    """A model that is asked with rewritten messages."""

    def __init__(self, llm: LLM, rewriting: Rewriting) -> None:
        super().__init__(llm)
        self._rewriting = rewriting

    async def complete(self, request: CompletionRequest) -> Completion:
        """One answer. Raises as `LLM.complete`, and whatever a middleware raises."""
        messages = await self._rewriting.messages(request.messages)
        return await self.llm.complete(replace(request, messages=messages))


def with_system_text(head: Sequence[Message], text: str) -> tuple[Message, ...]:
    """The first messages with a text at the end of the first system message.

    Where there is none, the text is one, before all others.
    """
    at = next((i for i, message in enumerate(head) if message.role == "system"), None)
    if at is None:
        return (Message(role="system", content=text), *head)
    longer = replace(head[at], content=f"{head[at].content}\n\n{text}")
    return (*head[:at], longer, *head[at + 1 :])
