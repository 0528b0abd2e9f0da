"""What counts as the answer, and what the score says about it."""

import asyncio
import os
import signal
from typing import Any

import pytest

from ale.protocols import Criterion
from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale.types import Score
from ale_criteria_answers import formulas
from ale_criteria_answers.criteria import Choice, ExactMatch, MathEqual, NumericAnswer
from ale_criteria_answers.options import (
    ChoiceOptions,
    ExactMatchOptions,
    MathEqualOptions,
    NumericAnswerOptions,
)


async def grade(criterion: Criterion, *messages: str) -> Score:
    sandbox = FolderSandbox()
    try:
        trajectory = builders.trajectory(*(builders.turn(message) for message in messages))
        return await criterion.grade(builders.task(), trajectory, sandbox)
    finally:
        await sandbox.close()


def numeric(expected: str, **options: Any) -> NumericAnswer:
    return NumericAnswer(NumericAnswerOptions(expected=expected, **options))


def equal(expected: str, **options: Any) -> MathEqual:
    return MathEqual(MathEqualOptions(expected=expected, **options))


async def test_the_score_says_what_was_found_and_where() -> None:
    score = await grade(numeric("18"), "Let me see.", "9 * 2 = 18\n#### 18")
    assert score.passed
    assert score.detail == (
        "found '18' in the last line that begins with #### of the last message; expected '18'"
    )


async def test_without_an_answer_the_score_says_so() -> None:
    assert (await grade(numeric("18"), "I don't know.")).detail == (
        "no number was found: the last message"
    )
    assert (await grade(numeric("18"))).detail == "no number was found: the agent wrote no message"
    missing = await grade(numeric("18", answer="file:a.txt"), "18")
    assert missing.detail == "no number was found: a.txt does not exist"


@pytest.mark.parametrize("name", ["loop", "file/a.txt", "x" * 300])
async def test_a_file_that_no_path_leads_to_is_no_answer(name: str) -> None:
    sandbox = FolderSandbox()
    try:
        await sandbox.exec("ln -s loop loop; echo 18 >file")
        criterion = numeric("18", answer=f"file:{name}")
        score = await criterion.grade(builders.task(), builders.trajectory(), sandbox)
    finally:
        await sandbox.close()
    assert (score.value, "can't be read" in score.detail) == (0.0, True)


async def test_a_byte_order_mark_is_no_part_of_an_answer() -> None:
    sandbox = FolderSandbox()
    try:
        await sandbox.write("a.txt", b"\xef\xbb\xbf18\n")
        criterion = ExactMatch(ExactMatchOptions(expected="18", take="all", answer="file:a.txt"))
        score = await criterion.grade(builders.task(), builders.trajectory(), sandbox)
    finally:
        await sandbox.close()
    assert score.passed, score.detail


@pytest.mark.parametrize(
    ("expected", "answer", "passed"),
    [
        ("1000", "It is 1,000.", True),
        ("18", "It is $18.00", True),
        ("0.75", r"\boxed{\frac{3}{4}}", True),
        ("18", "18 or 19", False),
    ],
)
async def test_numbers_are_compared_by_value(expected: str, answer: str, passed: bool) -> None:
    assert (await grade(numeric(expected), answer)).passed is passed


async def test_an_expected_value_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="expected must be a number, found 'eighteen'"):
        NumericAnswerOptions(expected="eighteen")


@pytest.mark.parametrize(
    ("expected", "answer", "passed"),
    [
        (r"\frac{1}{2}", r"So $\boxed{0.5}$.", True),
        (r"\boxed{x^2+2x+1}", r"\boxed{(x+1)^2}", True),
        ("(1, 2)", "The answer is $(1,2)$.", True),
        (r"\frac{\sqrt{3}}{2}", r"$\frac{\sqrt{3}}{2}$", True),
        (r"\text{east}", r"\boxed{\text{east}}", True),
        ("5", r"\boxed{5.}", True),
        ("5", "It is clear.\n$x = 5$.", True),
        ("0.5", r"\boxed{.5}", True),
        (r"\left.x\right.", r"\boxed{\left.x\right.}", True),
        ("1000", r"\boxed{1\,000}", True),
        ("(1, 000)", r"\boxed{1\,000}", False),
        ("90", r"\boxed{90°}", True),
        ("90°", r"\boxed{90^{\circ}}", True),
        ("90°", r"\boxed{80°}", False),
        (r"\frac{1}{2}", r"\boxed{\frac{1}{3}}", False),
        ("3", r"\boxed{}", False),
    ],
)
async def test_formulas_are_compared_by_what_they_mean(
    expected: str, answer: str, passed: bool
) -> None:
    score = await grade(equal(expected), answer)
    assert score.passed is passed, score.detail


