"""Numbers for the terminal."""

import pytest

from ale.text import number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.925, "0.925"),
        (-1234567.25, "-1234567.250"),
        (999_999_999.0, "999999999.000"),
        (1e9, "1e+09"),
        (-1.23456e308, "-1.235e+308"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_a_large_number_is_in_powers_of_ten(value: float, text: str) -> None:
    assert number(value) == text


def test_a_sign_and_the_number_of_digits_are_chosen() -> None:
    assert number(0.5, 4, sign=True) == "+0.5000"
    assert number(1e300, 2, sign=True) == "+1e+300"
