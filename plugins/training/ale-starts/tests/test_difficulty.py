"""Tasks chosen by their success rate; the contract kit runs over each way to choose too."""

from collections.abc import Sequence
from itertools import count

import pytest

from ale.plugin import BuildContext
from ale.protocols import StartScheme
from ale.types import Episode, Task
from ale_starts.build import initial
from ale_starts.difficulty import differ
from ale_starts.options import InitialOptions

TASKS = [Task(id=name, goal="Do it.") for name in ("never", "half", "always", "new")]


def made(choose: str, groups: int = 1, **options: object) -> StartScheme:
    chosen = InitialOptions(groups=groups, choose=choose, **options)  # type: ignore[arg-type]
    return initial(chosen, BuildContext(seed=3))


def episodes(task: str, rewards: Sequence[float | None], start: str = "") -> list[Episode]:
    return [
        Episode(id=f"{task}{n}", task_id=task, rollout=n, reward=reward, start=start)
        for n, reward in zip(count(), rewards, strict=False)
    ]


def told(scheme: StartScheme) -> StartScheme:
    """A scheme that has seen eight rollouts of three of the tasks."""
    rewards = {"never": [0.0] * 8, "half": [0.0, 1.0] * 4, "always": [1.0] * 8}
    scheme.learn(0, [one for task, each in rewards.items() for one in episodes(task, each)])
    return scheme


def drawn(scheme: StartScheme, steps: int = 200, tasks: Sequence[Task] = TASKS) -> dict[str, int]:
    found = dict.fromkeys((task.id for task in tasks), 0)
    for step in range(1, steps + 1):
        for start in scheme.plan(step, tasks, 4):
            found[start.task_id] += 1
    return found


def test_uniform_does_not_look_at_success() -> None:
    found = drawn(told(made("uniform")), 400)
    assert all(60 < n < 140 for n in found.values()), found


def test_a_band_takes_what_is_in_it_and_what_is_unknown() -> None:
    found = drawn(told(made("band")))
    assert found["never"] == found["always"] == 0
    assert 60 < found["half"] < 140


def test_a_band_is_filled_with_the_nearest() -> None:
    scheme = told(made("band", groups=3, low=0.2, high=0.95))
    found = drawn(scheme)
    assert found["half"] == found["new"] == found["always"] == 200
    assert found["never"] == 0


def test_thompson_prefers_groups_that_are_likely_to_differ() -> None:
    known = [task for task in TASKS if task.id != "new"]
    found = drawn(told(made("thompson")), tasks=known)
    assert found["half"] > 150
    assert found["never"] > 0
    assert found["always"] > 0


def test_only_the_newest_rollouts_of_the_policy_count() -> None:
    scheme = told(made("band", newest=4))
    scheme.learn(1, episodes("half", [1.0] * 4))
    scheme.learn(2, episodes("always", [0.0, 0.0], start="demonstration"))
    scheme.learn(3, episodes("always", [None, None]))
    assert drawn(scheme) == {"never": 0, "half": 0, "always": 0, "new": 200}


def test_what_is_chosen_is_a_function_of_seed_step_and_episodes() -> None:
    for choose in ("uniform", "band", "thompson"):
        first, again = told(made(choose, groups=2)), told(made(choose, groups=2))
        assert [first.plan(step, TASKS, 4) for step in range(9)] == [
            again.plan(step, TASKS, 4) for step in range(9)
        ]


def test_a_step_with_few_tasks_has_them_all() -> None:
    assert [s.task_id for s in made("thompson", groups=9).plan(0, TASKS, 2)] == [
        task.id for task in TASKS
    ]


@pytest.mark.parametrize(("rate", "expected"), [(0.0, 0.0), (1.0, 0.0), (0.5, 0.875)])
def test_the_probability_that_four_rollouts_differ(rate: float, expected: float) -> None:
    assert differ(rate, 4) == pytest.approx(expected)
