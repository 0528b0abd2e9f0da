"""`ale data dpo`: preference pairs."""

from collections.abc import Iterator
from pathlib import Path

from ale.errors import InputError
from ale.types import Chunk, Trajectory
from ale_rows.chat import by_context, chats, chunk_answer
from ale_rows.chattools import tools_of
from ale_rows.files import Form, write_rows
from ale_rows.prompts import same_prompt_pairs
from ale_rows.report import Counts, Report
from ale_rows.rows import DpoRow, Origin, Pairing, ScoredRow
from ale_rows.stored import ROUNDING, By, chunk_values, credited_chunks, same_value, stored_rows
from ale_rows.streaming import streaming
from ale_rows.writing import refuse_overwriting


def make_dpo(
    source: Path,
    out: Path,
    *,
    pairing: Pairing,
    by: By | None = None,
    min_margin: float = 0.0,
    form: Form | None = None,
) -> Report:
    """Write preference pairs.

    ``same-prompt`` compares answers to identical prompts: for every conversation that several
    rollouts of a task share (its first prompt, or a fork) it takes the answers with the highest
    and the lowest mean value over their rollouts. This is a preference as DPO defines it.

    ``same-trajectory`` compares the chunks of each trajectory with the highest and the lowest
    value. The two have different contexts; their prompt is the trajectory's first prompt. This is
    ALE-lite's scheme, and not a preference between answers to one prompt.

    Args:
        source: JSON Lines of `ScoredRow`; for ``same-prompt`` by ``episode`` also `EpisodeRow`.
        out: file or folder of `DpoRow`, in the form that `write_rows` picks.
        by: the value to compare. ``episode``: the reward of the whole episode, the default of
            ``same-prompt``. ``reward`` (the default of ``same-trajectory``), ``return`` or
            ``weight``: that of the chunk; with ``same-prompt``, the one in which the answer starts.
        min_margin: leave out pairs whose values differ by less, at least 0.

    Raises:
        InputError: the scheme can't compare by this value, or the source is damaged or of another
            kind.
        StoreError, NotUsableError: as for `write_rows`.
    """
    refuse_overwriting(out, source)
    by = by or ("episode" if pairing == "same-prompt" else "reward")
    if pairing == "same-trajectory" and by == "episode":
        message = "the chunks of one trajectory share the episode's reward: nothing to compare"
        raise InputError.of(message, path="by", expected="reward, return or weight")
    counts = Counts()
    make = same_prompt_pairs if pairing == "same-prompt" else _same_trajectory_pairs
    with streaming():
        written = write_rows(make(source, by, min_margin, counts), out, DpoRow, form=form)
    return counts.report(
        "dpo",
        [source],
        out,
        unit="prompts" if pairing == "same-prompt" else "trajectories",
        written=written,
        options={"pairing": pairing, "by": by, "min_margin": min_margin},
    )


def _same_trajectory_pairs(source: Path, by: By, margin: float, counts: Counts) -> Iterator[DpoRow]:
    for row in stored_rows(source, ScoredRow):
        counts.seen["trajectories"] += 1
        pair = _extremes(row, by, counts)
        if isinstance(pair, str):
            counts.dropped[pair] += 1
            continue
        (low, worst), (high, best) = pair
        chosen, rejected = (
            chunk_answer(row.episode.trajectory, row.chunks[k]) for k in (best, worst)
        )
        if high - low < margin - ROUNDING:
            counts.dropped["difference below the minimum margin"] += 1
        elif chosen == rejected:
            counts.dropped["best and worst chunk are equal"] += 1
        else:
            yield DpoRow(
                prompt=chats(row.episode.trajectory.messages(upto=0)),
                chosen=chosen,
                rejected=rejected,
                tools=tools_of(row, 0),
                pairing="same-trajectory",
                task=row.episode.task_id,
                chosen_from=_origin(row, best, high),
                rejected_from=_origin(row, worst, low),
            )


Extreme = tuple[float, int]
"""A value and the index of its chunk."""


def _extremes(row: ScoredRow, by: By, counts: Counts) -> tuple[Extreme, Extreme] | str:
    """The lowest (first among equals) and the highest (last among equals), or why there are none.

    Chunks without an answer of the model, demonstrations, chunks of turns that did nothing, and
    chunks over several contexts, which are no conversation, are ignored.
    """
    values = chunk_values(row, by)
    trajectory = row.episode.trajectory
    credited = credited_chunks(row, counts)
    whole = [chunk for chunk in credited if len(by_context(trajectory, chunk)) == 1]
    if skipped := len(credited) - len(whole):
        counts.seen["chunks skipped (over several contexts)"] += skipped
    own = [(values[c.index], c.index) for c in whole if _is_own(trajectory, c)]
    if len(own) < 2:
        return "fewer than two chunks with an answer of the model"
    worst = min(own)
    best = max(own)
    if same_value(worst[0], best[0]):
        return "tie: all chunks earned the same"
    return worst, best


def _is_own(trajectory: Trajectory, chunk: Chunk) -> bool:
    """Whether the model itself wrote something in the chunk."""
    wrote = False
    for span in chunk.spans:
        completion = trajectory.turns[span.turn].completion
        if completion.forced:
            return False
        calls = completion.message.tool_calls[slice(*span.calls)]
        wrote = wrote or bool(calls) or span.text[0] < span.text[1]
    return wrote


def _origin(row: ScoredRow, chunk: int, value: float) -> Origin:
    return Origin(
        run=row.run,
        episode=row.episode.id,
        turn=row.chunks[chunk].spans[0].turn,
        chunk=chunk,
        value=value,
    )
