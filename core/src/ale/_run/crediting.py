"""Split stored episodes into chunks and assign their credit, one group at a time."""

import reprlib
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from attrs import frozen

from ale._store import RunReader
from ale._store.codec import invalid_record
from ale._store.index import Index
from ale._store.scores import StoredScores, located
from ale.errors import AleError, PluginError
from ale.protocols import Chunker, CreditScheme
from ale.types import (
    Chunk,
    Credit,
    CreditedEpisode,
    CreditedGroup,
    Episode,
    Group,
    Rollout,
    ScoredEpisode,
    partition_problem,
    replace,
)

T = TypeVar("T")

NOT_CREDITED = "no turn of the episode gets credit"


@frozen(kw_only=True)
class Crediting:
    """A chunker and a credit scheme, with their names in the config."""

    chunker: Chunker
    chunker_name: str
    scheme: CreditScheme
    scheme_name: str

    def groups(
        self,
        run: RunReader,
        index: Index,
        step: int,
        task_id: str | None = None,
        *,
        regraded: bool = True,
    ) -> Iterator[CreditedGroup]:
        """Groups of a step (or of one of its tasks) with their credits, one in memory at a time.

        Args:
            regraded: with the scores of `ale regrade`, which replace those of the run.

        Raises:
            ChunkError: a trajectory lacks what the chunker needs.
            PluginError: the scheme broke its contract.
        """
        statistics = index.statistics(step)
        stored = StoredScores(run.step_scores(step, regraded=regraded))
        for group_task_id, offsets in index.groups(step):
            if task_id not in (None, group_task_id):
                continue
            episodes = [run.episodes.at(offset) for offset in offsets]
            rollouts = tuple(self.split(episode) for episode in episodes)
            rollouts = tuple(_scored(each, stored.of(each.episode)) for each in rollouts)
            yield self.assign(Group(task_id=group_task_id, rollouts=rollouts, batch=statistics))

    def split(self, episode: Episode) -> Rollout:
        """One episode and its chunks, checked."""
        return split(self.chunker, self.chunker_name, episode)

    def assign(self, group: Group) -> CreditedGroup:
        """One group's credits, checked to be one for each rollout and chunk, and finite."""
        creditable = replace(group, rollouts=tuple(map(_creditable, group.rollouts)))
        part = f"credit scheme '{self.scheme_name}'"
        with errors_named(part, f"task {group.task_id}"):
            assigned = list_of(Credit, self.scheme.assign(creditable), part)
            try:
                deque(CreditedGroup(group=creditable, credits=assigned).pairs(), maxlen=0)
            except AleError as error:
                raise PluginError(f"what {part} returned is wrong: {error}") from error
        named = tuple(
            replace(_for_all_chunks(credit, rollout), scheme=self.scheme_name)
            for credit, rollout in zip(assigned, group.rollouts, strict=True)
        )
        return CreditedGroup(group=group, credits=named)

    def rows(self, credited: CreditedGroup, step: int) -> Iterator[CreditedEpisode]:
        """The lines of a step's credits file for one group.

        Raises:
            PluginError: a chunk or a credit can't be stored.
        """
        for rollout, credit in zip(credited.group.rollouts, credited.credits, strict=True):
            row = CreditedEpisode(
                episode_id=rollout.episode.id,
                task_id=rollout.episode.task_id,
                step=step,
                chunker=self.chunker_name,
                chunks=rollout.chunks,
                credit=credit,
            )
            if problem := invalid_record(row):
                raise PluginError(
                    f"chunker '{self.chunker_name}' or credit scheme '{self.scheme_name}' returned "
                    f"a value that can't be stored for {rollout.episode.id}: {problem}"
                )
            yield row


def split(chunker: Chunker, name: str, episode: Episode) -> Rollout:
    """One episode and its chunks, checked to be a partition.

    Raises:
        ChunkError: the trajectory lacks what the chunker needs.
        PluginError: the chunker broke its contract.
    """
    part = f"chunker '{name}'"
    with errors_named(part, episode.id):
        chunks = list_of(Chunk, chunker.split(episode.trajectory), part)
        # Else a part of the episode would have no weight, or twice its own, without a word.
        if problem := partition_problem(episode.trajectory, chunks):
            raise PluginError(f"{part}: the chunks of {episode.id} are no partition: {problem}")
        if [chunk.index for chunk in chunks] != list(range(len(chunks))):
            raise PluginError(f"{part}: the chunks of {episode.id} are not numbered from 0")
    return Rollout(episode=episode, chunks=chunks)


def list_of(kind: type[T], returned: Iterable[T], part: str) -> tuple[T, ...]:
    """The return value of a plugin, checked to be a list of records."""
    if isinstance(returned, Iterable):
        items = tuple(returned)
        if all(isinstance(each, kind) for each in items):
            return items
    raise PluginError(
        f"{part} returned {reprlib.repr(returned)}, expected a list of {kind.__name__}"
    )


def _scored(rollout: Rollout, stored: Sequence[ScoredEpisode]) -> Rollout:
    """The rollout with the stored scores of its chunks."""
    return replace(rollout, scores=located(stored, rollout.chunks)) if stored else rollout


def is_credited(chunk: Chunk, episode: Episode) -> bool:
    """Has the chunk a turn with `credited` set?"""
    turns = [episode.trajectory.turns[span.turn] for span in chunk.spans]
    return not turns or any(turn.credited for turn in turns)


def _creditable(rollout: Rollout) -> Rollout:
    """The rollout without the chunks whose turns all have `credited` unset; the rest renumbered."""
    episode = rollout.episode
    if all(turn.credited for turn in episode.trajectory.turns):
        return rollout
    credited = [is_credited(chunk, episode) for chunk in rollout.chunks]
    chunks = [chunk for chunk, kept in zip(rollout.chunks, credited, strict=True) if kept]
    scores = {
        name: tuple(score for score, kept in zip(each, credited, strict=True) if kept)
        for name, each in rollout.scores.items()
    }
    numbered = tuple(replace(chunk, index=i) for i, chunk in enumerate(chunks))
    return replace(rollout, chunks=numbered, scores=scores)


def _for_all_chunks(credit: Credit, rollout: Rollout) -> Credit:
    """The credit for all chunks: that of the creditable ones, and zeros for the others."""
    credited = [is_credited(chunk, rollout.episode) for chunk in rollout.chunks]
    if all(credited):
        return credit
    skipped = credit.skipped if any(credited) else NOT_CREDITED

    def spread(numbers: Sequence[float]) -> tuple[float, ...]:
        left = iter(numbers)
        return tuple(next(left) if each else 0.0 for each in credited)

    return replace(
        credit,
        rewards=spread(credit.rewards),
        returns=spread(credit.returns),
        weights=spread(credit.weights),
        skipped=skipped,
    )


@contextmanager
def errors_named(part: str, subject: str) -> Iterator[None]:
    """Turn an exception of a plugin into a `PluginError` that names it; keep `AleError`s."""
    try:
        yield
    except AleError:
        raise
    except Exception as error:
        trace = "".join(traceback.format_exception(error))
        raise PluginError(f"{part} failed on {subject}:\n{trace}") from error
