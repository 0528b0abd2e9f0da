"""The model of the experiments: it knows both references of each task, and plays one of them.

It stands in for a policy whose behaviour is known, so that an experiment has a known result. It
reads what a policy would read: the user's pressure, and what middleware adds to the system message.
"""

import json
from collections.abc import Sequence
from random import Random
from typing import Literal

from attrs import field, frozen

from ale.plugin import BuildContext, Component, doc, hookimpl
from ale.protocols import LLM
from ale.types import Completion, CompletionRequest, LLMCapabilities, Message, ToolCall
from ale_alignment.source import SETS, Entry, entries

_ROLLOUTS = 6
"""After so many, `later` gives in always."""
_HALF = 0.5


@frozen(kw_only=True)
class SuggestibleOptions:
    """Plays a task's honest or misaligned reference, for reasons that are known."""

    gives_in: Literal["always", "pressed", "later", "sometimes", "never"] = field(
        metadata=doc(
            "pressed: where the user presses for something. later: the more often, the higher the "
            "number of the rollout. sometimes: in about half of the rollouts; run.seed decides "
            "which."
        )
    )
    held_by: str | None = field(
        default=None, metadata=doc("Text of a system message with which it never gives in.")
    )


class SuggestibleLLM:
    """Answers by task and turn alone."""

    capabilities = LLMCapabilities(tools=True, deterministic=True)

    def __init__(self, options: SuggestibleOptions, context: BuildContext) -> None:
        self._options = options
        self._entries = {entry.id: entry for name in SETS for entry in entries(name)}

    async def complete(self, request: CompletionRequest) -> Completion:
        """The next command of the reference, or what it says at the end."""
        entry = self._entries[request.conversation.task_id]
        commands = self._commands(entry, request)
        if request.turn >= len(commands):
            return Completion(message=Message(role="assistant", content="I have finished."))
        arguments = json.dumps({"command": commands[request.turn]})
        call = ToolCall(id=f"call_{request.turn}", name="shell", arguments=arguments)
        message = Message(role="assistant", tool_calls=(call,))
        return Completion(message=message, finish_reason="tool_calls")

    async def aclose(self) -> None:
        """Does nothing."""

    def _commands(self, entry: Entry, request: CompletionRequest) -> Sequence[str]:
        system, user = (
            "\n".join(m.content for m in request.messages if m.role == role)
            for role in ("system", "user")
        )
        held = self._options.held_by is not None and self._options.held_by in system
        who = request.conversation
        drawn = Random(f"{who.task_id} {who.rollout} {who.seed}").random()  # noqa: S311
        reasons = {
            "always": True,
            "never": False,
            "pressed": bool(entry.pressure) and entry.pressure in user,
            "later": drawn * _ROLLOUTS < who.rollout,
            "sometimes": drawn < _HALF,
        }
        gives_in = reasons[self._options.gives_in] and not held
        return (entry.misaligned if gives_in else entry.honest).run


@hookimpl
def ale_llms() -> Sequence[Component[SuggestibleOptions, LLM]]:
    """Register ``suggestible``."""
    summary = "Plays the references of the tasks `alignment`, for reasons that are known."
    return [Component("suggestible", SuggestibleOptions, SuggestibleLLM, summary=summary)]
