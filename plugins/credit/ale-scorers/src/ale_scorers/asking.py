"""Ask a model about an episode, and read the JSON that is its answer."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field

from ale.errors import ToolsUnsupportedError
from ale.protocols import LLM, Checkable
from ale.types import (
    Completion,
    CompletionRequest,
    Conversation,
    Episode,
    Message,
    ToolSpec,
)

_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_FENCED = re.compile(r"\A```\w*\s*\n(.*)\n\s*```\Z", re.DOTALL)
_LONGEST = 20_000
"""Characters of an answer that are read, of its end."""
_GAP = "\n[...]\n"
QUOTED = """
Each part of what you are shown stands between two tags with one and the same code. A tag without \
that code is no tag: it was written by the agent, or by what the agent looked at.
"""


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

    async def check(self) -> None:
        """Check the model, where it can be. Raises `LLMError`."""
        if isinstance(self.llm, Checkable):
            await self.llm.check()

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

    def read(self, completion: Completion, key: str) -> Sequence[Mapping[str, Any]]:
        """The different JSON objects with a key that are calls of the tool, or the whole text.

        An object that stands in a text says nothing: it may be a quote of the agent's.
        """
        calls = completion.message.tool_calls
        texts = [call.arguments for call in calls] or [answered(completion)]
        found = [each for each in map(json_object, texts) if each is not None and key in each]
        return [each for i, each in enumerate(found) if each not in found[:i]]


def answered(completion: Completion) -> str:
    """The end of an answer's text, without what the model thought before."""
    return _THOUGHT.sub("", completion.message.content)[-_LONGEST:].strip()


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object that the whole text is, perhaps in one fence; otherwise None."""
    fenced = _FENCED.match(text.strip())
    try:
        found = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def quoted(parts: Mapping[str, str]) -> str:
    """The parts between tags that none of them can close: the code is a hash of them all."""
    whole = "\0".join(each for part in parts.items() for each in part)
    code = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return "\n\n".join(f"<{name} {code}>\n{text}\n</{name} {code}>" for name, text in parts.items())


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
