"""Reading episodes for the stages after scoring: scored rows, or rows as they were collected."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from ale_rows.reading import RowFile, refuse_schema
from ale_rows.rows import KINDS, EpisodeRow, RowT, ScoredRow

By = Literal["episode", "reward", "return", "weight"]
"""What answers are compared by: the episode's reward, or of the chunk r_k, G_k or its weight."""


class _Kind(msgspec.Struct):
    schema: Literal[1]
    kind: Literal["scored", "episode"]


class _AnyKind(msgspec.Struct):
    schema: Literal[1]
    kind: Literal["episode", "scored", "dpo", "sft", "rl"]


def any_kind(source: Path) -> type[Any]:
    """The class of the rows of a file or table, by the first; of an empty one, `EpisodeRow`.

    Raises:
        InputError: they are no rows.
    """
    if source.is_dir() or source.suffix == ".parquet":
        from ale_rows.tables import table_kind

        return KINDS[table_kind(source)]
    with RowFile(source, _AnyKind) as file:
        for _, row in file:
            return KINDS[row.kind]
    return EpisodeRow


def stored_kind(source: Path) -> type[Any]:
    """The class of the rows of a file, by its first line; of an empty file, `ScoredRow`.

    Raises:
        InputError: its rows hold no episodes.
    """
    with RowFile(source, _Kind) as file:
        for _, row in file:
            return EpisodeRow if row.kind == "episode" else ScoredRow
    return ScoredRow


def stored_rows(source: Path, kind: type[RowT]) -> Iterator[RowT]:
    """Rows with episodes of a version that is known.

    Raises:
        InputError: a row is damaged, of another kind or of another version.
    """
    with RowFile(source, kind) as file:
        for _, row in file:
            if isinstance(row, EpisodeRow | ScoredRow):
                refuse_schema(row.episode, source)
            yield row


def chunk_values(row: ScoredRow, by: By) -> tuple[float, ...]:
    """What each chunk of a row is compared by."""
    credit = row.credit
    if by == "reward":
        return credit.rewards
    return credit.returns if by == "return" else credit.weights
