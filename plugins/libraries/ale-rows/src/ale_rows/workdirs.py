"""The working directory of each rollout, which some sandboxes name anew for every episode.

Prompts of one task that differ only in that path, say in the output of a command, count as the same
prompt; an answer to one becomes an answer to the other by replacing the path. Runs store the path
with each episode, except deterministic and older runs. For these it is inferred from the first
prompts, if the agent has put it into them (``{workdir}``).
"""

import re
from collections.abc import Sequence

from attrs import define

from ale.types import Message, replace

_SEGMENT_END = re.compile(r"[/\s\"'`,;:()<>\[\]{}|]|$")
_PATH = re.compile(r"(?<![\w/.~-])/[^\s\"'`,;:()<>\[\]{}|]*")
_PLACEHOLDER = "\x00"
"""Replaces the working directory in texts that are compared; no text of a model contains it."""


@define
class _Rollout:
    prompt: "_Prompt"
    workdir: str | None


@define
class _Prompt:
    """A first prompt, in the text of the first rollout with it."""

    texts: Sequence[str]
    workdir: str | None = None
    """The working directory in `texts`; known once another rollout's prompt differs there."""


class Workdirs:
    """Working directories, as stored or inferred from differences between the first prompts."""

    def __init__(self) -> None:
        self._prompts: dict[str, list[_Prompt]] = {}
        self._rollouts: dict[int, _Rollout] = {}

    def add(self, task: str, rollout: int, texts: Sequence[str], stored: str | None = None) -> None:
        """Add one rollout of a task.

        Args:
            texts: the texts of the rollout's first prompt.
            stored: the working directory, if the run has stored it.
        """
        if stored is not None:
            self._rollouts[rollout] = _Rollout(_Prompt(texts), stored)
            return
        known = self._prompts.setdefault(task, [])
        for prompt in known:
            if prompt.texts == texts:
                self._rollouts[rollout] = _Rollout(prompt, None)
                return
            workdirs = differing(prompt.texts, texts)
            if workdirs is not None and prompt.workdir in (None, workdirs[0]):
                prompt.workdir = workdirs[0]
                self._rollouts[rollout] = _Rollout(prompt, workdirs[1])
                return
        known.append(_Prompt(texts))
        self._rollouts[rollout] = _Rollout(known[-1], None)

    def of(self, rollout: int) -> str | None:
        """The working directory of a rollout; None where no prompt differs from its own."""
        found = self._rollouts[rollout]
        return found.workdir or found.prompt.workdir


def differing(one: Sequence[str], other: Sequence[str]) -> tuple[str, str] | None:
    """The paths in which two conversations differ; None if they differ in anything else.

    Returns:
        The paths in `one` and in `other`, up to the first folder that differs.
    """
    if len(one) != len(other):
        return None
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a != b]
    if not pairs:
        return None
    paths = _paths_at(*pairs[0])
    if paths is None:
        return None
    same = (without_workdir(a, paths[0]) == without_workdir(b, paths[1]) for a, b in pairs)
    return paths if all(same) else None


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


def without_workdir(text: str, workdir: str | None) -> str:
    """A text with its working directory replaced by a placeholder, for comparison."""
    return text if workdir is None else text.replace(workdir, _PLACEHOLDER)


def with_workdir(message: Message, source: str | None, target: str | None) -> Message:
    """A message with the working directory `source` replaced by `target`."""
    if source is None or target is None or source == target:
        return message

    def moved(text: str) -> str:
        return text.replace(source, target)

    return replace(
        message,
        content=moved(message.content),
        reasoning=None if message.reasoning is None else moved(message.reasoning),
        tool_calls=tuple(
            replace(call, arguments=moved(call.arguments)) for call in message.tool_calls
        ),
    )
