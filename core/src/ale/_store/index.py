"""An index of the episodes on disk, small enough for the memory even in a long run."""

import statistics
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from ale._store.groups import GroupKey, Groups
from ale._store.lines import Lines
from ale.attempts import mean
from ale.types import BatchStatistics, Episode, Split
from ale.types._record import record

SUCCESS = 1.0
"""A reward of 1: every criterion holds."""

Key = tuple[Split, int, str, str, int, float | None]
"""Split, step, task id, start, rollout and temperature: identifies an episode."""
_Row = tuple[int, float | None]
"""Offset and reward."""


@record
class _Metadata:
    """The fields of `Episode.metadata` that the index needs."""

    damaged: str | None = None


@record
class _Score:
    """The fields of a `Score` that the index needs."""

    timed_out: bool = False
    passed: bool = False
    contested: float | None = None


@record
class StoredEpisode:
    """The fields of an episode that planning and statistics need."""

    id: str
    task_id: str
    step: int
    rollout: int
    reward: float | None
    split: Split = "train"
    start: str = ""
    temperature: float | None = None
    schema: int = 1
    scores: tuple[_Score, ...] = ()
    metadata: _Metadata = _Metadata()

    @property
    def damaged(self) -> str | None:
        """As `Episode.damaged`."""
        return self.metadata.damaged

    @property
    def timed_out(self) -> bool:
        """As `Episode.timed_out`."""
        return any(score.timed_out for score in self.scores)

    @property
    def contested(self) -> bool:
        """As `Episode.contested`."""
        return any(score.contested is not None for score in self.scores)


def _key_of(episode: StoredEpisode | Episode) -> Key:
    part = episode.split, episode.step
    return (*part, episode.task_id, episode.start, episode.rollout, episode.temperature)


class Episodes(Lines[Episode]):
    """A run's episodes. Iteration gives each once: of several lines of one, the last counts."""

    def __iter__(self) -> Iterator[Episode]:
        """As `once`, without the offsets."""
        for _, episode in self.once():
            yield episode

    def __getitem__(self, number: int) -> Episode:
        """The episode at a 0-based place in the order of iteration; -1 is the last."""
        heads = Lines(self.path, StoredEpisode).with_offsets()
        last = {_key_of(head): offset for offset, head in heads}
        return self.at(sorted(last.values())[number])

    def once(self) -> Iterator[tuple[int, Episode]]:
        """Each episode with the offset of its line, as an `Index` counts them."""
        # A damaged line is reported when it is reached, below.
        heads = Lines(self.path, StoredEpisode, lambda _: None)
        last = {_key_of(head): offset for offset, head in heads.with_offsets()}
        for offset, episode in self.with_offsets():
            if last.get(_key_of(episode), offset) <= offset:  # the file may have grown since
                yield offset, episode


