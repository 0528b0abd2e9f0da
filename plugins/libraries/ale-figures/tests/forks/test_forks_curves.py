"""Success along an expert's episode, and the test that marks a fork."""

import itertools
import math
import random
from collections.abc import Iterator, Sequence

import pytest
from attrs import evolve

from ale.testing.builders import episode, turn
from ale.types import Episode, Turn
from ale_figures.forks import Place, curves, fisher, place_named

COMMANDS = ("ls", "cd work", "make", "finish")


def forced(number: int) -> Turn:
    answer = turn(f"say {COMMANDS[number]}")
    return evolve(answer, completion=evolve(answer.completion, forced=True))


numbers = itertools.count()


def rollouts(task_id: str, start: str, *rewards: float | None, step: int = 0) -> Iterator[Episode]:
    """Episodes from a start, as a run stores them."""
    place = place_named(start)
    begun = [forced(i) for i in range(place.p)] if place else []
    for rollout, reward in enumerate(rewards):
        made = episode(reward, *begun, turn("own"), task_id=task_id, rollout=rollout)
        yield evolve(made, id=f"e{next(numbers)}", start=start, step=step)


def won(successes: int, n: int) -> list[float]:
    return [1.0] * successes + [0.0] * (n - successes)


def test_a_name_says_where_it_is() -> None:
    assert Place(3, 7).name == "p3of7"
    assert place_named("p3of7") == Place(3, 7)
    assert place_named("p3of7.5d0f11") == Place(3, 7, "5d0f11")
    assert Place(3, 7, "5d0f11").name == "p3of7.5d0f11"
    assert Place(0, 7).name == ""
    assert [place_named(name) for name in ("", "demo", "p0of7", "3of7")] == [None] * 4


def test_success_is_counted_by_start_and_the_fork_is_found() -> None:
    found = curves(
        [
            *rollouts("t", "", *won(0, 8)),
            *rollouts("t", "p1of4", *won(1, 8)),
            *rollouts("t", "p2of4", *won(8, 8)),
            *rollouts("t", "p3of4", *won(8, 8)),
        ]
    )
    (curve,) = found.curves
    assert (curve.task_id, curve.tag, curve.turns) == ("t", "", 4)
    assert [(p.p, p.successes, p.trials) for p in curve.points] == [
        (0, 0, 8),
        (1, 1, 8),
        (2, 8, 8),
        (3, 8, 8),
    ]
    assert [fork.crucial for fork in curve.forks] == [False, True, False]
    assert curve.forks[1].p_value == pytest.approx(8 / math.comb(16, 9))
    assert curve.replayed == {0: "say ls", 1: "say cd work", 2: "say make"}
    assert curve.points[0].interval == pytest.approx((0.0, 0.3244), abs=1e-4)


def test_success_that_falls_is_no_fork() -> None:
    (curve,) = curves([*rollouts("t", "", *won(9, 9)), *rollouts("t", "p1of4", *won(0, 9))]).curves
    assert not curve.forks[0].crucial
    assert curve.forks[0].p_value == pytest.approx(1.0)


def test_experts_of_one_task_have_curves_of_their_own_and_share_its_beginning() -> None:
    found = curves(
        [
            *rollouts("t", "", *won(1, 2)),
            *rollouts("t", "p1of4.aa", *won(1, 1)),
            *rollouts("t", "p1of3.bb", *won(0, 1)),
            *rollouts("plain", "", *won(2, 2)),
        ]
    )
    assert [(c.task_id, c.tag, c.turns, len(c.points)) for c in found.curves] == [
        ("t", "aa", 4, 2),
        ("t", "bb", 3, 2),
    ]
    assert found.curves[0].points[0] == found.curves[1].points[0] == found.beginnings["t"]
    assert found.beginnings["plain"].successes == 2


def test_broken_measured_early_and_foreign_episodes_are_left_out() -> None:
    measured = [evolve(e, split="evaluation") for e in rollouts("t", "", 1.0)]
    found = curves(
        [
            *rollouts("t", "p1of4", None, 1.0),
            *rollouts("t", "p1of4", 0.0, step=3),
            *rollouts("t", "demo", 1.0, step=3),
            *measured,
        ],
        since=2,
    )
    (curve,) = found.curves
    assert [(p.p, p.successes, p.trials) for p in curve.points] == [(1, 0, 1)]
    assert curve.forks == ()
    assert found.other == 1
    assert found.beginnings == {}


def test_partial_reward_is_no_success() -> None:
    (curve,) = curves(rollouts("t", "p1of4", 0.9, 1.0)).curves
    assert curve.points[0].successes == 1


def exact(a: int, n: int, b: int, m: int) -> float:
    """By counting every way to place the successes."""
    won = [True] * (a + b) + [False] * (n + m - a - b)
    ways = list(itertools.combinations(range(n + m), a + b))
    return sum(sum(i < n for i in way) <= a for way in ways) / len(ways) if won else 1.0


@pytest.mark.parametrize("seed", range(20))
def test_fishers_test_counts_the_ways_to_place_the_successes(seed: int) -> None:
    rng = random.Random(seed)
    n, m = rng.randint(1, 7), rng.randint(1, 7)
    a, b = rng.randint(0, n), rng.randint(0, m)
    assert fisher(a, n, b, m) == pytest.approx(exact(a, n, b, m), rel=1e-12)


def test_fishers_test_takes_large_numbers() -> None:
    assert fisher(50_000, 100_000, 50_000, 100_000) == pytest.approx(0.5018, abs=1e-4)
    assert 0 <= fisher(40_000, 100_000, 50_000, 100_000) < 1e-300


def test_one_true_fork_seldom_brings_a_false_one() -> None:
    """Success is 0.2 before turn 4 and 0.8 after it: another mark is an error of the first kind."""
    rng, false, true, runs = random.Random(1), 0, 0, 200
    for _ in range(runs):
        made: list[Episode] = []
        for p in range(1, 8):
            rate = 0.2 if p < 4 else 0.8
            rewards = [float(rng.random() < rate) for _ in range(24)]
            made += rollouts("t", f"p{p}of40", *rewards) if p <= 4 else _bare(p, rewards)
        (curve,) = curves(made).curves
        marked = {fork.after.p for fork in curve.forks if fork.crucial}
        true += 4 in marked
        false += bool(marked - {4})
    assert true > 0.9 * runs
    # 5% is what the level promises; 10% is more than 3 standard deviations above it.
    assert false <= 0.1 * runs


def _bare(p: int, rewards: Sequence[float]) -> list[Episode]:
    made = [episode(reward, turn("own"), task_id="t") for reward in rewards]
    return [evolve(one, start=f"p{p}of40") for one in made]
