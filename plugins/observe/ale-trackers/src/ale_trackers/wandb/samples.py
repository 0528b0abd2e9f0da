"""A table of the first episodes of each step, to be read by people."""

from collections.abc import Iterator, Mapping
from typing import Any

import wandb  # type: ignore[import-not-found,unused-ignore]

from ale.types import Episode, Message

COLUMNS = ("step", "episode", "task", "reward", "turns", "stop", "conversation")
LONGEST = 20_000
"""Characters of a conversation; the middle of a longer one is left out."""


class Samples:
    """Collects rows, and gives the table of each step once its last episode is there.

    Args:
        number: rows of a step.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._rows: dict[int, list[tuple[Any, ...]]] = {}

    def add(self, episode: Episode) -> None:
        """One more episode; the first of its step become rows."""
        rows = self._rows.setdefault(episode.step, [])
        if len(rows) < self._number:
            rows.append(_row(episode))

    def tables(self, upto: int | None = None) -> Iterator[Mapping[str, Any]]:
        """What to log of the steps that were not given yet.

        Args:
            upto: the last step; None is all of them.
        """
        for step in sorted(self._rows):
            if upto is None or step <= upto:
                table = wandb.Table(columns=list(COLUMNS), data=self._rows.pop(step))
                yield {"step": step, "samples": table}


def _row(episode: Episode) -> tuple[Any, ...]:
    turns, stop = episode.trajectory.turns, episode.trajectory.stop.reason
    failed = stop if episode.failure is None else f"broken: {episode.failure.kind}"
    text = "\n\n".join(map(_text, episode.trajectory.messages()))
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]}\n[...]\n{text[-LONGEST // 2 :]}"
    about = (episode.step, episode.id, episode.task_id, episode.reward, len(turns), failed)
    return (*about, text)


def _text(message: Message) -> str:
    calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    return "\n".join([f"[{message.role}]", *filter(None, [message.content]), *calls])
