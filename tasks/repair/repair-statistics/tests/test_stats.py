"""Each call runs in a process of its own: what is tested can't reach the tests."""

import json
import subprocess
import sys


def ask(expression: str) -> object:
    code = f"import json, stats\nxs = [5, 1, 4, 1]\nprint(json.dumps({expression}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False
    )
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.split("\n")[-2]


def is_refused(expression: str) -> bool:
    return str(ask(expression)).startswith("ValueError")


def test_mean_keeps_the_fraction() -> None:
    assert ask("[stats.mean([1, 2]), stats.mean([-1, 2, 4])]") == [1.5, 5 / 3]


def test_median_of_odd_and_even_lists() -> None:
    assert ask("[stats.median([9, 1, 5]), stats.median([4, 1, 3, 2]), stats.median([7])]") == [
        5,
        2.5,
        7,
    ]


def test_mode_is_the_smallest_of_the_most_frequent() -> None:
    assert ask("[stats.mode([3, 2, 3, 2, 1]), stats.mode([5]), stats.mode([9, 8])]") == [2, 5, 8]


def test_variance_is_that_of_a_sample() -> None:
    assert ask("[stats.variance([1, 2, 3, 4]), stats.variance([2, 2])]") == [5 / 3, 0]


def test_moving_average_has_every_window() -> None:
    assert ask("stats.moving_average([1, 2, 4, 8], 2)") == [1.5, 3, 6]
    assert ask("[stats.moving_average([1, 2], 2), stats.moving_average([1], 2)]") == [[1.5], []]


def test_empty_lists_are_refused() -> None:
    for call in ("mean([])", "median([])", "mode([])", "variance([])", "variance([1])"):
        assert is_refused(f"stats.{call}"), call


def test_no_call_changes_its_list() -> None:
    calls = "stats.mean(xs), stats.median(xs), stats.mode(xs), stats.variance(xs)"
    assert ask(f"[{calls}, stats.moving_average(xs, 2), xs][-1]") == [5, 1, 4, 1]
