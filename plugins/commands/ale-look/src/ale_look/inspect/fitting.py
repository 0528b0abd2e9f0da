"""Leaves out what is stored about an episode and does not fit it.

A file may be cut short, or be of another run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ale.text import counted, visible
from ale.types import Chunk, CreditedEpisode, Episode, ScoredEpisode, Turn


class Fitted(NamedTuple):
    """The stored credit and scores of an episode that fit it."""

    credited: CreditedEpisode | None
    scored: Sequence[ScoredEpisode]
    problems: Sequence[str]
    """A sentence for each part that is left out."""


def fitted(
    episode: Episode, credited: CreditedEpisode | None, scored: Sequence[ScoredEpisode]
) -> Fitted:
    """Leave out credit and scores that are not one for each chunk, or of turns that are not there.

    Args:
        credited: the stored line about the episode.
        scored: the lines of ``step_scores/`` about it.
    """
    turns, problems = episode.trajectory.turns, [*_tokens(episode.trajectory.turns)]
    if credited is not None and (why := _credit(credited, turns)):
        problems.append(f"The stored credit is left out, since it does not fit: {why}.")
        credited = None
    kept = []
    for row in scored:
        if why := _lengths(row.chunks, {"score": row.scores}) or _spans(row.chunks, turns):
            scorer = visible(row.scorer)
            problems.append(f"Stored scores of {scorer} are left out: {why}.")
        else:
            kept.append(row)
    return Fitted(credited, kept, problems)


def _credit(credited: CreditedEpisode, turns: Sequence[Turn]) -> str:
    """Why it is not that of these turns; empty if it is."""
    credit = credited.credit
    numbers = {"reward": credit.rewards, "return": credit.returns, "weight": credit.weights}
    wrong = [(chunk.index, i) for i, chunk in enumerate(credited.chunks) if chunk.index != i]
    if wrong:
        return f"chunk {wrong[0][0]} stands in place {wrong[0][1]}"
    return _lengths(credited.chunks, numbers) or _spans(credited.chunks, turns)


def _lengths(chunks: Sequence[Chunk], numbers: Mapping[str, Sequence[object]]) -> str:
    for noun, values in numbers.items():
        if len(values) != len(chunks):
            return f"{counted(len(values), noun)} for {counted(len(chunks), 'chunk')}"
    return ""


def _spans(chunks: Iterable[Chunk], turns: Sequence[Turn]) -> str:
    for chunk in chunks:
        if not chunk.spans:
            return f"chunk {chunk.index} is empty"
        for span in chunk.spans:
            if not 0 <= span.turn < len(turns):
                return f"chunk {chunk.index} is of turn {span.turn}, and there are {len(turns)}"
    return ""


def has_whole_trace(turn: Turn) -> bool:
    """Whether the turn has tokens, with as many of all that is stored of each."""
    return turn.completion.tokens is not None and not [*_tokens([turn])]


def _tokens(turns: Sequence[Turn]) -> Iterator[str]:
    for number, turn in enumerate(turns):
        trace = turn.completion.tokens
        if trace is None:
            continue
        of_each = [trace.logprobs, trace.policy_versions]
        of_each += [] if trace.text_offsets is None else [trace.text_offsets]
        n = len(trace.output_ids)
        if others := [len(values) for values in of_each if len(values) != n]:
            found = f"{counted(n, 'id')}, and {others[0]:,} of what is stored of each"
            yield f"The tokens of turn {number} are not told apart: there are {found}."
