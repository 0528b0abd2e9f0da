"""Attempts by task, and means over tasks."""

import pytest

from ale.intervals import success_interval
from ale.types import Episode, Failure, Score
from ale_figures.statistics import Attempts, attempts_from, interval, mean_over_tasks, mean_pass_at


def test_the_interval_is_wilsons_and_never_empty() -> None:
    assert interval([0.0, 1.0] * 5) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert interval([0.5] * 10) == interval([0.0, 1.0] * 5)
    assert interval([1.0] * 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert interval([0.0] * 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert interval([0.5]) is None


def test_the_interval_of_pass_at_1_is_that_of_the_attempts() -> None:
    """`ale show results` and `ale run` say the same; k of k attempts are one trial."""
    counts = [(4, won) for won in (0, 1, 1, 2, 3, 3, 2, 2)]
    attempts = [Attempts(rewards=[1.0] * won + [0.0] * (n - won)) for n, won in counts]
    assert mean_pass_at(attempts, 1).interval == pytest.approx(success_interval(counts))
    values = [attempt.pass_at(4) for attempt in attempts]
    assert mean_pass_at(attempts, 4) == mean_over_tasks(values)


def test_pass_at_k_leaves_out_tasks_with_fewer_attempts() -> None:
    """Of 2 and 6 attempts the harmonic mean is 3."""
    some = [Attempts(rewards=[1.0, 0.0]), Attempts(rewards=[0.0] * 3 + [1.0] * 3)]
    found = mean_pass_at([*some, Attempts(rewards=[])], 1)
    assert (found.tasks, found.mean) == (2, 0.5)
    assert found.interval == success_interval([(3, 1.5), (3, 1.5)])


def test_a_mean_leaves_out_tasks_without_a_value() -> None:
    found = mean_over_tasks([0.5, None, 1.0])
    assert (found.tasks, found.mean) == (2, 0.75)
    assert found.interval == interval([0.5, 1.0])
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
