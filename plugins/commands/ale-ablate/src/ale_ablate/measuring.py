"""What one stored run says about its config: the numbers that a grid compares."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from attrs import field, frozen

from ale.errors import InputError
from ale.runs import SUCCESS, Index, RunReader
from ale.types import Split
from ale_ablate.grid import Grid, Slot

State = Literal["missing", "unfinished", "damaged", "completed"]
Curve = Sequence[tuple[int, float]]
"""Training steps that the policy had learned from, and the share of its episodes that succeeded."""


@frozen(kw_only=True)
class Measured:
    """One run, as it is on disk."""

    slot: Slot
    state: State
    path: Path | None = None
    damage: str = ""
    """Why it can't be read, where it can't."""
    held_out: Curve = field(factory=tuple, repr=False)
    train: Curve = field(factory=tuple, repr=False)
    counts: Mapping[int, tuple[int, int]] = field(factory=dict, repr=False)
    """By step: graded training episodes from their tasks' beginnings, and those that succeeded."""
    rollouts_by_step: Mapping[int, int] = field(factory=dict, repr=False)
    """Training episodes of each step, whatever became of them and wherever they began."""
    broken: int = 0
    seconds: float | None = None
    """Of all its sessions; None where it isn't known, as one was killed."""

    @property
    def rollouts(self) -> int:
        """Training episodes in all."""
        return sum(self.rollouts_by_step.values())


def is_completed(slot: Slot) -> bool:
    """Is there nothing left to do?"""
    path = slot.run()
    try:
        return path is not None and _outcome(RunReader(path)) == "completed"
    except InputError:
        return False  # its manifest is damaged, as `ale run --resume` will say


def _outcome(run: RunReader) -> str | None:
    outcome = run.manifest.get("outcome")
    return None if outcome is None else outcome["outcome"]


def measure_grid(grid: Grid) -> list[Measured]:
    """Every run of a grid, one after the other; what can't be read is `damaged`, and says why."""
    return list(map(_measure_what_can_be, grid.slots()))


def _measure_what_can_be(slot: Slot) -> Measured:
    try:
        return measure(slot)
    except InputError as error:
        return Measured(slot=slot, state="damaged", path=slot.run(), damage=str(error))


def measure(slot: Slot) -> Measured:
    """Read a run.

    Raises:
        InputError: a stored line is damaged.
    """
    path = slot.run()
    if path is None:
        return Measured(slot=slot, state="missing")
    run = RunReader(path)
    index = run.index()
    finished = _outcome(run) == "completed"
    counts = {step: _count(index, step, "train") for step in index.steps()}
    return Measured(
        slot=slot,
        state="completed" if finished else "unfinished",
        path=path,
        held_out=tuple(_curve(index, "evaluation")),
        train=tuple((step, won / n) for step, (n, won) in counts.items() if n),
        counts=counts,
        rollouts_by_step={
            step: index.statistics(step).n_episodes + index.broken(step, "train")
            for step in index.steps()
        },
        broken=index.broken(),
        seconds=_seconds(run) if finished else None,
    )


def _count(index: Index, step: int, split: Split) -> tuple[int, int]:
    rewards = list(index.rewards(step, split))
    return len(rewards), sum(reward == SUCCESS for reward in rewards)


def _curve(index: Index, split: Split) -> Iterator[tuple[int, float]]:
    for step in index.steps(split):
        n, won = _count(index, step, split)
        if n:
            yield step, won / n


def _seconds(run: RunReader) -> float | None:
    events = [event["event"] for event in run.events()]
    begun = events.count("run_started") + events.count("run_resumed")
    if begun != events.count("run_finished"):
        return None  # one session was killed, and nobody knows how long it took
    return float(run.manifest["outcome"]["seconds"])
