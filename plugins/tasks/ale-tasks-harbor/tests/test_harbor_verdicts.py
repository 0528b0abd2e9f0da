"""Rewards and the parsers of Terminal-Bench: what counts, and what is no verdict."""

import pytest

from ale_tasks_harbor import reward
from ale_tasks_harbor.parsers import PARSERS, UnparsableError, pytest_results, shown


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1.0), (" 0.25\n", 0.25), ("0", 0.0), ("-7", -7.0), ("1e3", 1000.0)]
)
def test_reward_txt_is_one_number(text: str, value: float) -> None:
    assert reward.single(reward.from_text(text.encode())) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"reward": 0.5, "style": 1}', 0.5),
        ('{"a": 1, "b": 0.5}', 0.75),
        ('{"a": true}', 1.0),
        ('{"a": 3, "b": -1}', 1.0),
    ],
)
def test_reward_json_gives_the_reward_or_the_mean(text: str, value: float) -> None:
    assert reward.single(reward.from_json(text.encode())) == value


@pytest.mark.parametrize("text", ["", "good", "nan", "inf", "1e400", "1 1", "1\n0"])
def test_what_is_no_finite_number_is_no_reward_in_text(text: str) -> None:
    with pytest.raises(reward.RewardError, match=r"reward\.txt"):
        reward.from_text(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "{}", '{"a": "1"}', '{"a": null}', '{"a": NaN}', '{"a": 1e309}', "[1]", "1"),
        '{"a": 1%s}' % ("0" * 400),
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_what_is_no_finite_number_is_no_reward_in_json(text: str) -> None:
    with pytest.raises(reward.RewardError, match=r"reward\.json"):
        reward.from_json(text.encode())


def test_the_json_goes_first_and_neither_is_an_error() -> None:
    assert reward.of_files(b'{"a": 0}', b"1", "here") == {"a": 0.0}
    assert reward.of_files(None, b"1", "here") == {"reward": 1.0}
    with pytest.raises(reward.RewardError, match="wrote no reward to here"):
        reward.of_files(None, None, "here")


_OUTPUT = """\
collected 4 items
=========================== short test summary info ============================
PASSED tests/test_outputs.py::test_one
SKIPPED [1] tests/test_outputs.py:3: not here
XFAIL tests/test_outputs.py::test_three - known
FAILED tests/test_outputs.py::test_two[a - b] - assert 1 - 1
==================== 1 failed, 1 passed, 1 skipped in 0.01s ====================
"""


def test_each_test_of_pytests_summary_counts() -> None:
    assert dict(pytest_results(_OUTPUT)) == {
        "test_one": True,
        "[1] tests/test_outputs.py:3: not here": True,
        "test_three - known": True,
        "test_two[a - b] - assert 1": False,
    }


def test_a_pass_that_is_printed_afterwards_does_not_undo_a_failure() -> None:
    forged = _OUTPUT + "PASSED tests/test_outputs.py::test_two[a - b] - assert 1\n"
    assert not all(pytest_results(forged).values())
    before = "=== short test summary info ===\nPASSED a.py::test_two\n" + _OUTPUT
    assert not all(pytest_results(before).values())


@pytest.mark.parametrize(
    "line",
    [
        "FAILED\ta.py::test_two - no",
        "  FAILED a.py::test_two - no",
        "\x1b[31mFAILED\x1b[0m a.py::\x1b[1mtest_two\x1b[0m - no",
        "\x1b]0;title\x07\x1b(BFAILED a.py::test_two - no",
    ],
)
def test_a_failure_counts_however_a_terminal_is_told_to_show_it(line: str) -> None:
    output = f"\x1b[36m== short test summary info ==\x1b[0m\nPASSED a.py::test_one\n{line}\n"
    assert dict(pytest_results(shown(output))) == {"test_one": True, "test_two": False}


@pytest.mark.parametrize("output", ["", "1 passed in 0.01s", "== short test summary info ==\n"])
def test_no_test_in_a_summary_is_no_verdict(output: str) -> None:
    with pytest.raises(UnparsableError, match="short test summary info"):
        pytest_results(output)


@pytest.mark.parametrize(
    ("name", "mark", "good"),
    [
        ("swebench", "SWEBench", "PASSED"),
        ("sweperf", "SWE-Perf", "PASSED"),
        ("mlebench", "MLEBench", "ALL TESTS PASSED"),
    ],
)
def test_a_verdict_between_marks(name: str, mark: str, good: str) -> None:
    def printed(block: str) -> str:
        return f"x\n{mark} results starts here\n{block}\n{mark} results ends here\ny\n"

    assert PARSERS[name](printed(good)) == {"tests": True}
    assert PARSERS[name](printed("FAILED")) == {"tests": False}


def test_mlebenchs_words_count_between_its_marks_alone() -> None:
    good, end = "ALL TESTS PASSED", "MLEBench results ends here"
    for output in (good, f"{good}\n{end}", f"MLEBench results starts here\n{good}"):
        assert PARSERS["mlebench"](output) == {"tests": False}


@pytest.mark.parametrize("name", ["swebench", "sweperf"])
def test_without_the_marks_there_is_no_verdict(name: str) -> None:
    with pytest.raises(UnparsableError, match="results starts here"):
        PARSERS[name]("PASSED")


@pytest.mark.parametrize(
    ("output", "passed"),
    [
        ("SWE Lancer Success", True),
        ("swe lancer failure", False),
        ("user_tool has completed", True),
        ("", False),
    ],
)
def test_swelancer_looks_for_its_words(output: str, passed: bool) -> None:
    assert PARSERS["swelancer"](output) == {"tests": passed}
