"""``ale show credit``: compare credit schemes on the same stored episodes, chunk by chunk."""

from collections.abc import Iterator, Sequence

from ale.runs import Crediting, RunReader
from ale.text import counted, number, shorten, table
from ale.types import Credit, Rollout
from ale_look.inspect.calls import calls
from ale_look.inspect.overview import find_episode
from ale_look.inspect.recrediting import recredited


def compare_episode(run: RunReader, compared: Sequence[Crediting], wanted: str) -> str:
    """One episode, credited within its group.

    Raises:
        InputError: there is none.
    """
    found, _ = find_episode(run, wanted)
    if found.reward is None:
        return f"{found.id} is broken: it has no reward and so no credit"
    if found.split != "train":
        return f"{found.id} is of an evaluation: nothing learns from it, so it has no credit"
    step = run.index().learned_in(found)
    if step is None:
        return f"{found.id} is in no step: its group waits, or was dropped"
    group = recredited(run, compared, step=step, task_id=found.task_id)
    return next(
        chunk_table(each, credits) for each, credits in group if each.episode.id == found.id
    )


def compare_all(run: RunReader, compared: Sequence[Crediting], limit: int) -> Iterator[str]:
    """The first `limit` episodes, then a line per scheme over all of them."""
    sums = [_Sum(each.scheme_name) for each in compared]
    for shown, (rollout, credits) in enumerate(recredited(run, compared)):
        if shown < limit:
            yield chunk_table(rollout, credits) + "\n"
        for total, credit in zip(sums, credits, strict=True):
            total.add(credit)
    yield _sums_table(sums)


def chunk_table(rollout: Rollout, credits: Sequence[Credit]) -> str:
    """One episode: a line per chunk, a weight per scheme."""
    rows = [
        [
            str(chunk.index),
            chunk.kind,
            *(number(credit.weights[k], 4, sign=True) for credit in credits),
            shorten(_excerpt(rollout, k), 60),
        ]
        for k, chunk in enumerate(rollout.chunks)
    ]
    header = ["chunk", "kind", *(credit.scheme for credit in credits), "what it did"]
    right = (0, *range(2, 2 + len(credits)))
    reward = rollout.episode.reward
    assert reward is not None  # only graded episodes are credited
    title = f"{rollout.episode.id}: reward {number(reward)}, {counted(len(rows), 'chunk')}"
    notes = [f"  {credit.scheme}: {credit.skipped}" for credit in credits if credit.skipped]
    return "\n".join([title, *notes, table(header, rows, right)])


def _excerpt(rollout: Rollout, k: int) -> str:
    parts: list[str] = []
    for span in rollout.chunks[k].spans:
        turn = rollout.episode.trajectory.turns[span.turn]
        parts.append(turn.completion.message.content[slice(*span.text)])
        parts += [f"{call.name} {call.arguments or ''}".strip() for call in calls(turn, span)]
    return " ".join(filter(None, parts))


class _Sum:
    """Totals of one scheme over all episodes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.episodes = self.chunks = self.zero = self.skipped = 0
        self.absolute = 0.0

    def add(self, credit: Credit) -> None:
        self.episodes += 1
        self.chunks += len(credit.weights)
        self.zero += credit.weights.count(0.0)
        self.skipped += credit.skipped is not None
        self.absolute += sum(map(abs, credit.weights))


def _sums_table(sums: Sequence[_Sum]) -> str:
    rows = [
        [
            total.name,
            str(total.episodes),
            str(total.chunks),
            number(total.absolute / total.chunks, 4) if total.chunks else "-",
            f"{100 * total.zero / total.chunks:.1f}%" if total.chunks else "-",
            str(total.skipped),
        ]
        for total in sums
    ]
    header = ["scheme", "episodes", "chunks", "mean |weight|", "zero weights", "skipped episodes"]
    return table(header, rows, right=tuple(range(1, 6)))
