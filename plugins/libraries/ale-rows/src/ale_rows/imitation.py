"""`ale data sft`: conversations for imitation."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from ale.errors import InputError
from ale.runs import SUCCESS
from ale.types import Message, Turn, replace
from ale_rows.chat import chat
from ale_rows.chattools import tools_of
from ale_rows.files import Form, write_rows
from ale_rows.report import Counts, Report
from ale_rows.rows import ChatMessage, EpisodeRow, ScoredRow, SftRow
from ale_rows.stored import broken, stored_kind, stored_rows
from ale_rows.streaming import streaming
from ale_rows.writing import refuse_overwriting

_FAILED = f"reward below {SUCCESS:g}, so not imitated unless --min-reward gives a lower minimum"


def make_sft(
    source: Path,
    out: Path,
    *,
    min_reward: float | None = None,
    min_weight: float | None = None,
    form: Form | None = None,
) -> Report:
    """Write conversations with the answers to learn from.

    An episode is one conversation; if its agent started new contexts, it is several. Answers in a
    prompt (examples, a copied history) and answers that did nothing (`Turn.credited` is False) are
    not trained on.

    Args:
        source: JSON Lines of `EpisodeRow` or `ScoredRow`.
        out: file or folder of `SftRow`, in the form that `write_rows` picks.
        min_reward: only episodes with at least this reward. Default, without `min_weight`: those
            that succeeded, with a reward of 1 (rejection sampling), and those that have none, as
            imported chats. Imitating failures teaches to fail, so that it has to be asked for.
        min_weight: train only on answers whose chunks all have at least this weight.

    Raises:
        InputError: `min_weight` is set but the source has no weights, or the source is damaged.
        StoreError, NotUsableError: as for `write_rows`.
    """
    refuse_overwriting(out, source)
    kind = stored_kind(source)
    if min_weight is not None and kind is EpisodeRow:
        message = "these episodes have no weights"
        raise InputError.of(message, file=str(source), hint="ale data score them first")
    counts = Counts()
    rows = _rows(stored_rows(source, kind), min_reward, min_weight, counts)
    with streaming():
        written = write_rows(rows, out, SftRow, form=form)
    options = {"min_reward": min_reward, "min_weight": min_weight}
    return counts.report("sft", [source], out, unit="episodes", written=written, options=options)


def _rows(
    rows: Iterator[EpisodeRow | ScoredRow],
    min_reward: float | None,
    min_weight: float | None,
    counts: Counts,
) -> Iterator[SftRow]:
    for row in rows:
        counts.seen["episodes"] += 1
        reason = _unwanted(row, min_reward, by_weight=min_weight is not None)
        if reason is not None:
            counts.dropped[reason] += 1
            continue
        made = list(conversations(row, min_weight))
        counts.seen["answers to learn from"] += sum(int(sum(each.loss_weights)) for each in made)
        if not made:
            counts.dropped["no answer to learn from"] += 1
        yield from made


def _unwanted(
    row: EpisodeRow | ScoredRow, min_reward: float | None, *, by_weight: bool
) -> str | None:
    episode = row.episode
    if episode.split != "train":
        return "of an evaluation: held out"
    if episode.failure is not None:
        return broken(episode.failure)
    if min_reward is None:
        failed = episode.reward is not None and episode.reward < SUCCESS
        return _FAILED if failed and not by_weight else None
    if episode.reward is None:
        return "without a reward"
    return None if episode.reward >= min_reward else "reward below the minimum"


def conversations(row: EpisodeRow | ScoredRow, min_weight: float | None) -> Iterator[SftRow]:
    """The conversations of an episode that have an answer to learn from."""
    turns = row.episode.trajectory.turns
    learned = _learned(row, min_weight)
    begins = [i for i, turn in enumerate(turns) if not turn.extends or i == 0]
    for start, stop in pairwise([*begins, len(turns)]):
        first = replace(turns[start], prompt=row.episode.trajectory.messages(start))
        messages, weights = _conversation([first, *turns[start + 1 : stop]], learned[start:stop])
        if any(weights):
            yield SftRow(
                messages=messages,
                loss_weights=weights,
                tools=tools_of(row, start),
                run=row.run,
                episode=row.episode.id,
                task=row.episode.task_id,
                reward=row.episode.reward,
            )


def _learned(row: EpisodeRow | ScoredRow, min_weight: float | None) -> list[bool]:
    """For each turn, whether to train on its answer."""
    turns = row.episode.trajectory.turns
    learned = [turn.credited and _has_answer(turn.completion.message) for turn in turns]
    if min_weight is not None and isinstance(row, ScoredRow):
        for chunk, weight in zip(row.chunks, row.credit.weights, strict=True):
            for span in chunk.spans:
                learned[span.turn] = learned[span.turn] and weight >= min_weight
    return learned


def _has_answer(message: Message) -> bool:
    return bool(message.content or message.tool_calls)


def _conversation(
    turns: Sequence[Turn], learned: Sequence[bool]
) -> tuple[tuple[ChatMessage, ...], tuple[float, ...]]:
    """The messages up to the last answer to learn from, and the weight of each."""
    messages: list[ChatMessage] = []
    weights: list[float] = []
    for turn, learn in zip(turns, learned, strict=True):
        messages += map(chat, turn.prompt)
        messages.append(chat(turn.completion.message))
        weights += [0.0] * (len(messages) - 1 - len(weights))
        weights.append(float(learn))
        messages += (chat(observation.as_message()) for observation in turn.observations)
    used = max((i + 1 for i, weight in enumerate(weights) if weight), default=0)
    return tuple(messages[:used]), tuple(weights[:used])
