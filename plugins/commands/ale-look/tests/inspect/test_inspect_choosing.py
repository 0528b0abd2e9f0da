"""Which episodes a report includes."""

import pytest

from ale_look.inspect.report.choosing import order, spread
from ale_look.inspect.report.gathering import Head


def heads(steps: int, tasks: int = 2, rollouts: int = 4) -> list[Head]:
    """Each first rollout a success, each last one broken."""
    made = []
    for step in range(steps):
        for task in range(tasks):
            for rollout in range(rollouts):
                reward = None if rollout == rollouts - 1 else float(rollout == 0)
                made.append(
                    Head(
                        offset=len(made),
                        id=f"{step}-t{task}-{rollout}",
                        task_id=f"t{task}",
                        kind="train",
                        step=step,
                        rollout=rollout,
                        reward=reward,
                        turns=1,
                        seconds=1.0,
                    )
                )
    return made


def test_every_episode_is_listed_once() -> None:
    given = heads(7)
    assert sorted(order(given)) == sorted(given)


def test_the_last_success_and_failure_of_each_task_come_first() -> None:
    first = [head.id for head in list(order(heads(10)))[:4]]
    assert first == ["9-t0-0", "9-t0-2", "9-t1-0", "9-t1-2"]


def test_any_prefix_is_evenly_spread_over_the_steps() -> None:
    chosen = [head.step for head in list(order(heads(64)))[4:24]]
    gaps = [b - a for a, b in zip(sorted(chosen), sorted(chosen)[1:], strict=False)]
    assert min(chosen) == 0
    assert max(chosen) >= 59
    assert max(gaps) <= 8


def test_best_worst_and_broken_episodes_of_a_step_alternate() -> None:
    alone = [head.reward for head in list(order(heads(1, tasks=1, rollouts=6)))]
    assert alone[:3] == [1.0, 0.0, None]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 17])
def test_a_spread_order_contains_all_values(n: int) -> None:
    assert sorted(spread(range(n))) == list(range(n))
