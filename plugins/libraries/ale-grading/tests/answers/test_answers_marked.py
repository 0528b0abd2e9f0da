"""Marked answers, numbers and letters in a model's text."""

from fractions import Fraction

import pytest

from ale_grading.answers import (
    boxed,
    choice,
    code,
    final_number,
    last_line,
    marked,
    number_value,
    same_number,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"so $\boxed{18}$.", "18"),
        (r"\boxed{1} and then \boxed{\frac{\sqrt{3}}{2}}", r"\frac{\sqrt{3}}{2}"),
        (r"\boxed{\left\{1,2\right.}", r"\left\{1,2\right."),
        (r"\boxed 2$", "2"),
        (r"\fbox{x}", "x"),
        (r"\boxed{3} and \boxed{4", "3"),
        (r"\boxed{ -5 }", "-5"),
        (r"\boxed{42} ... \boxed{}", "42"),
        (r"the roots are \boxed{1} and $x = \boxed{-2}$.", "1, -2"),
        (r"\boxed{1}. So \boxed{2}", "2"),
        (r"\boxed{\boxed{5}}", "{5}"),
        ("no box", None),
    ],
)
def test_the_last_complete_box_is_taken(text: str, found: str | None) -> None:
    got = boxed(text)
    assert (got and got.text) == found


@pytest.mark.parametrize(
    ("text", "found", "source"),
    [
        (r"\boxed{2} The answer is 3", "2", r"the last \boxed{}"),
        ("5 + 3 = 8\n#### 8\n", "8", "the last line that begins with ####"),
        ("The answer is 3.5. I am sure.", "3.5", 'the last "the answer is"'),
        ("**Answer:** Paris", "Paris", 'the last "the answer is"'),
        ("Final answer: **x = 3**", "x = 3", 'the last "the answer is"'),
        ("The final answer is:\n\n7", "7", 'the last "the answer is"'),
        ("Answer is A. Wait, the answer is B.", "B", 'the last "the answer is"'),
    ],
)
def test_a_marked_answer_says_where_it_was(text: str, found: str, source: str) -> None:
    got = marked(text)
    assert got is not None
    assert (got.text, got.source) == (found, source)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18),
        ("$18", 18),
        (r"\$18", 18),
        ("$18.50", Fraction(37, 2)),
        ("-3", -3),
        ("−3", -3),
        ("-$5", -5),
        ("$-5", -5),
        ("1,234,567.5", Fraction(2469135, 2)),
        ("1{,}234", 1234),
        (r"1\,234", 1234),
        ("3/4", Fraction(3, 4)),
        ("-3 / 4", Fraction(-3, 4)),
        (r"\frac{3}{4}", Fraction(3, 4)),
        (r"-\dfrac{1}{2}", Fraction(-1, 2)),
        (r"2\frac{1}{2}", Fraction(5, 2)),
        (r"\frac12", Fraction(1, 2)),
        (r"-3\frac 1{20}", Fraction(-61, 20)),
        (r"\cfrac{1}2", Fraction(1, 2)),
        ("2 1/2", Fraction(5, 2)),
        ("-2 1/2", Fraction(-5, 2)),
        (".5", Fraction(1, 2)),
        ("18%", 18),
        (r"18\%", 18),
        ("1.5e-3", Fraction(3, 2000)),
        (r"2 \times 10^{3}", 2000),
        ("$18$", 18),
        ("3/0", None),
        ("1,2", None),
        ("eighteen", None),
        ("18 apples", None),
        ("1e999999999", None),
        ("9" * 5000, None),
    ],
)
def test_a_number_has_its_exact_value(text: str, value: Fraction | None) -> None:
    assert number_value(text) == value


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        ("18.00", "18", True),
        ("1,000", "1000", True),
        ("0.5", "1/2", True),
        ("18%", "18", True),
        ("18%", "0.18", True),
        ("0.18", "18%", True),
        ("18%", "0.18%", False),
        ("0.333", "1/3", False),
        ("x", "1", False),
    ],
)
def test_numbers_are_compared_by_value(found: str, expected: str, same: bool) -> None:
    assert same_number(found, expected) is same


def test_a_tolerance_is_relative() -> None:
    assert same_number("0.3333", "1/3", tolerance=1e-3)
    assert not same_number("0.33", "1/3", tolerance=1e-3)
    assert not same_number("0.001", "0", tolerance=0.5)


