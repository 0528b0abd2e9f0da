"""Attempts by task, and means over tasks."""

import pytest

from ale.types import Episode, Failure, Score
from ale_statistics import attempts_from, interval, mean_over_tasks


def test_the_interval_is_wilsons_and_never_empty() -> None:
    assert interval(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert interval(1.0, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert interval(0.0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert interval(0.5, 1) is None


def test_a_mean_leaves_out_tasks_without_a_value() -> None:
    found = mean_over_tasks([0.5, None, 1.0])
    assert (found.tasks, found.mean) == (2, 0.75)
    assert found.interval == interval(0.75, 2)
    assert mean_over_tasks([1.0]).interval is None
    assert mean_over_tasks([None]).mean is None


def attempt(rollout: int, reward: float | None, answer: str | None = None) -> Episode:
    failure = None if reward is not None else Failure(stage="agent", kind="LLMError", message="no")
    score = Score(criterion="numeric_answer", passed=bool(reward), value=reward or 0.0)
    scores = (score, Score(criterion="b", passed=False, value=0.0, answer=answer))
    return Episode(
        id=f"a-{rollout}",
        task_id="a",
        rollout=rollout,
        reward=reward,
        failure=failure,
        scores=scores if reward is not None else (),
        seconds={"agent": 1.5},
    )


def test_attempts_are_in_order_without_broken_ones_and_answers_stand_beside_rewards() -> None:
    ended = [attempt(2, 0.0), attempt(1, None), attempt(0, 1.0, "18")]
    found = attempts_from(ended)["a"]
    assert (found.n, found.passed, found.broken) == (2, 1, 1)
    assert found.answers == ["18", None]
    assert found.pass_at(1) == 0.5
    assert found.pass_at(3) is None
    assert (found.seconds, found.cause) == (4.5, "agent: no")
