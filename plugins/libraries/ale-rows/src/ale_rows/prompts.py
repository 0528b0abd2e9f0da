"""Pairs of answers to one prompt: highest against lowest mean value over a task's rollouts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from attrs import define

from ale.errors import InputError
from ale.types import Split, ToolSpec
from ale_rows.chat import chat, chats
from ale_rows.chattools import tools_of
from ale_rows.contexts import SlimTrajectory, answers
from ale_rows.reading import RowFile, refuse_schema
from ale_rows.report import Counts
from ale_rows.rows import DpoRow, EpisodeRow, Origin, ScoredRow
from ale_rows.stored import ROUNDING, By, chunk_values, credited_chunks, same_value, stored_kind
from ale_rows.workdirs import Workdirs, with_workdir


class _MessageHead(msgspec.Struct, gc=False):
    content: str = ""


class _TurnHead(msgspec.Struct, gc=False):
    prompt: tuple[_MessageHead, ...] = ()


class _TrajectoryHead(msgspec.Struct, gc=False):
    turns: tuple[_TurnHead, ...] = ()


class _MetadataHead(msgspec.Struct, frozen=True, gc=False):
    workdir: str | None = None


class _EpisodeHead(msgspec.Struct, gc=False):
    task_id: str
    trajectory: _TrajectoryHead
    split: Split = "train"
    reward: float | None = None
    metadata: _MetadataHead = _MetadataHead()


class _SlimEpisode(msgspec.Struct, gc=False):
    trajectory: SlimTrajectory
    reward: float | None = None
    schema: int = 1


class _SlimRow(msgspec.Struct, gc=False):
    """A row without the fields that only credit needs."""

    schema: Literal[1]
    kind: Literal["scored", "episode"]
    episode: _SlimEpisode
    tools: tuple[ToolSpec, ...] | None = None


class _RowHead(msgspec.Struct, gc=False):
    schema: Literal[1]
    kind: Literal["scored", "episode"]
    episode: _EpisodeHead


@define
class _Candidate:
    """One answer to a prompt, with all rollouts that gave it."""

    offset: int
    """Offset of the first row with this answer."""
    turn: int
    empty: bool
    total: float = 0.0
    n: int = 0

    @property
    def value(self) -> float:
        """Mean over its rollouts: a Monte Carlo estimate of the answer's value."""
        return self.total / self.n


Table = dict[bytes, dict[bytes, _Candidate]]
"""Candidates by the digest of the prompt, then by that of the answer."""


def same_prompt_pairs(source: Path, by: By, margin: float, counts: Counts) -> Iterator[DpoRow]:
    """One pair for each prompt that has different answers of different value.

    Memory holds the digests of one task, and the offsets of all rows.

    Args:
        counts: counts prompts, episodes, and prompts without a pair by reason.
    """
    kind = stored_kind(source)
    if kind is EpisodeRow and by != "episode":
        message = f"these episodes have no credit to compare by '{by}'"
        raise InputError.of(message, file=str(source), hint="ale data score them first")
    workdirs = Workdirs()
    tasks = _tasks(source, counts, workdirs)
    compared: type[Any] = _SlimRow if by == "episode" else ScoredRow
    with RowFile(source, kind) as rows, RowFile(source, compared) as slim:
        for offsets in tasks.values():
            for tried in _table(slim, offsets, by, workdirs, counts).values():
                counts.seen["prompts"] += 1
                pair = _pair(list(tried.values()), margin)
                if isinstance(pair, str):
                    counts.dropped[pair] += 1
                else:
                    yield _row(rows, workdirs, *pair)


def _tasks(source: Path, counts: Counts, workdirs: Workdirs) -> dict[str, list[int]]:
    tasks: dict[str, list[int]] = {}
    with RowFile(source, _RowHead) as file:
        for offset, row in file:
            if row.episode.split != "train" or row.episode.reward is None:
                counts.seen["episodes left out (held out or without a reward)"] += 1
                continue
            counts.seen["episodes"] += 1
            tasks.setdefault(row.episode.task_id, []).append(offset)
            first = row.episode.trajectory.turns[:1]
            texts = [message.content for turn in first for message in turn.prompt]
            workdirs.add(row.episode.task_id, offset, texts, row.episode.metadata.workdir)
    return tasks


def _table(
    rows: RowFile[Any], offsets: list[int], by: By, workdirs: Workdirs, counts: Counts
) -> Table:
    table: Table = {}
    for offset in offsets:
        row = rows.at(offset)
        refuse_schema(row.episode, rows.path)
        values = _values(row, by, counts)
        for answer in answers(row.episode.trajectory, row.tools, workdirs.of(offset)):
            value = row.episode.reward if values is None else values.get(answer.turn)
            if value is None:
                continue
            at_prompt = table.setdefault(answer.prompt, {})
            tried = at_prompt.get(answer.content)
            if tried is None:
                tried = at_prompt[answer.content] = _Candidate(offset, answer.turn, answer.empty)
            tried.total += value
            tried.n += 1
    return table


def _values(row: ScoredRow | _SlimRow, by: By, counts: Counts) -> dict[int, float] | None:
    """By turn, the value of the chunk in which its answer starts; None to use the episode's.

    Chunks of turns that did nothing are skipped and counted.
    """
    if isinstance(row, _SlimRow):
        return None
    values = chunk_values(row, by)
    credited = {chunk.index for chunk in credited_chunks(row, counts)}
    first = _first_chunks(row).items()
    return {turn: values[chunk] for turn, chunk in first if chunk in credited}


def _first_chunks(row: ScoredRow) -> dict[int, int]:
    """By turn, the chunk in which its answer starts."""
    found: dict[int, int] = {}
    for chunk in row.chunks:
        for span in chunk.spans:
            found.setdefault(span.turn, chunk.index)
    return found


def _pair(tried: list[_Candidate], margin: float) -> tuple[_Candidate, _Candidate] | str:
    """The best and the worst answer (the first among equals), or why there is no pair."""
    if len(tried) < 2:
        return (
            "every rollout gave the same answer"
            if tried[0].n > 1
            else "only one rollout reached the prompt"
        )
    best = max(tried, key=lambda each: each.value)
    worst = min(tried, key=lambda each: each.value)
    if same_value(best.value, worst.value):
        return "tie: every answer earned the same"
    if best.value - worst.value < margin - ROUNDING:
        return "difference below the minimum margin"
    if best.empty or worst.empty:
        return "one of the two answers is empty"
    return best, worst


def _row(rows: RowFile[Any], workdirs: Workdirs, best: _Candidate, worst: _Candidate) -> DpoRow:
    chosen, rejected = rows.at(best.offset), rows.at(worst.offset)
    trajectory = chosen.episode.trajectory
    answer = rejected.episode.trajectory.turns[worst.turn].completion.message
    return DpoRow(
        prompt=chats(trajectory.messages(upto=best.turn)),
        chosen=(chat(trajectory.turns[best.turn].completion.message),),
        rejected=(chat(with_workdir(answer, workdirs.of(worst.offset), workdirs.of(best.offset))),),
        tools=tools_of(chosen, best.turn),
        pairing="same-prompt",
        task=chosen.episode.task_id,
        chosen_from=_origin(chosen, best),
        rejected_from=_origin(rejected, worst),
    )


def _origin(row: EpisodeRow | ScoredRow, tried: _Candidate) -> Origin:
    chunks = _first_chunks(row) if isinstance(row, ScoredRow) else {}
    return Origin(
        run=row.run,
        episode=row.episode.id,
        turn=tried.turn,
        chunk=chunks.get(tried.turn),
        value=tried.value,
    )
