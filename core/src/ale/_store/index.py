"""What is on disk, small enough to keep in memory for a long run."""

from collections.abc import Iterable, Iterator

from ale.types import BatchStatistics
from ale.types._record import record

SUCCESS = 1.0
"""A reward of 1: every criterion holds."""

Key = tuple[int, str, int]
"""Step, task id and rollout: what an episode is, whatever happens to it."""


@record
class StoredEpisode:
    """The few facts of an episode that plans and statistics need; the rest stays on disk."""

    id: str
    task_id: str
    step: int
    rollout: int
    reward: float | None
    schema: int = 1

    @property
    def key(self) -> Key:
        """What it is."""
        return (self.step, self.task_id, self.rollout)


class Index:
    """Which episodes are on disk, and where."""

    def __init__(self) -> None:
        self._rows: dict[Key, tuple[int, float | None]] = {}

    def add(self, episode: StoredEpisode, offset: int) -> None:
        """Note one."""
        self._rows[episode.key] = (offset, episode.reward)

    def __contains__(self, key: Key) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def rewards(self, step: int | None = None) -> Iterator[float]:
        """Of the graded episodes (of one step)."""
        for (of, _, _), (_, reward) in self._rows.items():
            if reward is not None and step in (None, of):
                yield reward

    def steps(self) -> list[int]:
        """Those of which there are episodes."""
        return sorted({step for step, _, _ in self._rows})

    def statistics(self, step: int) -> BatchStatistics:
        """Of the graded episodes of one step."""
        return batch_statistics(self.rewards(step))

    def groups(self, step: int) -> Iterator[tuple[str, list[int]]]:
        """Each task of a step with the offsets of its graded episodes, by rollout."""
        found: dict[str, list[tuple[int, int]]] = {}
        for (of, task_id, rollout), (offset, reward) in self._rows.items():
            if of == step and reward is not None:
                found.setdefault(task_id, []).append((rollout, offset))
        for task_id in sorted(found):
            yield task_id, [offset for _, offset in sorted(found[task_id])]


def batch_statistics(rewards: Iterable[float]) -> BatchStatistics:
    """Number and mean; the mean of none is 0."""
    count, total = 0, 0.0
    for reward in rewards:
        count, total = count + 1, total + reward
    return BatchStatistics(n_episodes=count, mean_reward=total / count if count else 0.0)
