"""Pairs of answers to one prompt: best against worst on average, over all rollouts of a task."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from attrs import define

from ale.errors import InputError, Problem
from ale.types import Split, ToolSpec
from ale_rows.chat import chat, chats
from ale_rows.chattools import chat_tools
from ale_rows.contexts import Told, answers
from ale_rows.places import Places, moved
from ale_rows.reading import RowFile, refuse_schema
from ale_rows.rows import DpoRow, EpisodeRow, Origin, ScoredRow
from ale_rows.stored import By, chunk_values, stored_kind


class _MessageHead(msgspec.Struct, gc=False):
    content: str = ""


class _TurnHead(msgspec.Struct, gc=False):
    prompt: tuple[_MessageHead, ...] = ()


class _TrajectoryHead(msgspec.Struct, gc=False):
    turns: tuple[_TurnHead, ...] = ()


class _EpisodeHead(msgspec.Struct, gc=False):
    task_id: str
    trajectory: _TrajectoryHead
    split: Split = "train"
    reward: float | None = None


class _ToldEpisode(msgspec.Struct, gc=False):
    trajectory: Told
    reward: float | None = None
    schema: int = 1


class _ToldRow(msgspec.Struct, gc=False):
    """A row without what only credit needs."""

    schema: Literal[1]
    kind: Literal["scored", "episode"]
    episode: _ToldEpisode
    tools: tuple[ToolSpec, ...] | None = None


class _RowHead(msgspec.Struct, gc=False):
    schema: Literal[1]
    kind: Literal["scored", "episode"]
    episode: _EpisodeHead


@define
class _Tried:
    """One answer to a prompt, over all rollouts that gave it."""

    offset: int
    """Of the first row that has it."""
    turn: int
    empty: bool
    total: float = 0.0
    n: int = 0

    @property
    def value(self) -> float:
        """Mean over its rollouts: a Monte Carlo estimate of what the answer is worth."""
        return self.total / self.n


Table = dict[bytes, dict[bytes, _Tried]]
"""By the digest of a prompt, then of an answer."""


def same_prompt_pairs(
    source: Path, by: By, margin: float, dropped: "Counter[str]", seen: "Counter[str]"
) -> Iterator[DpoRow]:
    """A pair per prompt that got different answers of different worth.

    One task's digests are in memory at a time, and of the others where their rows stand.

    Args:
        dropped: counts, by reason, the prompts that give no pair.
        seen: counts prompts and episodes.
    """
    kind = stored_kind(source)
    if kind is EpisodeRow and by != "episode":
        message = f"these episodes have no credit to compare by '{by}'"
        raise InputError([Problem(message=message, file=str(source), hint="ale score them first")])
    places = Places()
    tasks = _tasks(source, seen, places)
    compared: type[Any] = _ToldRow if by == "episode" else ScoredRow
    with RowFile(source, kind) as rows, RowFile(source, compared) as told:
        for offsets in tasks.values():
            for tried in _table(told, offsets, by, places).values():
                seen["prompts"] += 1
                pair = _pair(list(tried.values()), margin)
                if isinstance(pair, str):
                    dropped[pair] += 1
                else:
                    yield _row(rows, places, *pair)


def _tasks(source: Path, seen: "Counter[str]", places: Places) -> dict[str, list[int]]:
    tasks: dict[str, list[int]] = {}
    with RowFile(source, _RowHead) as file:
        for offset, row in file:
            if row.episode.split != "train" or row.episode.reward is None:
                seen["episodes left out (held out, or without a reward)"] += 1
                continue
            seen["episodes"] += 1
            tasks.setdefault(row.episode.task_id, []).append(offset)
            first = row.episode.trajectory.turns[:1]
            texts = [message.content for turn in first for message in turn.prompt]
            places.add(row.episode.task_id, offset, texts)
    return tasks


def _table(rows: RowFile[Any], offsets: list[int], by: By, places: Places) -> Table:
    table: Table = {}
    for offset in offsets:
        row = rows.at(offset)
        refuse_schema(row.episode, rows.path)
        values = _values(row, by)
        for answer in answers(row.episode.trajectory, row.tools, places.of(offset)):
            value = row.episode.reward if values is None else values.get(answer.turn)
            if value is None:
                continue
            at_prompt = table.setdefault(answer.prompt, {})
            tried = at_prompt.get(answer.said)
            if tried is None:
                tried = at_prompt[answer.said] = _Tried(offset, answer.turn, answer.empty)
            tried.total += value
            tried.n += 1
    return table


def _values(row: ScoredRow | _ToldRow, by: By) -> dict[int, float] | None:
    """What the chunk is worth in which each turn's answer begins; None where the episode counts."""
    if isinstance(row, _ToldRow):
        return None
    values = chunk_values(row, by)
    return {turn: values[chunk] for turn, chunk in _first_chunks(row).items()}


def _first_chunks(row: ScoredRow) -> dict[int, int]:
    """By turn, the chunk in which its answer begins."""
    found: dict[int, int] = {}
    for chunk in row.chunks:
        for span in chunk.spans:
            found.setdefault(span.turn, chunk.index)
    return found


def _pair(tried: list[_Tried], margin: float) -> tuple[_Tried, _Tried] | str:
    """The best and the worst answer, the first of equals; or why there is no pair."""
    if len(tried) < 2:
        return (
            "every rollout gave the same answer"
            if tried[0].n > 1
            else "only one rollout led to the prompt"
        )
    best = max(tried, key=lambda each: each.value)
    worst = min(tried, key=lambda each: each.value)
    if best.value == worst.value:
        return "tie: every answer earned the same"
    if best.value - worst.value < margin:
        return "less apart than the margin asked for"
    if best.empty or worst.empty:
        return "one of the two answers is empty"
    return best, worst


def _row(rows: RowFile[Any], places: Places, best: _Tried, worst: _Tried) -> DpoRow:
    chosen, rejected = rows.at(best.offset), rows.at(worst.offset)
    trajectory = chosen.episode.trajectory
    answer = rejected.episode.trajectory.turns[worst.turn].completion.message
    return DpoRow(
        prompt=chats(trajectory.messages(upto=best.turn)),
        chosen=(chat(trajectory.turns[best.turn].completion.message),),
        rejected=(chat(moved(answer, places.of(worst.offset), places.of(best.offset))),),
        tools=chat_tools(chosen.tools),
        pairing="same-prompt",
        task=chosen.episode.task_id,
        chosen_from=_origin(chosen, best),
        rejected_from=_origin(rejected, worst),
    )


def _origin(row: EpisodeRow | ScoredRow, tried: _Tried) -> Origin:
    chunks = _first_chunks(row) if isinstance(row, ScoredRow) else {}
    return Origin(
        run=row.run,
        episode=row.episode.id,
        turn=tried.turn,
        chunk=chunks.get(tried.turn),
        value=tried.value,
    )
