"""Numbers in a model's text."""

import re
from fractions import Fraction

from ale_grading.answers.claims import Candidate, competes, corrected, standing
from ale_grading.answers.extracted import Extracted, without_reasoning
from ale_grading.answers.marked import boxed, hashes, phrase

_GROUP = r"(?:,|\{,\}|\\,|[\u00a0\u2009\u202f ~'’_])"
"""Between thousands: 1,000, 1 000, 1'000, 1_000."""
_DIGITS = rf"(?:\d{{1,3}}(?:{_GROUP}\d{{3}})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_MOST_SCALES = 3
_POWER = (
    r"(?:[eE][-+]?\d{1,3}\b|(?:\s?(?:hundred|thousand|million|billion|trillion)\b)+"
    r"|\^\{?\d{1,3}\}?"
    r"|\s?(?:\\times|\\cdot|×|\*)\s?10(?:\^|\*\*)\{?[-+]?\d{1,3}\}?)"
)
_SIGN = r"(?:(?<![\w)}])(?P<sign>[-+−–]))?(?<![\^_])(?<![\^_]\{)"
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
_SEPARATOR = re.compile(_GROUP)
_SUFFIXES = {"k": "thousand", "K": "thousand", "M": "million", "B": "billion", "bn": "billion"}
_SUFFIX = re.compile(r"(?<=\d)(?:[kKMB]|bn)(?!\w)")
_SPACED_SIGN = re.compile(r"^\s*([-−–])\s+(?=[\d.$\\])")
_LISTED = re.compile(r"\s*(?:,|;|&|/|\\text\{\s*(?:and|or)\s*\}|and)\s*")
"""Between two numbers of a marked answer: both are meant."""
_SIGN_WORD = re.compile(
    r"\bnegative\s+(?=[\d.$])|(?:(?<=is )|(?<=be )|(?<=: )|(?<== )|^)minus\s+(?=[\d.$])",
    re.IGNORECASE,
)
_LONGEST = 1000
"""Digits; Python itself refuses to convert very long numbers, and no answer has so many."""


def number_value(text: str) -> Fraction | None:
    r"""The value of a text that is one number, exactly; None if it is anything else.

    Understood: ``-1,234.50``, ``1 000``, ``$18``, ``3/4``, ``2 1/2``, ``\frac{3}{4}``, ``\frac34``,
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
    number = Fraction(_SEPARATOR.sub("", found["number"]))
    if found["power"] and found["power"].startswith("^"):
        return sign * number ** int(found["power"].strip("^{}")) if number < _LONGEST else None
    value = number * _power(found["power"])
    over = Fraction(found["over"] or 1)
    return sign * (int(found["mixed"] or 0) + value / over) if over else None


def _power(text: str | None) -> Fraction:
    if text is None:
        return Fraction(1)
    if text.split()[0] in _SCALES:
        return Fraction(10 ** sum(_SCALES[word] for word in text.split()[:_MOST_SCALES]))
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
    the number after its last ``=``, or else the first one. ``1.5k`` is 1500. Numbers before "the
    answer is" don't count ("In 2024 the answer is unknown").
    """
    answer = _SUFFIX.sub(lambda m: f" {_SUFFIXES[m[0]]}", corrected(without_reasoning(text)))
    for place in (boxed(answer), hashes(answer)):
        if place and _numbers(place.text):
            before, equals, after = place.text.rpartition("=")
            return _made(_first_number(before + equals + _SPACED_SIGN.sub(r"\1", after)), place)
    # A dash and a space after "Answer:" may begin a list: there it is no sign.
    if place := phrase(answer):
        found = _first_number(_signed(place.text), joins=None)
        if found or not _numbers(_after_phrases(answer)):
            return _made(found, place)
        answer = _after_phrases(answer)
    answer = _signed(answer)
    numbers = _numbers(answer)
    left = standing(answer, numbers)
    if not left or competes(answer, left[-1], numbers):
        return None
    return Extracted(left[-1].text, "the last number")


def _made(number: str | None, place: Extracted) -> Extracted | None:
    return None if number is None else Extracted(number, place.source)


def _after_phrases(answer: str) -> str:
    """The text after the sentence of the last "the answer is"."""
    place = phrase(answer)
    return "" if place is None else answer.rpartition(place.text)[2]


def _first_number(text: str, joins: re.Pattern[str] | None = _LISTED) -> str | None:
    """The first one that is not denied, unless another one competes with it."""
    part = text.rpartition("=")[2]
    part = part if _numbers(part) else text
    numbers = _numbers(part)
    left = standing(part, numbers)
    listed = (lambda gap: bool(joins.fullmatch(gap))) if joins else (lambda gap: False)
    return None if not left or competes(part, left[0], left, listed) else left[0].text


def _signed(text: str) -> str:
    """The words for a sign as one."""
    return _SIGN_WORD.sub("-", text)


def _numbers(text: str) -> list[Candidate]:
    found = ((match, _value(match)) for match in _NUMBER.finditer(text))
    return [
        Candidate(value, match[0].strip(), match.start(), match.end())
        for match, value in found
        if value is not None
    ]
