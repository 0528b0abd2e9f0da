"""Choose the tasks of a step by how often the policy has solved them lately."""

import random
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from attrs import define, field

from ale.protocols import Start
from ale.runs import SUCCESS
from ale.types import Episode, Task
from ale_starts.options import InitialOptions
from ale_starts.schemes import distinct, start_at


@define(eq=False)
class ByDifficulty:
    """Rollouts of some of the tasks that a step draws, each from the task's own beginning.

    A group whose rewards are all equal has no advantage, so tasks that always fail or always
    succeed cost rollouts and teach nothing. What is known of a task is a function of the episodes
    passed to `learn`, so a resumed run chooses the same.
    """

    _options: InitialOptions
    _seed: int
    _newest: dict[str, deque[bool]] = field(init=False)
    """Whether each task's newest rollouts have succeeded."""

    def __attrs_post_init__(self) -> None:
        length = self._options.newest
        self._newest = defaultdict(lambda: deque(maxlen=length))

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        """One start for each chosen task, in the order in which the step drew them."""
        known, wanted = distinct(tasks), self._options.groups or len(tasks)
        # A text gives the same seed everywhere; a tuple's hash would not.
        rng = random.Random(f"difficulty\x1f{self._seed}\x1f{step}")  # noqa: S311 - no secret
        rank = {task.id: (self._rank(task, rollouts, rng), rng.random()) for task in known}
        chosen = {*sorted(rank, key=lambda name: rank[name])[:wanted]}
        return [start_at(task, rollouts, 0, None) for task in known if task.id in chosen]

    def _rank(self, task: Task, rollouts: int, rng: random.Random) -> float:
        """Lower is better; equal ranks are in random order."""
        seen = self._newest.get(task.id, ())
        if self._options.choose == "band":
            return self._distance(sum(seen) / len(seen)) if seen else 0.0
        if self._options.choose == "thompson":
            won = sum(seen)
            rate = rng.betavariate(1 + won, 1 + len(seen) - won)
            return -differ(rate, rollouts)
        return 0.0

    def _distance(self, rate: float) -> float:
        """How far a rate is from the band."""
        return max(0.0, self._options.low - rate, rate - self._options.high)

    def learn(self, step: int, episodes: Iterable[Episode]) -> None:
        """Count the policy's own rollouts from the beginning of each task."""
        for episode in episodes:
            if not episode.start and episode.reward is not None:
                self._newest[episode.task_id].append(episode.reward == SUCCESS)


def differ(rate: float, rollouts: int) -> float:
    """Probability that some of a task's rollouts succeed and some fail, at this success rate.

    Args:
        rate: in [0, 1].
        rollouts: their number, at least 1.
    """
    return 1.0 - rate**rollouts - (1.0 - rate) ** rollouts
