"""Read stored episodes: of runs, collected rows and scored ones."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from ale.types import Chunk, Failure, Split
from ale_rows.reading import RowFile, refuse_schema
from ale_rows.report import Counts
from ale_rows.rows import KINDS, EpisodeRow, ScoredRow
from ale_rows.tables import table_kind

StoredT = TypeVar("StoredT", EpisodeRow, ScoredRow)
GroupKey = tuple[str, int, str, str]
"""Run, step, task and start: rollouts of the same beginning by the same policy."""
ROUNDING = 1e-12
"""Values that differ by no more than this are equal: 0.1 + 0.2 is not 0.3 for a computer."""

By = Literal["episode", "reward", "return", "weight"]
"""The value to compare answers by: the episode's reward, or the chunk's r_k, G_k or weight."""


class _Failed(msgspec.Struct, gc=False):
    """The stage and kind of a failure; its other fields are skipped."""

    stage: str
    kind: str


def broken(failure: _Failed | Failure) -> str:
    """Why an episode that broke is left out, for a report."""
    return f"broken, so without a reward: {failure.kind} ({failure.stage})"


class EpisodeHead(msgspec.Struct, gc=False):
    """The fields of a stored episode that identify it; the rest of the line is skipped."""

    id: str
    task_id: str
    split: Split = "train"
    step: int = 0
    start: str = ""
    rollout: int = 0
    temperature: float | None = None
    reward: float | None = None
    failure: _Failed | None = None
    started_at: str = ""
    schema: int = 1

    def group(self, run: str) -> GroupKey:
        """The group of an episode of this run."""
        return run, self.step, self.task_id, self.start

    @property
    def no_reward(self) -> str:
        """Why an episode without a reward has none, for a report."""
        if self.failure is None:
            return "without a reward, as imported chats are unless --reward gives them one"
        return broken(self.failure)


class _Kind(msgspec.Struct):
    schema: Literal[1]
    kind: Literal["scored", "episode"]


class _AnyKind(msgspec.Struct):
    schema: Literal[1]
    kind: Literal["episode", "scored", "dpo", "sft", "rl"]


def any_kind(source: Path) -> type[Any]:
    """The class of a file's or table's first row; `EpisodeRow` if it is empty.

    Raises:
        InputError: it has no rows of a known kind.
    """
    if source.is_dir() or source.suffix == ".parquet":
        return KINDS[table_kind(source)]
    with RowFile(source, _AnyKind) as file:
        for _, row in file:
            return KINDS[row.kind]
    return EpisodeRow


def stored_kind(source: Path) -> type[Any]:
    """The class of a file's first row; `ScoredRow` if it is empty.

    Raises:
        InputError: its rows have no episodes.
    """
    with RowFile(source, _Kind) as file:
        for _, row in file:
            return EpisodeRow if row.kind == "episode" else ScoredRow
    return ScoredRow


def stored_rows(source: Path, kind: type[StoredT]) -> Iterator[StoredT]:
    """The rows of a file, with the version of their episodes checked.

    Raises:
        InputError: a row is damaged, of another kind or of another version.
    """
    with RowFile(source, kind) as file:
        for _, row in file:
            refuse_schema(row.episode, source)
            yield row


def credited_chunks(row: ScoredRow, counts: Counts) -> list[Chunk]:
    """The chunks with a turn that did something; the values of the others, which are counted, are
    placeholders.
    """
    turns = row.episode.trajectory.turns
    found = [chunk for chunk in row.chunks if any(turns[s.turn].credited for s in chunk.spans)]
    if skipped := len(row.chunks) - len(found):
        counts.seen["chunks skipped (the turns did nothing)"] += skipped
    return found


def chunk_values(row: ScoredRow, by: By) -> tuple[float, ...]:
    """The value of each chunk of a row."""
    credit = row.credit
    if by == "reward":
        return credit.rewards
    return credit.returns if by == "return" else credit.weights


def same_value(one: float, other: float) -> bool:
    """Are two values equal but for errors of rounding? Then neither answer is the better one."""
    return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=ROUNDING)
