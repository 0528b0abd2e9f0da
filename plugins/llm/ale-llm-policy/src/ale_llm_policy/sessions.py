"""What each episode's conversation is in ids, so that the next turn extends it."""

from array import array
from collections import OrderedDict
from collections.abc import Sequence

from attrs import frozen

from ale.types import CompletionRequest, Message
from ale_llm_policy.pretrained import ChatTemplate

MOST = 16384
"""Episodes that are remembered; one that was forgotten is rendered anew."""


@frozen
class _Said:
    """A conversation up to and including its last answer."""

    ids: "array[int]"
    messages: tuple[Message, ...]
    n_prompt: int
    """Of `ids`: those before the last answer."""


class Sessions:
    """Prompts of requests, extended where the conversation goes on.

    Args:
        template: of the policy.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._said: OrderedDict[str, _Said] = OrderedDict()

    def prompt(self, request: CompletionRequest) -> tuple[int, ...]:
        """The ids to go on from.

        A request that extends what was said gets the ids of it, as they were, and those of what
        was added; one that is asked again, the ids that it got. A fresh context, or a conversation
        that is not known here, is rendered anew.
        """
        said = self._said.get(request.conversation.episode_id)
        if not request.fresh_context and said is not None:
            if request.messages == said.messages[:-1]:
                return tuple(said.ids[: said.n_prompt])
            added = _added(said.messages, request.messages)
            if added is not None:
                return self._template.extend(tuple(said.ids), added)
        return self._template.prompt(request.messages, request.tools)

    def answered(
        self, request: CompletionRequest, ids: Sequence[int], n_prompt: int, answer: Message
    ) -> None:
        """Remember the answer to a request; `ids` are those of prompt and answer."""
        key = request.conversation.episode_id
        self._said[key] = _Said(array("I", ids), (*request.messages, answer), n_prompt)
        self._said.move_to_end(key)
        if len(self._said) > MOST:
            self._said.popitem(last=False)


def _added(said: tuple[Message, ...], messages: tuple[Message, ...]) -> tuple[Message, ...] | None:
    """What `messages` adds to what was said; None where it says something else, or nothing new."""
    n = len(said)
    return messages[n:] if len(messages) > n and messages[:n] == said else None
