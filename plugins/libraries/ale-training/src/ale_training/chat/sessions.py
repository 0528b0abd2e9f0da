"""Token ids of each episode's conversation, so that the next prompt extends them."""

from array import array
from collections import OrderedDict
from collections.abc import Sequence

from attrs import frozen

from ale.types import CompletionRequest, Message
from ale_training.chat.template import ChatTemplate

MAX_EPISODES = 16384
"""Episodes stored; the conversation of an evicted one is rendered again."""


@frozen
class _Conversation:
    """A conversation up to and including its last answer."""

    ids: "array[int]"
    messages: tuple[Message, ...]
    n_prompt: int
    """Number of `ids` before the last answer."""


class Sessions:
    """Prompts of requests, as extensions of earlier ids where possible.

    Args:
        template: the policy's.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._conversations: OrderedDict[str, _Conversation] = OrderedDict()

    def prompt(self, request: CompletionRequest) -> tuple[int, ...]:
        """The prompt's ids.

        A request that extends the stored conversation gets the stored ids unchanged, plus those of
        the added messages; a repeated request gets the same ids again. A fresh context, or an
        unknown conversation, is rendered.
        """
        before = self._conversations.get(request.conversation.episode_id)
        if not request.fresh_context and before is not None:
            if request.messages == before.messages[:-1]:
                return tuple(before.ids[: before.n_prompt])
            added = _added(before.messages, request.messages)
            if added is not None:
                calls = before.messages[-1].tool_calls
                tools = bool(request.tools)
                return self._template.extend(tuple(before.ids), added, calls, tools=tools)
        return self._template.prompt(request.messages, request.tools)

    def remember_answer(
        self, request: CompletionRequest, ids: Sequence[int], n_prompt: int, answer: Message
    ) -> None:
        """Store the ids of a request's prompt and answer."""
        key = request.conversation.episode_id
        self._conversations[key] = _Conversation(
            array("I", ids), (*request.messages, answer), n_prompt
        )
        self._conversations.move_to_end(key)
        if len(self._conversations) > MAX_EPISODES:
            self._conversations.popitem(last=False)


def _added(
    before: tuple[Message, ...], messages: tuple[Message, ...]
) -> tuple[Message, ...] | None:
    """The messages added to a stored conversation; None if it differs, or nothing was added."""
    n = len(before)
    return messages[n:] if len(messages) > n and messages[:n] == before else None
