"""The numbers of one stored run that a grid compares."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from attrs import field, frozen

from ale.attempts import Repeats, repeats
from ale.errors import InputError
from ale.runs import BRANCHED_FROM, END_OF_DEMONSTRATIONS, SUCCESS, Index, RunReader
from ale_ablate.grid import Grid, Slot


@frozen(kw_only=True)
class Evaluated:
    """One evaluation of one run."""

    step: int
    temperature: float | None
    """None is the model's own."""
    graded: int
    succeeded: int
    broken: int
    repeats: Repeats | None
    """Of several samples of each task."""


State = Literal["missing", "unfinished", "damaged", "unclear", "completed"]
Curve = Sequence[tuple[int, float]]
"""Number of training steps completed, and the success rate after them."""


@frozen(kw_only=True)
class Measured:
    """One run, as it is on disk."""

    slot: Slot
    state: State
    path: Path | None = None
    damage: str = ""
    """Why it can't be read, or is `unclear`; else empty."""
    held_out: Curve = field(factory=tuple, repr=False)
    """At the model's own temperature; where that was not measured, at the highest."""
    greedy: Curve = field(factory=tuple, repr=False)
    """On held-out tasks at temperature 0, where `held_out` is at another."""
    evaluations: Mapping[float | None, Curve] = field(factory=dict, repr=False)
    """Success on held-out tasks by temperature; None is the model's own."""
    start: int = 0
    """Steps after which its demonstrations had ended; 0 where it had none."""
    evaluated: Sequence[Evaluated] = field(factory=tuple, repr=False)
    """The same, with counts."""
    train: Curve = field(factory=tuple, repr=False)
    counts: Mapping[int, tuple[int, int]] = field(factory=dict, repr=False)
    """By step: training episodes from the task's beginning, graded and successful."""
    rollouts_by_step: Mapping[int, int] = field(factory=dict, repr=False)
    """Training episodes of each step, from any start, including broken ones."""
    broken: int = 0
    seconds: float | None = None
    """Of all its sessions; None if unknown, because one was killed."""

    @property
    def rollouts(self) -> int:
        """Training episodes in all."""
        return sum(self.rollouts_by_step.values())

    @property
    def episodes(self) -> int:
        """All episodes, those of evaluations too."""
        return self.rollouts + sum(each.graded + each.broken for each in self.evaluated)


def is_completed(slot: Slot) -> bool:
    """Is the run completed?"""
    path = slot.run()
    try:
        return path is not None and _outcome(RunReader(path)) == "completed"
    except InputError:
        return False  # the manifest is damaged; `ale run --resume` will report it


def _outcome(run: RunReader) -> str | None:
    outcome = run.manifest.get("outcome")
    return None if outcome is None else outcome["outcome"]


def measure_grid(grid: Grid) -> list[Measured]:
    """Measure every run of a grid; a run that can't be read is `damaged`, and one of which
    there are several, or only an archive, is `unclear`."""
    return list(map(_measure_or_damaged, grid.slots()))


def _measure_or_damaged(slot: Slot) -> Measured:
    if unclear := slot.unclear():
        return Measured(slot=slot, state="unclear", damage=unclear)
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
    counts = {step: _count(list(index.rewards(step))) for step in index.steps()}
    evaluations = _to_the_end(success_by_temperature(index))
    held_out = max(evaluations, key=height, default=None)
    return Measured(
        slot=slot,
        state="completed" if finished else "unfinished",
        path=path,
        held_out=evaluations.get(held_out, ()),
        greedy=() if held_out == 0 else evaluations.get(0.0, ()),
        evaluations=evaluations,
        evaluated=tuple(_evaluated(index)),
        start=_start(run),
        train=tuple((step, won / n) for step, (n, won) in counts.items() if n),
        counts=counts,
        rollouts_by_step={
            step: index.statistics(step).n_episodes + index.broken(step, "train")
            for step in index.steps()
        },
        broken=index.broken(),
        seconds=seconds_of(run) if finished else None,
    )


def _start(run: RunReader) -> int:
    branched = run.manifest.get(BRANCHED_FROM)
    return branched["steps"] if branched else end_of_demonstrations(run) or 0


def end_of_demonstrations(run: RunReader) -> int | None:
    """Steps after which a run's demonstrations had ended; None if they did not, or it had none."""
    for event in run.events():
        if event.get(END_OF_DEMONSTRATIONS):
            return int(event["step"])
    return None


def _count(rewards: Sequence[float | None]) -> tuple[int, int]:
    graded = [reward for reward in rewards if reward is not None]
    return len(graded), sum(reward == SUCCESS for reward in graded)


def success_by_temperature(index: Index) -> Mapping[float | None, Curve]:
    """Success on held-out tasks by temperature."""
    curves: dict[float | None, list[tuple[int, float]]] = {}
    for step in index.steps("evaluation"):
        for temperature, rewards in index.evaluation(step).items():
            n, won = _count(rewards)
            if n:
                curves.setdefault(temperature, []).append((step, won / n))
    return curves


def _evaluated(index: Index) -> Iterator[Evaluated]:
    for step in index.steps("evaluation"):
        attempts = index.attempts(step)
        for temperature, rewards in index.evaluation(step).items():
            graded, succeeded = _count(rewards)
            yield Evaluated(
                step=step,
                temperature=temperature,
                graded=graded,
                succeeded=succeeded,
                broken=len(rewards) - graded,
                repeats=repeats(attempts[temperature].values()),
            )


def _to_the_end(curves: Mapping[float | None, Curve]) -> Mapping[float | None, Curve]:
    """Those of the last evaluation's temperatures: a branch may have others than its origin."""
    last = max((curve[-1][0] for curve in curves.values()), default=0)
    return {key: curve for key, curve in curves.items() if curve[-1][0] == last}


def height(temperature: float | None) -> float:
    """To sort temperatures by: the model's own is above all others."""
    return math.inf if temperature is None else temperature


def seconds_of(run: RunReader) -> float | None:
    """Of all sessions of a run that has ended; None where one was killed."""
    events = [event["event"] for event in run.events()]
    sessions = events.count("run_started") + events.count("run_resumed")
    if sessions != events.count("run_finished"):
        return None  # one session was killed, so its duration is unknown
    return float(run.manifest["outcome"]["seconds"])