@pytest.mark.parametrize(
    ("text", "found", "source"),
    [
        ("9 eggs at $2 each, so it is $18.", "$18", "the last number"),
        ("So 9 * 2 = 18\n#### 18", "18", "the last line that begins with ####"),
        ("#### $1,200 per week", "$1,200", "the last line that begins with ####"),
        (r"\boxed{18 \text{ dollars}}", "18", r"the last \boxed{}"),
        (r"\boxed{x = -\frac{1}{2}}", r"-\frac{1}{2}", r"the last \boxed{}"),
        (r"\boxed{\frac12}", r"\frac12", r"the last \boxed{}"),
        (r"\boxed{- 7}", "-7", r"the last \boxed{}"),
        ("#### x = - 7", "-7", "the last line that begins with ####"),
        ("#### 9 - 7", "9", "the last line that begins with ####"),
        ("Answer:\n- 7 apples", "7", 'the last "the answer is"'),
        ("It takes 2 1/2 hours.", "2 1/2", "the last number"),
        ("In 2020 1/2 of them left", "1/2", "the last number"),
        ("The answer is 5 + 3 = 8 for all 20.", "8", 'the last "the answer is"'),
        ("The answer is 18 of 20 eggs.", "18", 'the last "the answer is"'),
        ("It fell by 10-3, so 7.", "7", "the last number"),
        ("It is 10-3", "3", "the last number"),
        ("So it is -3.", "-3", "the last number"),
        ("That makes 25%.", "25%", "the last number"),
        ("He needs 3/4 of it.", "3/4", "the last number"),
        ("The answer is unknown. I counted 12", "12", "the last number"),
        ("<think>17</think>It is 12", "12", "the last number"),
    ],
)
def test_the_final_number_is_found_as_people_would(text: str, found: str, source: str) -> None:
    got = final_number(text)
    assert got is not None
    assert (got.text, got.source) == (found, source)


@pytest.mark.parametrize(
    "text",
    [
        *("12 or 13", "The answer is 12 or 13.", "#### 12 or 13", "It is not 42.", "either 3 or 4"),
        *("The answer isn't 42", r"\boxed{12} or \boxed{13}", "between 12 and 13", r"\boxed{1, 2}"),
    ],
)
def test_a_number_that_is_denied_or_competes_is_not_guessed(text: str) -> None:
    assert final_number(text) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It is 42, not 43.", "42"),
        ("The answer is not 41, it is 42.", "42"),
        ("It is 13. No wait, 12.", "12"),
        ("The answer is negative 3", "-3"),
        ("It covers 42 km^2.", "42"),
        ("about 1 million", "1 million"),
    ],
)
def test_what_a_text_denies_or_corrects_is_left_out(text: str, found: str) -> None:
    got = final_number(text)
    assert got is not None
    assert got.text == found


def test_a_text_without_a_number_has_none() -> None:
    assert final_number("I don't know.") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("B", "B"),
        ("(B)", "B"),
        ("B. Because of gravity", "B"),
        ("**C**", "C"),
        (r"\boxed{D}", "D"),
        (r"\boxed{\text{(D)}}", "D"),
        ("The answer is (b).", "B"),
        ("The correct answer is B: gravity", "B"),
        ("The answer is **C**.", "C"),
        ("Answer: A", "A"),
        ("answer: option D", "D"),
        ("answer: d", "D"),
        ("The answer is A. No, the answer is B.", "B"),
        ("A) x\nB) y\nThe answer is B", "B"),
        ("A) x\nB) y\nC) z", None),
        ("A cat is the best, so I pick C", "C"),
        ("The answer is not B, it is C", "C"),
        ("The answer is a cat", None),
        ("The answer is A cat", None),
        ("A or B", None),
        ("The answer is B or C.", None),
        ("The answer is not B.", None),
        ("B, not A", "B"),
        ("B is right, A is wrong.", "B"),
        (r"\boxed{A} or \boxed{B}", None),
        ("I don't know", None),
    ],
)
def test_the_chosen_letter_is_found_and_not_guessed(text: str, found: str | None) -> None:
    got = choice(text, "ABCD")
    assert (got and got.text) == found


def test_the_last_line_is_the_last_that_is_not_blank() -> None:
    got = last_line("a\n  b  \n\n")
    assert got is not None
    assert (got.text, got.source) == ("b", "the last line")
    assert last_line("\n") is None


@pytest.mark.parametrize(
    "piece",
    [
        *(r"\boxed{", r"\frac{1}", "answer: ", "answer", "answer is ((", "#### ", "```a", "`"),
        *(
            "(",
            "{",
            "}",
            "*",
            "1",
            "1 ",
            "1,111",
            "A ",
            "B) ",
            " ",
            "\n",
            "no wait ",
            "not ",
            "A or ",
        ),
    ],
)
def test_a_hostile_text_takes_no_longer_than_its_length(piece: str) -> None:
    for text in (piece * 3_000, "answer is" + piece * 3_000 + "`", "```" + piece * 3_000 + "`"):
        for function in (boxed, marked, final_number, choice, last_line, code):
            function(text)