class Index:
    """Which episodes are on disk, and where. A query for one step scans that step alone.

    A training step's episodes are those that it learns from. In a stream that is what
    ``groups.jsonl`` says; otherwise those that were drawn for it.
    """

    def __init__(self, groups: Groups | None = None) -> None:
        """Start without episodes.

        Args:
            groups: those of a stream; None for a run whose steps learn from what they have drawn.
        """
        self.stream = groups
        self.repeated = 0
        """Lines whose episode another line, further down, has again: that one counts."""
        self._rows: dict[tuple[Split, int], dict[Key, _Row]] = {}
        self._again: set[Key] = set()
        """Broken episodes that are to be sampled again, and were not yet."""
        self._damaged: set[Key] = set()
        self._timed_out: set[Key] = set()
        self._contested: set[Key] = set()

    def add(self, episode: StoredEpisode | Episode, offset: int) -> None:
        """Add an episode, whose line starts at `offset`."""
        key, rows = _key_of(episode), self._rows.setdefault((episode.split, episode.step), {})
        self.repeated += key in rows
        self._again.discard(key)
        rows[key] = (offset, episode.reward)
        graded = episode.reward is not None
        for found, is_one in (
            (self._damaged, episode.damaged is not None),
            (self._timed_out, episode.timed_out),
            (self._contested, episode.contested),
        ):
            (found.add if graded and is_one else found.discard)(key)

    def __contains__(self, key: Key) -> bool:
        return key in self._rows.get(key[:2], {}) and key not in self._again

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def broke(self, key: Key) -> bool:
        """Is this episode stored, without a reward?"""
        _, reward = self._rows.get(key[:2], {}).get(key, (0, 0.0))
        return reward is None

    def forget_broken(self) -> set[int]:
        """Count the broken episodes as missing, until they are added again; their steps."""
        self._again = {key for key, (_, reward) in self._of(None, None) if reward is None}
        return {step for _, step, *_ in self._again}

    def missing(self) -> int:
        """Number of broken episodes that are still to be sampled again."""
        return len(self._again)

    def _of(self, step: int | None, split: Split | None) -> Iterator[tuple[Key, _Row]]:
        """The rows of one step, of one split, or of all."""
        for part in (split,) if split is not None else _SPLITS:
            if step is None:
                for (of, _), rows in self._rows.items():
                    if of == part:
                        yield from rows.items()
            elif part == "train" and self.stream is not None:
                yield from self._of_groups({*self.stream.batches.get(step, ())})
            else:
                yield from self._rows.get((part, step), {}).items()

    def _of_groups(self, groups: Set[GroupKey]) -> Iterator[tuple[Key, _Row]]:
        for drawn in sorted({group.step for group in groups}):
            for key, row in self._rows.get(("train", drawn), {}).items():
                if _group_of(key) in groups:
                    yield key, row

    def rewards(
        self, step: int | None = None, split: Split = "train", *, expert_guided: bool = False
    ) -> Iterator[float]:
        """Rewards of the graded episodes (of one step).

        Args:
            expert_guided: only those that an expert guided, which the default leaves out.
        """
        for (_, _, _, start, *_), (_, reward) in self._of(step, split):
            if reward is not None and bool(start) == expert_guided:
                yield reward

    def evaluation(self, step: int) -> Mapping[float | None, list[float | None]]:
        """The rewards of an evaluation by temperature, in the order of sampling; None is broken."""
        return {each: [*found.values()] for each, found in self.evaluated(step).items()}

    def evaluated(self, step: int) -> Mapping[float | None, Mapping[tuple[str, int], float | None]]:
        """The rewards of an evaluation by temperature, and by task and rollout; None is broken."""
        found: dict[float | None, dict[tuple[str, int], float | None]] = {}
        for (_, _, task_id, _, rollout, temperature), (_, reward) in self._of(step, "evaluation"):
            found.setdefault(temperature, {})[task_id, rollout] = reward
        return found

    def attempts(self, step: int) -> Mapping[float | None, Mapping[str, tuple[int, int]]]:
        """Graded attempts of an evaluation, and successful ones, by temperature and task."""
        found: dict[float | None, dict[str, tuple[int, int]]] = {}
        for (_, _, task_id, *_, temperature), (_, reward) in self._of(step, "evaluation"):
            _count(found.setdefault(temperature, {}), task_id, reward)
        return found

    def training_attempts(self) -> Mapping[str, tuple[int, int]]:
        """The same of training's episodes by task, without those that an expert guided."""
        found: dict[str, tuple[int, int]] = {}
        for (_, _, task_id, start, *_), (_, reward) in self._of(None, "train"):
            if not start:
                _count(found, task_id, reward)
        return found

    def expert_guided(self) -> int:
        """Number of graded training episodes that an expert guided."""
        return sum(1 for _ in self.rewards(expert_guided=True))

    def totals(self) -> dict[str, Any]:
        """Numbers for the manifest of a run that ended, over training episodes without an expert.

        `n_broken` is over all episodes.
        """
        rewards = list(self.rewards())
        return {
            "n_graded": len(rewards),
            "n_broken": self.broken(),
            "n_succeeded": rewards.count(SUCCESS),
            "mean_reward": mean(rewards) if rewards else None,
        }

    def count(self, split: Split) -> int:
        """Number of episodes, broken ones included."""
        return sum(1 for _ in self._of(None, split))

    def beyond(self, rollouts: int) -> int:
        """Number of training episodes with a rollout of this number or above."""
        return sum(key[4] >= rollouts for key, _ in self._of(None, "train"))

    def broken(self, step: int | None = None, split: Split | None = None) -> int:
        """Number of broken episodes (of one step, of one split)."""
        return sum(reward is None for _, (_, reward) in self._of(step, split))

    def timed_out(self) -> int:
        """Number of graded episodes with a criterion that ran out of time."""
        return len(self._timed_out)

    def damaged(self) -> int:
        """Number of graded episodes whose agent damaged its sandbox."""
        return len(self._damaged)

    def contested(self) -> int:
        """Number of graded episodes with a verdict that is contested, whatever it counts as."""
        return len(self._contested)

    def broken_offsets(self) -> list[int]:
        """Where the episodes without a reward are."""
        return sorted(offset for _, (offset, reward) in self._of(None, None) if reward is None)

    def group_rewards(self, step: int) -> dict[GroupKey, list[float]]:
        """The rewards of each group of a step."""
        found: dict[GroupKey, list[float]] = {}
        for key, (_, reward) in self._of(step, "train"):
            if reward is not None:
                found.setdefault(_group_of(key), []).append(reward)
        return found

    def rewards_of(self, group: GroupKey) -> list[float]:
        """The rewards of a group's graded episodes, whatever step learns from it."""
        return [reward for _, (_, reward) in self._of_groups({group}) if reward is not None]

    def group_keys(self, step: int) -> set[GroupKey]:
        """The groups of a step, broken ones included."""
        return {_group_of(key) for key, _ in self._of(step, "train")}

    def steps(self, split: Split = "train") -> list[int]:
        """Steps that have episodes."""
        if split == "train" and self.stream is not None:
            return sorted(self.stream.batches)
        return sorted(step for part, step in self._rows if part == split)

    def learned_in(self, episode: StoredEpisode | Episode) -> int | None:
        """The step that learned from an episode, or has it to learn from: `Episode.step`, but in a
        stream, where it is None for a group that waits or was dropped.
        """
        if self.stream is None or episode.split != "train":
            return episode.step
        return self.stream.learned_in(GroupKey(episode.step, episode.task_id, episode.start))

    def last_drawn(self) -> int:
        """The last step for which a training episode was drawn, or -1."""
        return max((step for part, step in self._rows if part == "train"), default=-1)

    def offsets(self, step: int) -> list[int]:
        """Offsets of a step's graded training episodes, by task, start and rollout."""
        return [offset for _, offsets in self.groups(step) for offset in offsets]

    def statistics(self, step: int) -> BatchStatistics:
        """Statistics of the graded episodes of one step."""
        rewards = [*self.rewards(step), *self.rewards(step, expert_guided=True)]
        # Rounded once: equal rewards have exactly this mean, and the order does not matter.
        mean_reward = statistics.mean(rewards) if rewards else 0.0
        return BatchStatistics(n_episodes=len(rewards), mean_reward=mean_reward)

    def groups(self, step: int) -> Iterator[tuple[str, list[int]]]:
        """Each task of a step with the offsets of its graded episodes, by rollout.

        Each start is a group of its own: returns from different starts can't be compared.
        """
        found: dict[GroupKey, list[tuple[int, int]]] = {}
        for key, (offset, reward) in self._of(step, "train"):
            if reward is not None:
                found.setdefault(_group_of(key), []).append((key[4], offset))
        for group in sorted(found, key=lambda each: (each.task_id, each.start, each.step)):
            yield group.task_id, [offset for _, offset in sorted(found[group])]


_SPLITS: Sequence[Split] = ("train", "evaluation")


def _count(found: dict[str, tuple[int, int]], task_id: str, reward: float | None) -> None:
    n, won = found.get(task_id, (0, 0))
    found[task_id] = (n + (reward is not None), won + (reward == SUCCESS))


def _group_of(key: Key) -> GroupKey:
    _, step, task_id, start, *_ = key
    return GroupKey(step, task_id, start)
