"""Contract kit for step scorers: one score or abstention per chunk, the same again, no harm.

```python
class TestMine(ScorerContract):
    @pytest.fixture
    def scorer(self) -> StepScorer:
        return Mine(MineOptions())
```
"""

import asyncio
import random
from collections.abc import Mapping, Sequence

import pytest

from ale._run.scoring import score_problem
from ale.protocols import ScoringContext, StepScorer
from ale.testing import builders
from ale.testing._marks import async_tests
from ale.testing.chunker import HOSTILE_TEXTS, random_trajectory
from ale.testing.credit import chunk_per_turn, rollout
from ale.types import Chunk, Episode, StepScore, Task, Trajectory


def scoring_context(
    episode: Episode,
    task: Task | None = None,
    earlier: Mapping[str, Sequence[StepScore]] | None = None,
) -> ScoringContext:
    """The context in which an episode is scored; the task is one of its own unless given."""
    made = builders.task(task_id=episode.task_id) if task is None else task
    return ScoringContext(task=made, episode=episode, earlier=earlier or {})


@async_tests
class ScorerContract:
    """The contract of every step scorer. Override `scorer`, and `earlier` if it reads scores."""

    @pytest.fixture
    def scorer(self) -> StepScorer:
        """The scorer to test."""
        raise NotImplementedError("override the fixture 'scorer'")

    def earlier(self, chunks: Sequence[Chunk]) -> Mapping[str, Sequence[StepScore]]:
        """The scores of the scorers before it."""
        return {}

    async def _scored(
        self, scorer: StepScorer, trajectory: Trajectory, number: int = 0
    ) -> tuple[StepScore, ...]:
        one = rollout(0.5, trajectory, number)
        context = scoring_context(one.episode, earlier=self.earlier(one.chunks))
        scores = tuple(await scorer.score(context, one.chunks))
        assert score_problem(scores, one.chunks) is None
        return scores

    @pytest.mark.parametrize("seed", range(10))
    async def test_every_chunk_has_a_value_or_a_reason(self, scorer: StepScorer, seed: int) -> None:
        await self._scored(scorer, random_trajectory(random.Random(seed)))

    async def test_an_episode_without_turns_has_no_scores(self, scorer: StepScorer) -> None:
        assert await self._scored(scorer, Trajectory()) == ()

    @pytest.mark.parametrize("number", range(len(HOSTILE_TEXTS)))
    async def test_a_hostile_text_is_scored(self, scorer: StepScorer, number: int) -> None:
        turn = builders.turn(HOSTILE_TEXTS[number], calls=[("bash", "{no json")])
        await self._scored(scorer, builders.trajectory(turn))

    async def test_scoring_again_gives_the_same(self, scorer: StepScorer) -> None:
        trajectory = random_trajectory(random.Random(0))
        assert await self._scored(scorer, trajectory) == await self._scored(scorer, trajectory)

    async def test_episodes_at_once_do_not_mix(self, scorer: StepScorer) -> None:
        made = [random_trajectory(random.Random(seed)) for seed in range(6)]
        alone = [await self._scored(scorer, each, n) for n, each in enumerate(made)]
        both = await asyncio.gather(*(self._scored(scorer, each, n) for n, each in enumerate(made)))
        assert both == alone

    async def test_scoring_leaves_the_episode_as_it_was(self, scorer: StepScorer) -> None:
        def made() -> Trajectory:
            return random_trajectory(random.Random(7))

        trajectory = made()
        await self._scored(scorer, trajectory)
        assert trajectory == made()
        assert chunk_per_turn(trajectory) == chunk_per_turn(made())
