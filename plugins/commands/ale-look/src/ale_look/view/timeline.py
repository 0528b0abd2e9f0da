"""When each episode of a run began, and how its time was spent, for the page's timeline."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import fsum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ale.runs import Lines, OnDamage, RunReader
from ale.types import Split
from ale_look.store.rows import epoch

MOST = 30_000
"""Episodes of one timeline: those that began last."""
FINEST = 4000
"""Parts of a run's time, below which one turn is not told from the next."""
_LONGEST_S = 1e8
_MARKS = {
    "run_started": "start",
    "run_resumed": "start",
    "step_finished": "step",
    "evaluation_finished": "evaluation",
    "run_finished": "end",
}
"""The kinds of marks, by the event that they are of."""


class _Trace(msgspec.Struct, gc=False):
    policy_versions: list[int] = []


class _Completion(msgspec.Struct, gc=False):
    tokens: _Trace | None = None


class _Observation(msgspec.Struct, gc=False):
    duration_s: float = 0.0


class _Turn(msgspec.Struct, gc=False):
    completion: _Completion
    observations: list[_Observation] = []
    duration_s: float = 0.0


class _Trajectory(msgspec.Struct, gc=False):
    turns: list[_Turn] = []


class _Row(msgspec.Struct, gc=False):
    """The fields of a stored episode that a timeline needs; the rest of the line is skipped."""

    id: str
    split: Split = "train"
    step: int = 0
    reward: float | None = None
    started_at: str = ""
    seconds: dict[str, float] = {}
    trajectory: _Trajectory = msgspec.field(default_factory=_Trajectory)
    schema: int = 1


class Spent(NamedTuple):
    """Seconds of one turn, and the newest version of the weights that it sampled with."""

    model: float
    tools: float
    version: int | None


class Timed(NamedTuple):
    """An episode on the timeline."""

    offset: int
    id: str
    evaluation: bool
    step: int
    reward: float | None
    start: float
    """Seconds since the epoch."""
    before: float
    """Seconds until the agent began: opening and preparing the sandbox."""
    turns: Sequence[Spent]
    rest: float
    """Seconds of the agent's stage that no turn has."""
    grading: float
    after: float
    """Seconds of closing the sandbox."""

    @property
    def end(self) -> float:
        """When it ended, in seconds since the epoch."""
        spent = fsum(turn.model + turn.tools for turn in self.turns)
        return self.start + self.before + spent + self.rest + self.grading + self.after


class Timeline:
    """The episodes of a run; each update reads those that were added."""

    def __init__(self, path: Path, on_damage: OnDamage | None = None) -> None:
        self._path = path
        self._on_damage = on_damage
        self._begin()

    def _begin(self) -> None:
        self._timed: dict[str, Timed] = {}
        self._untimed: set[str] = set()
        self._last: tuple[int, str] | None = None

    def update(self) -> dict[str, Any]:
        """The timeline as of now, in whole milliseconds since `began`."""
        run = RunReader(self._path, self._on_damage)
        lines = Lines(run.episodes.path, _Row, self._on_damage)
        if not self._same(lines):
            self._begin()
        seen = self._last
        for offset, row in lines.with_offsets(0 if seen is None else seen[0]):
            if seen is None or offset != seen[0]:
                self._add(offset, row)
        shown = sorted(self._timed.values(), key=lambda each: (each.start, each.offset))[-MOST:]
        marks = [*_marks(run.events())]
        times = [each.start for each in shown] + [at for _, at, _ in marks]
        began = min(times, default=0.0)
        ended = max([each.end for each in shown] + times, default=0.0)
        fine = (ended - began) / FINEST
        return {
            "began": began,
            "ms": _ms(ended - began),
            "episodes": len(self._timed),
            "untimed": len(self._untimed),
            "columns": _columns(shown, began, fine),
            "marks": [[kind, _ms(at - began), facts] for kind, at, facts in marks],
        }

    def _same(self, lines: Lines[_Row]) -> bool:
        """The last line that was read is still there."""
        if self._last is None:
            return True
        start, name = self._last
        last = next(islice(lines.with_offsets(start), 1), None)
        return last is not None and last[1].id == name

    def _add(self, offset: int, row: _Row) -> None:
        self._last = (offset, row.id)
        start = epoch(row.started_at)
        if start <= 0:
            self._untimed.add(row.id)
            return
        turns = [_spent(turn) for turn in row.trajectory.turns]
        seconds = row.seconds
        agent = _positive(seconds.get("agent", 0.0))
        self._timed[row.id] = Timed(
            offset=offset,
            id=row.id,
            evaluation=row.split == "evaluation",
            step=row.step,
            reward=row.reward,
            start=start,
            before=fsum(_positive(seconds.get(stage, 0.0)) for stage in ("sandbox", "setup")),
            turns=turns,
            rest=max(0.0, agent - fsum(turn.model + turn.tools for turn in turns)),
            grading=_positive(seconds.get("grading", 0.0)),
            after=_positive(seconds.get("teardown", 0.0)),
        )


def _spent(turn: _Turn) -> Spent:
    """The time of a turn's calls is that of its observations; the rest is the model's."""
    tools = fsum(_positive(each.duration_s) for each in turn.observations)
    trace = turn.completion.tokens
    versions = [] if trace is None else trace.policy_versions
    return Spent(max(0.0, _positive(turn.duration_s) - tools), tools, max(versions, default=None))


def _positive(seconds: float) -> float:
    return min(max(0.0, seconds), _LONGEST_S)


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


def _columns(timed: Sequence[Timed], began: float, fine: float) -> dict[str, list[Any]]:
    joined = [_joined(each.turns, fine) for each in timed]
    return {
        **{name: [getattr(each, name) for each in timed] for name in ("offset", "id", "step")},
        "evaluation": [each.evaluation for each in timed],
        "reward": [each.reward for each in timed],
        "start": [_ms(each.start - began) for each in timed],
        "end": [_ms(each.end - began) for each in timed],
        **{
            name: [_ms(getattr(each, name)) for each in timed]
            for name in ("before", "rest", "grading", "after")
        },
        "turns": [[ms for t in turns for ms in (_ms(t.model), _ms(t.tools))] for turns in joined],
        "versions": [_collapsed([turn.version for turn in turns]) for turns in joined],
    }


def _joined(turns: Sequence[Spent], fine: float) -> list[Spent]:
    """The turns; of those too short to be told apart, several of one version as one."""
    made: list[Spent] = []
    for turn in turns:
        last = made[-1] if made else None
        if last and last.version == turn.version and last.model + last.tools < fine:
            made[-1] = Spent(last.model + turn.model, last.tools + turn.tools, turn.version)
        else:
            made.append(turn)
    return made


def _collapsed(versions: Sequence[int | None]) -> list[int | None]:
    """One if all are the same."""
    return [*versions[:1]] if len({*versions}) < 2 else [*versions]


def _marks(
    events: Iterator[Mapping[str, Any]],
) -> Iterator[tuple[str, float, dict[str, Any]]]:
    """Starts and ends of the run, its training steps and its evaluations: kind, time and facts."""
    for event in events:
        kind, at = _MARKS.get(event.get("event", "")), event.get("at")
        if kind is None or at is None or at <= 0:
            continue
        facts = {
            name: event[name]
            for name in ("step", "outcome", "n_graded", "n_succeeded", "temperature", "seconds")
            if event.get(name) is not None
        }
        trained = (event.get("metrics") or {}).get("seconds.training")
        yield kind, float(at), facts | ({"training": trained} if trained is not None else {})
