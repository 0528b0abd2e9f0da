"""Prompts of GRPO on a data set, rendered as they were served: with the tools of their rows."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trl import GRPOTrainer  # type: ignore[attr-defined]

from ale_trainer_trl.learning.tokens import Ids, of_prompt, tools_of


class PromptTrainer(GRPOTrainer):
    """TRL's GRPO, whose prompts have the tools of their rows.

    TRL itself renders the tools of its own environments alone, and gives a template the None that
    Arrow has put where another row has a value.
    """

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self._rows: Sequence[Mapping[str, Any]] = inputs
        return super()._generate_and_score_completions(inputs)

    def _tokenize_prompts(self, prompts: Any) -> Any:
        """Ids, images and further fields of the prompts of `_rows`, in their order."""
        if isinstance(prompts[0], str):
            return super()._tokenize_prompts(prompts)
        ids: list[Ids] = [
            of_prompt(self.processing_class, prompt, tools_of(row))
            for prompt, row in zip(prompts, self._rows, strict=True)
        ]
        return ids, None, {}


def for_arrow(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a conversation whose tools and arguments of calls are JSON text.

    Arrow would give each of them the keys of all others.
    """
    prompt = [_with_text_arguments(each) for each in row["prompt"]]
    made = {**row, "prompt": prompt}
    if "tools" in row:
        made["tools"] = _text(row["tools"])
    return made


def _with_text_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    return {**message, "tool_calls": [_with_text(call) for call in calls]}


def _with_text(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function", call)
    given = {**function, "arguments": _text(function.get("arguments"))}
    return {**call, "function": given} if "function" in call else given


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
