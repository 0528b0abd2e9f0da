"""``groups.jsonl``: which groups a run with ``schedule: stream`` started, trained on and dropped.

Where a start scheme plans the steps, also which groups these have.

The complete groups that were neither trained on nor dropped are the buffer: nothing else stores it.
"""

from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import Literal, NamedTuple

from ale._store.codec import encode
from ale._store.lines import Lines
from ale.files import write_whole
from ale.types._record import record

FILE = "groups.jsonl"
Change = Literal["planned", "started", "trained", "dropped"]


class GroupKey(NamedTuple):
    """Identifies a group of training episodes. Written as ``[step, task_id, start]``."""

    step: int
    """That of its episodes: the pass over the tasks in which it was drawn."""
    task_id: str
    start: str = ""


@record
class GroupEvent:
    """A line of ``groups.jsonl``."""

    schema: int = 1
    event: Change
    step: int
    """How many steps the policy had learned from by then: of `trained`, the step that learns from
    these groups."""
    groups: tuple[GroupKey, ...]
    """The groups of `planned` for the next step of drawing; there may be none."""


class Groups:
    """The contents of ``groups.jsonl`` so far."""

    def __init__(self, events: Iterable[GroupEvent] = ()) -> None:
        self.started: dict[GroupKey, int] = {}
        """The number of steps that the policy had learned from, for each group."""
        self.batches: dict[int, Sequence[GroupKey]] = {}
        """The groups of each step."""
        self.n_dropped: dict[int, int] = {}
        """Number of groups that were dropped when a step's were chosen."""
        self.planned: list[tuple[int, Sequence[GroupKey]]] = []
        """For each step of drawing that a start scheme has planned, the steps that the scheme had
        learned from, and the groups."""
        self._used: dict[GroupKey, int] = {}
        for event in events:
            self.add(event)

    def add(self, event: GroupEvent) -> None:
        """Take in a line."""
        match event.event:
            case "planned":
                self.planned.append((event.step, event.groups))
            case "started":
                self.started |= dict.fromkeys(event.groups, event.step)
            case "trained":
                self.batches[event.step] = event.groups
            case "dropped":
                self.n_dropped[event.step] = self.n_dropped.get(event.step, 0) + len(event.groups)
        if event.event in ("trained", "dropped"):
            self._used |= dict.fromkeys(event.groups, event.step)

    def is_used(self, group: GroupKey) -> bool:
        """Was it trained on, or dropped? Nothing is then to be done with it."""
        return group in self._used

    def used_before(self, group: GroupKey, step: int) -> bool:
        """Was it trained on in an earlier step, or dropped when one's groups were chosen?"""
        return self._used.get(group, step) < step

    def drawn_before(self, step: int) -> int:
        """Number of steps of drawing up to the last that has a group used before `step`."""
        used = (group.step + 1 for group in self._used if self.used_before(group, step))
        return max(used, default=0)

    def learned_in(self, group: GroupKey) -> int | None:
        """The step that learned from it, if one did."""
        step = self._used.get(group, -1)
        return step if group in self.batches.get(step, ()) else None

    def ages(self, step: int) -> list[int]:
        """The steps learned between the start of each group of a step and this step."""
        return [step - self.started[group] for group in self.batches.get(step, ())]


def read_groups(path: Path) -> Iterable[GroupEvent]:
    """The lines of a run's ``groups.jsonl``; none where it has no such file."""
    return Lines(path / FILE, GroupEvent)


def forget_batches(path: Path, gone: Set[GroupKey], learned: int) -> set[int]:
    """Remove the batches of a run that have groups without episodes; returns their steps.

    Args:
        gone: groups whose episodes are removed.
        learned: the last step that is in a checkpoint, whose batches stay.
    """
    events = list(read_groups(path))
    steps = {
        event.step
        for event in events
        if event.event == "trained" and event.step > learned and not gone.isdisjoint(event.groups)
    }
    if steps:
        # What was planned after these steps depends on them.
        left = [
            each
            for each in events
            if not (each.event == "trained" and each.step in steps)
            and not (each.event == "planned" and each.step > min(steps))
        ]
        write_whole(path / FILE, b"".join(encode(event) + b"\n" for event in left))
    return steps
