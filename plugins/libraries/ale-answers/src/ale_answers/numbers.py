"""Numbers in a model's text."""

import re
from fractions import Fraction

from ale_answers.extracted import Extracted, without_reasoning
from ale_answers.marked import boxed, hashes, phrase

_DIGITS = r"(?:\d{1,3}(?:(?:,|\{,\}|\\,)\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_POWER = r"(?:[eE][-+]?\d{1,3}\b|\s?(?:\\times|\\cdot|×|\*)\s?10(?:\^|\*\*)\{?[-+]?\d{1,3}\}?)"
_SIGN = r"(?:(?<![\w)}])(?P<sign>[-+−–]))?"
_MONEY = r"(?:\\?[$€£¥](?P<inner>[-−–])?)?"
_PATTERN = rf"""
    {_SIGN} {_MONEY}
    (?:
        (?:(?P<whole>\d+)\s?)? \\[cdt]?frac\s?
        (?P<top>\d|\{{\s?-?\d+\s?\}}) \s?
        (?P<bottom>\d|\{{\s?-?\d+\s?\}})
      | (?:(?<![\d.,])(?P<mixed>\d{{1,3}})[ ](?=\d+/\d+(?![\d./])))?
        (?P<number>{_DIGITS}) (?P<power>{_POWER})?
        (?: \s?/\s? (?P<over>\d+(?:\.\d+)?) (?![\d/]) )?
    )
    (?:\s?\\?%)?
"""
_NUMBER = re.compile(_PATTERN, re.VERBOSE)
_SEPARATOR = re.compile(r",|\{,\}|\\,")
_SPACED_SIGN = re.compile(r"^\s*([-−–])\s+(?=[\d.$\\])")
_LONGEST = 1000
"""Digits; Python itself refuses to convert very long numbers, and no answer has so many."""


def number_value(text: str) -> Fraction | None:
    r"""The value of a text that is one number, exactly; None if it is anything else.

    Understood: ``-1,234.50``, ``$18``, ``3/4``, ``2 1/2``, ``\frac{3}{4}``, ``\frac34``,
    ``2\frac{1}{2}``, ``1.5e-3``, ``2 \times 10^{3}``, ``18%`` (which is 18: see `same_number`).
    """
    found = _NUMBER.fullmatch(text.strip().strip("$").strip())
    return None if found is None else _value(found)


def _value(found: re.Match[str]) -> Fraction | None:
    if len(found[0]) > _LONGEST:
        return None
    sign = -1 if (found["sign"] or found["inner"] or "+") != "+" else 1
    if found["bottom"] is not None:
        top, bottom = int(found["top"].strip("{}")), int(found["bottom"].strip("{}"))
        whole = int(found["whole"] or 0)
        return sign * (whole + Fraction(top, bottom)) if bottom else None
    value = Fraction(_SEPARATOR.sub("", found["number"])) * _power(found["power"])
    over = Fraction(found["over"] or 1)
    return sign * (int(found["mixed"] or 0) + value / over) if over else None


def _power(text: str | None) -> Fraction:
    if text is None:
        return Fraction(1)
    exponent = re.search(r"[-+]?\d+(?=\}?$)", text)
    return Fraction(10) ** int(exponent[0]) if exponent else Fraction(1)


def same_number(found: str, expected: str, tolerance: float = 0.0) -> bool:
    """Whether two texts are the same number.

    Where only one of them is a percentage, ``18%`` equals both ``18`` (the unit was left out) and
    ``0.18``.

    Args:
        found: a number, as `number_value` understands it.
        expected: another.
        tolerance: allowed difference, relative to the expected value.
    """
    a, b = number_value(found), number_value(expected)
    if a is None or b is None:
        return False
    allowed = abs(b) * Fraction(tolerance)
    if abs(a - b) <= allowed:
        return True
    if found.rstrip().endswith("%") == expected.rstrip().endswith("%"):
        return False
    in_percent = a / 100 if found.rstrip().endswith("%") else a * 100
    return abs(in_percent - b) <= allowed


def final_number(text: str) -> Extracted | None:
    r"""The number that a text ends up with, as it is written.

    In this order: in the last ``\boxed{}``, after the last ``####``, after the last "the answer
    is", the last number of the text. A marked answer may have words around its number: taken is
    the number after its last ``=``, or else the first one.
    """
    for place in (boxed(text), hashes(text)):
        if place and (number := _marked_number(place.text)):
            return Extracted(number, place.source)
    # A dash and a space after "Answer:" may begin a list: there it is no sign.
    if (place := phrase(text)) and (number := _first_number(place.text)):
        return Extracted(number, place.source)
    numbers = _numbers(without_reasoning(text))
    return Extracted(numbers[-1], "the last number") if numbers else None


def _marked_number(text: str) -> str | None:
    before, equals, after = text.rpartition("=")
    return _first_number(before + equals + _SPACED_SIGN.sub(r"\1", after))


def _first_number(text: str) -> str | None:
    numbers = _numbers(text.rpartition("=")[2]) or _numbers(text)
    return numbers[0] if numbers else None


def _numbers(text: str) -> list[str]:
    found = _NUMBER.finditer(text)
    return [match[0].strip() for match in found if _value(match) is not None]
