"""Score the chunks of graded episodes, and find stored scores again."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

from attrs import frozen

from ale._run.crediting import errors_named, list_of, split
from ale._store.codec import invalid_record
from ale._store.scores import StoredScores, located
from ale.errors import PluginError
from ale.protocols import Chunker, ScoringContext, StepScorer
from ale.types import Chunk, Episode, ScoredEpisode, StepScore, Task


@frozen(kw_only=True)
class Scoring:
    """The scorers of a run in their order, each with its name, and the chunker that they need."""

    scorers: Sequence[tuple[str, StepScorer]]
    chunker: Chunker
    chunker_name: str

    async def score(
        self,
        episodes: Iterable[tuple[Task, Episode]],
        stored: StoredScores,
        concurrency: int,
        write: Callable[[ScoredEpisode], object],
    ) -> None:
        """Run the scorers that have not scored an episode yet.

        Args:
            episodes: read one by one.
            stored: what was scored before.
            concurrency: maximum number of episodes that are scored at the same time.
            write: is given each line as soon as a scorer is done with an episode.

        Raises:
            PluginError: a scorer broke its contract.
        """
        waiting = iter(episodes)

        async def work() -> None:
            for task, episode in waiting:
                async for row in self._rows(task, episode, stored.of(episode)):
                    write(row)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(work())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _rows(
        self, task: Task, episode: Episode, stored: Sequence[ScoredEpisode]
    ) -> AsyncIterator[ScoredEpisode]:
        chunks = split(self.chunker, self.chunker_name, episode).chunks
        found = {**located(stored, chunks)}
        done = {row.scorer for row in stored}
        for name, scorer in self.scorers:
            if name in done:
                continue
            context = ScoringContext(task=task, episode=episode, earlier=dict(found))
            part = f"scorer '{name}'"
            with errors_named(part, episode.id):
                scores = list_of(StepScore, await scorer.score(context, chunks), part)
            if problem := score_problem(scores, chunks):
                raise PluginError(f"{part} broke its contract on {episode.id}: {problem}")
            row = ScoredEpisode(
                episode_id=episode.id,
                started_at=episode.started_at,
                scorer=name,
                chunks=chunks,
                scores=scores,
            )
            if problem := invalid_record(row):
                raise PluginError(f"the scores of {part} can't be stored: {problem}")
            found[name] = scores
            yield row


def score_problem(scores: Sequence[StepScore], chunks: Sequence[Chunk]) -> str | None:
    """Why these are no scores of the chunks, in one line; None if they are."""
    return next(_problems(scores, chunks), None)


def _problems(scores: Sequence[StepScore], chunks: Sequence[Chunk]) -> Iterator[str]:
    if len(scores) != len(chunks):
        yield f"{len(scores)} scores for {len(chunks)} chunks"
    for number, score in enumerate(scores):
        value = score.value
        if value is None:
            if not score.abstained:
                yield f"score {number} has neither a value nor a reason for its abstention"
        elif score.abstained:
            yield f"score {number} has a value, and a reason for an abstention"
        elif type(value) not in (int, float) or not (math.isfinite(value) and 0 <= value <= 1):
            yield f"score {number} is {value!r}, expected a number from 0 to 1"
