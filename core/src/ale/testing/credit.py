"""Contract kit for credit schemes, and random groups as their input."""

import math
import random
from collections.abc import Sequence

import pytest

from ale.protocols import ComparesRollouts, CreditScheme, CriticCredit
from ale.testing import builders
from ale.testing.chunker import random_trajectory
from ale.testing.fakes import FakeChunker
from ale.types import Chunk, Credit, Episode, Group, Rollout, Trajectory
from ale.values import Agreement, EpisodeValues, Measured, Values, compare, valued

_REWARDS = (0.0, 0.0, 1.0, 1.0, 1.0, 0.5, 1 / 3, 0.1)


def chunk_per_turn(trajectory: Trajectory) -> tuple[Chunk, ...]:
    """The simplest chunking: each turn is a chunk."""
    return tuple(FakeChunker().split(trajectory))


def rollout(reward: float, trajectory: Trajectory, number: int = 0) -> Rollout:
    """A graded episode of this trajectory, one chunk per turn."""
    episode = Episode(
        id=f"0-demo-{number}",
        task_id="demo",
        rollout=number,
        reward=reward,
        trajectory=trajectory,
    )
    return Rollout(episode=episode, chunks=chunk_per_turn(trajectory))


def group_of(rollouts: Sequence[Rollout], mean_reward: float | None = None) -> Group:
    """A group of these rollouts; the batch's mean reward is theirs unless given."""
    pairs = ((one.episode, one.chunks) for one in rollouts)
    return builders.group(*pairs, mean_reward=mean_reward)


def random_group(rng: random.Random, n_rollouts: int | None = None) -> Group:
    """One to eight rollouts of one to eight chunks, some with failed calls."""
    n = rng.randint(1, 8) if n_rollouts is None else n_rollouts
    rollouts = [rollout(rng.choice(_REWARDS), random_trajectory(rng), i) for i in range(n)]
    return group_of(rollouts, mean_reward=rng.random())


def assert_credits(group: Group, credits: Sequence[Credit]) -> None:
    """One credit per rollout, in order, with a finite number of each kind for every chunk."""
    assert [credit.episode_id for credit in credits] == [
        one.episode.id for one in group.rollouts
    ], "not one credit per rollout, in the order of the group"
    for one, credit in zip(group.rollouts, credits, strict=True):
        assert type(credit) is Credit
        assert credit.scheme, "the credit does not name its scheme"
        for name in ("rewards", "returns", "weights"):
            values = getattr(credit, name)
            assert type(values) is tuple, f"{name} is not a tuple"
            assert len(values) == len(one.chunks), f"{name}: not one per chunk"
            assert all(type(value) in (float, int) for value in values), f"{name}: not numbers"
            assert all(math.isfinite(value) for value in values), f"{name}: not finite"
        if credit.skipped is not None:
            assert credit.skipped, "the reason for skipping is empty"
            assert not any(credit.weights), "skipped, but with weights"


def agreement(scheme: CreditScheme, *, rollouts: int = 32, seed: int = 0) -> Agreement:
    """How well the weights of a scheme agree with the worth of chunks, where it is known.

    The episodes are of a policy that makes three choices and then finishes; a task is done if two
    of the choices are right. Nothing is sampled but counts, so this takes milliseconds.
    Credit of whole episodes alone puts half of the pairs of chunks in the right order.

    Args:
        scheme: it gets groups of eight rollouts, a chunk for each turn.
        rollouts: from each state.
        seed: of choices and counts.

    Returns:
        The scores; see `ale.values.Agreement`.
    """
    groups, values = known_worth(rollouts=rollouts, seed=seed)
    name = type(scheme).__name__
    pairs = [
        (one, [credit])
        for group in groups
        for one, credit in zip(group.rollouts, scheme.assign(group), strict=True)
    ]
    return compare(values, valued(values, pairs, [name])).schemes[0]


_CHOICES, _RIGHT = 3, 2 / 3


def _value(choices: Sequence[int], task: int) -> float:
    """V after some choices: 0 has the probability 2/3; a task's bits are its right choices."""
    if len(choices) == _CHOICES:
        return float(sum(c == (task >> k) % 2 for k, c in enumerate(choices)) >= 2)
    after = [_value([*choices, choice], task) for choice in (0, 1)]
    return _RIGHT * after[0] + (1 - _RIGHT) * after[1]


def known_worth(*, rollouts: int, seed: int) -> tuple[list[Group], Values]:
    """Eight groups of eight episodes, and counts of successes from each of their states."""
    chooses, rng = random.Random(f"choices {seed}"), random.Random(f"counts {seed}")
    counts: dict[tuple[int, tuple[int, ...]], int] = {}
    groups, episodes = [], {}
    for task in range(8):
        made = []
        for number in range(8):
            choices = tuple(int(chooses.random() > _RIGHT) for _ in range(_CHOICES))
            prefixes = [choices[:k] for k in range(_CHOICES + 1)]
            for prefix in prefixes:
                v = _value(prefix, task)
                won = sum(rng.random() < v for _ in range(rollouts))
                counts.setdefault((task, prefix), won)
            reward = _value(choices, task)
            turns = [builders.turn(str(choice)) for choice in (*choices, "finish")]
            episode = builders.episode(
                reward, *turns, task_id=f"t{task}", rollout=number, episode_id=f"0-t{task}-{number}"
            )
            made.append((episode, chunk_per_turn(episode.trajectory)))
            episodes[episode.id] = EpisodeValues(
                episode_id=episode.id,
                task_id=episode.task_id,
                states=(*("s" + "".join(map(str, p)) for p in prefixes), f"end{number}"),
                successes=(*(counts[task, p] for p in prefixes), int(reward)),
                trials=(*(rollouts,) * (_CHOICES + 1), 1),
            )
        groups.append(builders.group(*made))
    measured = Measured(rollouts=rollouts, policy="known", tokenizer="", sandbox="")
    return groups, Values(measured=measured, episodes=episodes)