async def test_a_formula_that_takes_for_ever_fails_and_the_next_one_is_compared() -> None:
    score = await grade(equal("(a+b+c)^{9999}", timeout_s=1), r"\boxed{(a+b+c+d)^{9999}}")
    assert not score.passed
    assert "the comparison did not end in 1 s" in score.detail
    assert (await grade(equal("1"), r"\boxed{1}")).passed


@pytest.mark.parametrize(
    "formula",
    ["9^{9^{9^{9}}} - 9^{9^{9^{9}}} + 1", "10^{10^{10}}", "(10^9)!", "9!!!", "10^{99999999}"],
)
async def test_a_number_that_is_too_large_is_not_worked_out(formula: str) -> None:
    score = await grade(equal("1", timeout_s=30), rf"\boxed{{{formula}}}")
    assert not score.passed
    assert "too large to work out" in score.detail


@pytest.mark.parametrize(
    "piece",
    ["(", "1,", "{", "x=", r"\pm ", "1 or ", r"\cup ", r"\text{", "2^", r"\frac", "_8", "√"],
)
async def test_a_hostile_formula_costs_no_more_than_its_time_limit(piece: str) -> None:
    text = piece * (3900 // len(piece))
    score = await grade(equal("(1, 2)", timeout_s=5), rf"\boxed{{{text}}}")
    assert not score.passed


async def test_a_formula_that_is_too_long_or_deep_fails() -> None:
    assert not (await grade(equal("1", timeout_s=1), r"\boxed{" + "(" * 2000 + "}")).passed
    score = await grade(equal("1"), r"\boxed{" + "1+" * 3000 + "1}")
    assert "it is longer than 4000 characters" in score.detail


async def test_a_process_that_was_killed_is_started_again() -> None:
    await grade(equal("1"), r"\boxed{1}")
    process = formulas._WORKER._process
    assert process is not None
    process.kill()
    process.wait()
    assert (await grade(equal("1"), r"\boxed{1}")).passed


@pytest.mark.parametrize(
    ("options", "answer", "passed"),
    [
        ({}, "The answer is  paris.", True),
        ({}, "I think\nParis", True),
        ({"ignore_case": False}, "paris", False),
        ({"take": "all"}, "Paris", True),
        ({"take": "all"}, "I think\nParis", False),
        ({"take": "last_line"}, "The answer is Paris", False),
        ({}, "London", False),
    ],
)
async def test_texts_are_compared_after_white_space(
    options: dict[str, Any], answer: str, passed: bool
) -> None:
    criterion = ExactMatch(ExactMatchOptions(expected="Paris", **options))
    assert (await grade(criterion, answer)).passed is passed


async def test_a_letter_is_not_guessed() -> None:
    criterion = Choice(ChoiceOptions(expected="B", letters="ABCD"))
    assert (await grade(criterion, "The answer is (b).")).passed
    assert not (await grade(criterion, "A) no\nB) yes")).passed
    with pytest.raises(ValueError, match="expected must be one of ABCD, found 'E'"):
        ChoiceOptions(expected="E", letters="ABCD")


@pytest.mark.parametrize(
    ("criterion", "message", "answer"),
    [
        (numeric("18"), "It is $1,800.50", "3601/2"),
        (numeric("18"), "I don't know.", None),
        (equal("1"), r"\boxed{0.5}", "1/2"),
        (equal("1"), r"\boxed{\dfrac{1}{2}}", "1/2"),
        (equal("1"), r"\boxed{\left( \dfrac{x}{2}, 3 \right)}", r"(\frac{x}{2},3)"),
        (ExactMatch(ExactMatchOptions(expected="Paris")), "The answer is  PARIS.", "paris"),
        (Choice(ChoiceOptions(expected="B", letters="ABCD")), "The answer is (c).", "C"),
    ],
)
async def test_the_score_has_the_answer_for_votes(
    criterion: Criterion, message: str, answer: str | None
) -> None:
    assert (await grade(criterion, message)).answer == answer


def test_a_forked_process_compares_by_itself_and_leaves_the_other_alone() -> None:
    def equals(found: str) -> bool:
        return asyncio.run(formulas.equal_formulas("1/2", found, 6, 120.0))[0]

    assert equals("0.5")
    before = formulas._WORKER._process
    child = os.fork()
    if child == 0:
        signal.alarm(150)  # without its own thread it would wait for ever
        right = equals("2/4") and not equals("1/3")
        formulas._WORKER.close()
        os._exit(0 if right else 1)
    answers = [equals("2/4"), equals("1/3")]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert answers == [True, False]
    assert equals("3/6")
    assert formulas._WORKER._process is before
