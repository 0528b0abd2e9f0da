"""Where each rollout worked: the folder that a sandbox names anew for every episode.

An agent tells the model its working directory, so prompts of one task can differ in that path and
in nothing else. These are one prompt; what was answered to one is an answer to the other, once the
path in it is the other's.
"""

import re
from collections.abc import Sequence

from attrs import define

from ale.types import Message, replace

_SEGMENT_END = re.compile(r"[/\s\"'`,;:()<>\[\]{}|]|$")
_PATH = re.compile(r"(?<![\w/.~-])/[^\s\"'`,;:()<>\[\]{}|]*")
_HERE = "\x00"
"""Stands for the place in texts that are compared; no text of a model has it."""


@define
class _Rollout:
    prompt: "_Prompt"
    place: str | None


@define
class _Prompt:
    """A first prompt, as the first rollout with it has it."""

    texts: Sequence[str]
    place: str | None = None
    """Its own place, once another rollout has shown it by its difference."""


class Places:
    """What the first prompts of rollouts say of where each worked."""

    def __init__(self) -> None:
        self._prompts: dict[str, list[_Prompt]] = {}
        self._rollouts: dict[int, _Rollout] = {}

    def add(self, task: str, rollout: int, texts: Sequence[str]) -> None:
        """Note one rollout of a task and the texts of its first prompt."""
        known = self._prompts.setdefault(task, [])
        for prompt in known:
            if prompt.texts == texts:
                self._rollouts[rollout] = _Rollout(prompt, None)
                return
            places = differing(prompt.texts, texts)
            if places is not None and prompt.place in (None, places[0]):
                prompt.place = places[0]
                self._rollouts[rollout] = _Rollout(prompt, places[1])
                return
        known.append(_Prompt(texts))
        self._rollouts[rollout] = _Rollout(known[-1], None)

    def of(self, rollout: int) -> str | None:
        """The place of one; None where no difference has told."""
        noted = self._rollouts[rollout]
        return noted.place or noted.prompt.place


def differing(one: Sequence[str], other: Sequence[str]) -> tuple[str, str] | None:
    """The paths in which two conversations differ, where they differ in nothing else.

    Returns:
        The path in the one and in the other, down to the first folder that is not the same.
    """
    if len(one) != len(other):
        return None
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a != b]
    if not pairs:
        return None
    places = _paths_at(*pairs[0])
    if places is None or not all(hidden(a, places[0]) == hidden(b, places[1]) for a, b in pairs):
        return None
    return places


def _paths_at(a: str, b: str) -> tuple[str, str] | None:
    """The two paths around the first difference."""
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    if at is None:
        return None
    begin = next((m.start() for m in _PATH.finditer(a) if m.start() < at <= m.end()), None)
    if begin is None:
        return None
    return a[begin : _end(a, at)], b[begin : _end(b, at)]


def _end(text: str, at: int) -> int:
    found = _SEGMENT_END.search(text, at)
    assert found is not None
    return found.start()


def hidden(text: str, place: str | None) -> str:
    """A text without the place in it: equal for two that differ in their places alone."""
    return text if place is None else text.replace(place, _HERE)


def moved(message: Message, source: str | None, target: str | None) -> Message:
    """A message as it would be, had it been written elsewhere."""
    if source is None or target is None or source == target:
        return message

    def there(text: str) -> str:
        return text.replace(source, target)

    return replace(
        message,
        content=there(message.content),
        reasoning=None if message.reasoning is None else there(message.reasoning),
        tool_calls=tuple(
            replace(call, arguments=there(call.arguments)) for call in message.tool_calls
        ),
    )
