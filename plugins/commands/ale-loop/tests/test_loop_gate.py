"""What is compared, and what is refused, where episodes broke."""

from ale_loop.gate import Rewards, compare, refusal
from ale_loop.options import GateOptions


def rewards(*values: float | None) -> Rewards:
    return {None: {(f"task-{n}", 0): value for n, value in enumerate(values)}}


def test_a_version_that_breaks_nearly_all_tasks_is_refused() -> None:
    deployed = rewards(*([0.5] * 100))
    new = rewards(1.0, 1.0, *([None] * 98))
    reason = refusal(compare(deployed, new), GateOptions())
    assert reason is not None
    assert "only 2 of 100 held-out tasks have a reward under both versions" in reason


def test_tasks_that_only_the_new_version_breaks_count_0() -> None:
    [found] = compare(rewards(1.0, 1.0, 1.0, 0.0, None), rewards(1.0, 1.0, None, 0.5, 1.0))
    assert (found.n, found.broken, found.held_out) == (4, 1, 5)
    assert (found.deployed, found.new, found.difference) == (0.75, 0.625, -0.125)
    assert "4 tasks, 1 of them broken, which count 0" in found.line()
    assert refusal([found], GateOptions()) == "sampled: mean -0.125 is below +0.000"


def test_the_least_share_of_graded_tasks_can_be_set() -> None:
    found = compare(rewards(0.1, 0.1, 0.1, 0.0), rewards(1.0, 1.0, None, 1.0))
    assert refusal(found, GateOptions(least_graded=0.75)) is None
    assert refusal(found, GateOptions(least_graded=0.8)) is not None


def test_equal_versions_are_not_refused_for_an_error_of_rounding() -> None:
    third = 1 / 3
    found = compare(rewards(0.1, third, 0.7, 0.6), rewards(third, 0.6, 0.1, 0.7))
    assert refusal(found, GateOptions()) is None
    assert found[0].difference == 0.0


def test_a_difference_that_is_the_threshold_reaches_it() -> None:
    found = compare(rewards(0.8, 0.8), rewards(0.9, 0.9))
    assert found[0].difference < 0.1
    assert refusal(found, GateOptions(threshold=0.1)) is None
    assert refusal(found, GateOptions(measure="low", threshold=0.1)) is None
    assert refusal(found, GateOptions(threshold=0.101)) is not None
