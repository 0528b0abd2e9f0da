"""Ask a model about an episode, and read JSON in its answers."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import define, field

from ale.errors import ToolsUnsupportedError
from ale.protocols import LLM
from ale.types import (
    Completion,
    CompletionRequest,
    Conversation,
    Episode,
    Message,
    ToolSpec,
)

_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_LONGEST = 20_000
"""Characters of an answer that are read: a score stands at its end."""
_GAP = "\n[...]\n"


@define
class Asker:
    """A model that answers by calling one tool, whose parameters are a JSON schema.

    A model without tools, or whose server takes none, is asked for the same JSON as text.
    """

    llm: LLM
    tool: ToolSpec
    _tools: bool = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._tools = self.llm.capabilities.tools

    async def ask(
        self, system: str, user: str, episode: Episode, what: str, number: int
    ) -> Completion:
        """One answer.

        Args:
            what: name of the question; with the episode's id, that of the conversation.
            number: of the vote, and the seed.

        Raises:
            LLMError: there was none.
        """
        conversation = Conversation(
            episode_id=f"{what}-{number}-{episode.id}",
            task_id=episode.task_id,
            rollout=episode.rollout,
            seed=number,
        )
        messages = (Message(role="system", content=system), Message(role="user", content=user))

        async def asked() -> Completion:
            tools = (self.tool,) if self._tools else ()
            request = CompletionRequest(
                messages=messages, tools=tools, conversation=conversation, turn=0
            )
            return await self.llm.complete(request)

        try:
            return await asked()
        except ToolsUnsupportedError:
            self._tools = False
            return await asked()

    def read(self, completion: Completion, key: str) -> Mapping[str, Any] | None:
        """The last JSON object with a key, in the calls or the text of an answer."""
        texts = [answered(completion), *(c.arguments for c in completion.message.tool_calls)]
        found = [each for text in texts for each in json_objects(text) if key in each]
        return found[-1] if found else None


def answered(completion: Completion) -> str:
    """The end of an answer's text, without what the model thought before."""
    return _THOUGHT.sub("", completion.message.content)[-_LONGEST:].strip()


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, whatever stands around them, outer ones only."""
    decoder, position = json.JSONDecoder(), 0
    while (position := text.find("{", position)) >= 0:
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            position += 1
        else:
            yield value


def shortened(text: str, most: int) -> str:
    """The text, without its middle if it has more than `most` characters."""
    if len(text) <= most:
        return text
    half = max(0, most - len(_GAP)) // 2
    return text[:half] + _GAP + text[len(text) - half :]


def written(message: Message) -> str:
    """A message as a text for a reader."""
    calls = [f"[calls {call.name}: {call.arguments}]" for call in message.tool_calls]
    return f"{message.role}: " + "\n".join(part for part in (message.content, *calls) if part)


def spent(completion: Completion) -> int:
    """Tokens that were read and written."""
    return completion.usage.prompt_tokens + completion.usage.completion_tokens
