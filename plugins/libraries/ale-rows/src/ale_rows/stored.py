"""Read episodes for the stages after collecting: scored rows, or collected ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from ale.types import Chunk, Trajectory
from ale_rows.reading import RowFile, refuse_schema
from ale_rows.rows import KINDS, EpisodeRow, RowT, ScoredRow

By = Literal["episode", "reward", "return", "weight"]
"""The value to compare answers by: the episode's reward, or the chunk's r_k, G_k or weight."""


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
        from ale_rows.tables import table_kind

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


def stored_rows(source: Path, kind: type[RowT]) -> Iterator[RowT]:
    """The rows of a file, with the version of their episodes checked.

    Raises:
        InputError: a row is damaged, of another kind or of another version.
    """
    with RowFile(source, kind) as file:
        for _, row in file:
            if isinstance(row, EpisodeRow | ScoredRow):
                refuse_schema(row.episode, source)
            yield row


SKIPPED = "chunks skipped (the turns did nothing)"
"""Name under which a report counts skipped chunks."""


def is_credited(trajectory: Trajectory, chunk: Chunk) -> bool:
    """Whether a turn of the chunk did something; the values of other chunks are placeholders."""
    return any(trajectory.turns[span.turn].credited for span in chunk.spans)


def chunk_values(row: ScoredRow, by: By) -> tuple[float, ...]:
    """The value of each chunk of a row."""
    credit = row.credit
    if by == "reward":
        return credit.rewards
    return credit.returns if by == "return" else credit.weights
