"""Claims of a text about its candidates: one is denied, two compete, a later one corrects."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from attrs import frozen

_NEAR = 60
"""Characters around a candidate in which a word belongs to it."""
_DENIED = re.compile(
    r"(?:(?:n['’]t|\bnot)\s+(?:think|believe|say|mean)(?:\s+[\w'’]+){0,4}"
    r"|(?:\b(?:not|never|neither|nor|cannot|rather than|instead of|unlike|ruled? out|eliminate)"
    r"|n['’]t)(?:\s+(?!and\b|but\b|or\b)[\w'’*]+){0,2})\s*[\s$(*\[\"'\\{]*$",
    re.IGNORECASE,
)
_WRONG = re.compile(
    r"^[)*\]\"'}$.:]*\s+(?:is|are|was|were|can|could|must|would)\s*(?:\w+\s+)?"
    r"(?:wrong|incorrect|false|not|n['’]t|impossible|too|ruled|eliminated|out)\b|"
    r"^[)*\]\"'}$]*\s+(?:isn|aren|wasn|can|couldn|won)['’]?t\b",
    re.IGNORECASE,
)
_JOINED = re.compile(
    r"\bor\b|\band/or\b|\bmaybe\b|\bperhaps\b|\bpossibly\b|\b(?:could|might|may) be\b|\bversus\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[.!?](?:\s|$)|\n")
_BETWEEN = re.compile(r"\b(?:between|from|both|either)\b[^.!?\n]{0,30}$", re.IGNORECASE)
_CORRECTION = re.compile(
    r"\b(?:no[,.]?\s+wait|wait[,.]?\s+no\b(?!\s+need|t)|scratch\s+that|correction|let\s+me\s+correct)"
    r"\b[\s,.:;—–-]*(?:(?:that|it|this)(?:['’]s|\s+is|\s+should\s+be)\s*)?",
    re.IGNORECASE,
)


@frozen
class Candidate:
    """An answer that a text names."""

    value: object
    """Equal for two that say the same."""
    text: str
    begin: int
    end: int


def standing(text: str, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates that the text does not deny ("not 42", "A is wrong")."""
    return [each for each in candidates if not _is_denied(text, each)]


def _is_denied(text: str, each: Candidate) -> bool:
    before = text[max(0, each.begin - _NEAR) : each.begin]
    return bool(
        _DENIED.search(_sentence_end(before)) or _WRONG.search(text[each.end : each.end + _NEAR])
    )


def _sentence_end(text: str) -> str:
    """The part of a text that belongs to the sentence in which it ends."""
    cuts = [found.end() for found in _SENTENCE.finditer(text)]
    return text[cuts[-1] :] if cuts else text


def competes(
    text: str,
    chosen: Candidate,
    candidates: Sequence[Candidate],
    joins: Callable[[str], bool] = lambda gap: False,
) -> bool:
    """Does the text name a neighbour of the chosen one as well ("12 or 13")?

    Args:
        joins: whether what stands between two makes them alternatives, besides the usual words.
    """
    at = candidates.index(chosen)
    for one, other in pairwise(candidates[max(0, at - 1) : at + 2]):
        gap = text[one.end : other.begin]
        before = text[max(0, one.begin - _NEAR) : one.begin]
        among = bool(_BETWEEN.search(before)) and re.search(r"\b(?:and|to)\b", gap)
        near = len(gap) <= _NEAR and not _SENTENCE.search(gap)
        if one.value != other.value and near and (_JOINED.search(gap) or among or joins(gap)):
            return True
    return False


def corrected(text: str) -> str:
    """The text after the last "no wait", if somebody has corrected himself; else the text."""
    found = list(_CORRECTION.finditer(text))
    rest = text[found[-1].end() :] if found else ""
    return rest if rest.strip(" .!?\n") else text