class CreditContract:
    """The contract of every credit scheme. Override `scheme`."""

    @pytest.fixture
    def scheme(self) -> CreditScheme:
        """The scheme to test."""
        raise NotImplementedError("override the fixture 'scheme'")

    @pytest.mark.parametrize("seed", range(40))
    def test_every_chunk_of_every_rollout_is_credited(
        self, scheme: CreditScheme, seed: int
    ) -> None:
        group = random_group(random.Random(seed))
        assert_credits(group, scheme.assign(group))

    def test_credit_for_a_critic_says_how_to_complete_it(self, scheme: CreditScheme) -> None:
        credits = scheme.assign(random_group(random.Random(0)))
        for_critic = isinstance(scheme, CriticCredit)
        assert all((credit.gae is not None) == for_critic for credit in credits)

    def test_a_group_without_rollouts_has_no_credits(self, scheme: CreditScheme) -> None:
        assert len(scheme.assign(group_of([]))) == 0

    @pytest.mark.parametrize("reward", [0.0, 0.5, 1.0])
    def test_a_group_of_one_is_credited(self, scheme: CreditScheme, reward: float) -> None:
        trajectory = random_trajectory(random.Random(1))
        group = group_of([rollout(reward, trajectory)])
        credits = scheme.assign(group)
        assert_credits(group, credits)
        if isinstance(scheme, ComparesRollouts):
            assert not any(credits[0].weights), "compares rollouts, but credits one alone"

    @pytest.mark.parametrize("reward", [0.0, 0.1, 1.0])
    def test_a_group_of_equal_rewards_is_credited(
        self, scheme: CreditScheme, reward: float
    ) -> None:
        rng = random.Random(2)
        group = group_of([rollout(reward, random_trajectory(rng), i) for i in range(7)])
        assert_credits(group, scheme.assign(group))

    def test_rewards_that_differ_by_a_rounding_error_are_credited(
        self, scheme: CreditScheme
    ) -> None:
        trajectory = random_trajectory(random.Random(3))
        group = group_of([rollout(0.1 + 0.2, trajectory, 0), rollout(0.3, trajectory, 1)])
        assert_credits(group, scheme.assign(group))

    def test_an_episode_without_chunks_is_credited(self, scheme: CreditScheme) -> None:
        other = random_trajectory(random.Random(4))
        group = group_of([rollout(0.0, Trajectory(), 0), rollout(1.0, other, 1)])
        credits = scheme.assign(group)
        assert_credits(group, credits)
        assert credits[0].weights == ()

    @pytest.mark.parametrize("reward", [0.0, 1.0])
    def test_a_very_long_episode_is_credited(self, scheme: CreditScheme, reward: float) -> None:
        turns = (builders.turn("a", calls=[("bash", "{}")], errors=["exit code 1"]),) * 20_000
        short = rollout(0.5, random_trajectory(random.Random(5)), 1)
        group = group_of([rollout(reward, Trajectory(turns=turns), 0), short])
        assert_credits(group, scheme.assign(group))

    @pytest.mark.parametrize("seed", range(10))
    def test_the_order_of_the_rollouts_changes_no_credit(
        self, scheme: CreditScheme, seed: int
    ) -> None:
        rng = random.Random(seed)
        group = random_group(rng, n_rollouts=6)
        shuffled = list(group.rollouts)
        rng.shuffle(shuffled)
        before = {credit.episode_id: credit for credit in scheme.assign(group)}
        other = group_of(shuffled, mean_reward=group.batch.mean_reward)
        for credit in scheme.assign(other):
            expected = before[credit.episode_id]
            assert credit.skipped == expected.skipped
            for name in ("rewards", "returns", "weights"):
                assert getattr(credit, name) == pytest.approx(
                    getattr(expected, name), rel=1e-9, abs=1e-9
                )

    def test_assigning_again_gives_the_same_whatever_came_between(
        self, scheme: CreditScheme
    ) -> None:
        groups = self._groups()
        first = [tuple(scheme.assign(group)) for group in groups]
        again = [tuple(scheme.assign(group)) for group in reversed(groups)]
        assert first == list(reversed(again))

    def test_assigning_leaves_the_group_as_it_was(self, scheme: CreditScheme) -> None:
        for group, same in zip(self._groups(), self._groups(), strict=True):
            scheme.assign(group)
            assert group == same

    def _groups(self) -> list[Group]:
        return [random_group(random.Random(seed)) for seed in range(100, 110)]
