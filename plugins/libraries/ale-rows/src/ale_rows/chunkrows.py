"""`ale data rl`: a row per chunk and context, with the chunk's reward, return and weight."""

from collections.abc import Iterator
from pathlib import Path

from ale.types import Chunk, TokenTrace, Trajectory
from ale_rows.chat import by_context, chats, chunk_answer, prefix_of
from ale_rows.chattools import tools_of
from ale_rows.files import Form, write_rows
from ale_rows.report import Counts, Report
from ale_rows.rows import ChunkTokens, RlRow, ScoredRow
from ale_rows.stored import stored_rows
from ale_rows.streaming import streaming
from ale_rows.writing import refuse_overwriting


def make_rl(
    source: Path, out: Path, *, min_abs_weight: float = 0.0, form: Form | None = None
) -> Report:
    """Write a row per chunk; one for each of its contexts, if its agent began new ones in it.

    Each row has the whole conversation before it, so the output grows with the square of an
    episode's length.

    Args:
        source: JSON Lines of `ScoredRow`.
        out: file or folder of `RlRow`, in the form that `write_rows` picks.
        min_abs_weight: leave out chunks with a smaller absolute weight.

    Raises:
        InputError: the source is damaged or of another kind.
        StoreError, NotUsableError: as for `write_rows`.
    """
    refuse_overwriting(out, source)
    counts = Counts()
    with streaming():
        written = write_rows(_rows(source, min_abs_weight, counts), out, RlRow, form=form)
    options = {"min_abs_weight": min_abs_weight}
    return counts.report("rl", [source], out, unit="chunks", written=written, options=options)


def _rows(source: Path, min_abs_weight: float, counts: Counts) -> Iterator[RlRow]:
    for row in stored_rows(source, ScoredRow):
        counts.seen["episodes"] += 1
        for chunk in row.chunks:
            counts.seen["chunks"] += 1
            made = chunk_rows(row, chunk)
            if abs(row.credit.weights[chunk.index]) < min_abs_weight:
                counts.dropped["weight below the minimum"] += 1
            elif isinstance(made, str):
                counts.dropped[made] += 1
            else:
                if len(made) > 1:
                    counts.seen["chunks over several contexts, a row for each context"] += 1
                yield from made


def chunk_rows(row: ScoredRow, chunk: Chunk) -> list[RlRow] | str:
    """The rows of a chunk, one for each of its contexts, or the reason why there is none."""
    trajectory = row.episode.trajectory
    if any(trajectory.turns[span.turn].completion.forced for span in chunk.spans):
        return "given by an expert, not sampled: for imitation only"
    made = [_row(row, part) for part in by_context(trajectory, chunk)]
    return [each for each in made if each is not None] or "the model wrote nothing in it"


def _row(row: ScoredRow, chunk: Chunk) -> RlRow | None:
    """The row of a chunk, or of its part in one context; None if the model wrote nothing there."""
    trajectory, credit = row.episode.trajectory, row.credit
    first = chunk.spans[0]
    completion = chunk_answer(trajectory, chunk)
    if not completion or row.episode.reward is None:
        return None
    return RlRow(
        run=row.run,
        episode=row.episode.id,
        task=row.episode.task_id,
        step=row.episode.step,
        rollout=row.episode.rollout,
        chunk=chunk.index,
        chunk_kind=chunk.kind,
        scheme=row.scheme,
        episode_reward=row.episode.reward,
        reward=credit.rewards[chunk.index],
        return_=credit.returns[chunk.index],
        weight=credit.weights[chunk.index],
        prompt=chats(trajectory.messages(upto=first.turn)),
        prefix=prefix_of(trajectory.turns[first.turn], first),
        completion=completion,
        tools=tools_of(row, first.turn),
        tokens=_tokens(trajectory, chunk),
    )


def _tokens(trajectory: Trajectory, chunk: Chunk) -> tuple[ChunkTokens, ...] | None:
    """The chunk's tokens; None if a turn has none, or the chunk starts or ends inside a token."""
    made = []
    for span in chunk.spans:
        trace = trajectory.turns[span.turn].completion.tokens
        if trace is None or span.tokens is None:
            return None
        made.append(_part(trace, span.tokens))
    return tuple(made)


def _part(trace: TokenTrace, tokens: tuple[int, int]) -> ChunkTokens:
    start, stop = tokens
    return ChunkTokens(
        prompt_ids=(*trace.prompt_ids, *trace.output_ids[:start]),
        ids=trace.output_ids[start:stop],
        logprobs=trace.logprobs[start:stop],
        policy_versions=trace.policy_versions[start:stop],
    )
