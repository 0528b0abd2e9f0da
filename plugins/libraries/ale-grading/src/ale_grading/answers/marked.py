r"""Answers that a model has marked: ``\boxed{}``, ``#### 18``, "The answer is 18."."""

import re
from collections.abc import Iterator

from ale_grading.answers.extracted import Extracted, without_reasoning

_TOKEN = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*+(?P<brace>\{)?|\\.|[{}]", re.DOTALL)
_INNER = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*+(?=\{)")
_LONGEST_GAP = 60
_BETWEEN_BOXES = re.compile(
    r"(?=.*(?:,|;|&|\band\b|\bor\b))"
    r"(?:[\s$,;&()]|\\\(|\\\)|\\q?quad|\\text\{\s*(?:and|or)\s*\}|\band\b|\bor\b"
    r"|[a-zA-Z](?:_\{?\w\}?)?\s*=)*",
    re.DOTALL,
)
_BARE = re.compile(r"[^\s${}\\.,;]+|\\[a-zA-Z]+")
_HASHES = re.compile(r"^[ \t]*+####(.*+)$", re.MULTILINE)
_PHRASE = re.compile(
    r"\banswer(?:\*\*|__)?\s?(?::|is\b:?|=)(?:\*\*|__)?\s{0,20}+(?=(?P<rest>[^\n]{0,1000}))",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_REASON = re.compile(
    r"(?<=\S)(?:\s+because\b|\s*[,(]?\s*(?:and\s+|but\s+)?not\b"
    r"|\s*,\s*(?:because|since|as|so|which|where|for|given|that is)\b)",
    re.IGNORECASE,
)
_AROUND = " \t*_`\"'"


def boxed(text: str) -> Extracted | None:
    r"""The content of the last complete ``\boxed{}`` or ``\fbox{}``, with nested braces.

    Empty ones don't count. Those that only "and", "or" or a comma stands between are one answer,
    with commas: ``\boxed{1} and \boxed{-2}`` is ``1, -2``. ``\boxed 5`` is understood too.
    """
    answer = without_reasoning(text)
    found: list[tuple[int, int, str]] = []
    for box in _boxes(answer):
        while found and found[-1][0] >= box[0]:  # within this one
            found.pop()
        found.append(box)
    filled = [box for box in found if box[2]]
    if not filled:
        return None
    return Extracted(", ".join(_last_joined(answer, filled)), r"the last \boxed{}")


def _last_joined(answer: str, boxes: list[tuple[int, int, str]]) -> list[str]:
    taken = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        gap = answer[box[1] : taken[0][0]]
        if len(gap) > _LONGEST_GAP or not _BETWEEN_BOXES.fullmatch(gap):
            break
        taken.insert(0, box)
    return list(dict.fromkeys(text for _, _, text in taken))


def _boxes(text: str) -> Iterator[tuple[int, int, str]]:
    """Where each begins and ends, and its content, in the order of their ends.

    One pass, so that a hostile text takes no longer.
    """
    opened: list[tuple[int, int] | None] = []
    for found in _TOKEN.finditer(text):
        piece = found[0]
        if found["brace"]:
            opened.append((found.start(), found.end()))
        elif piece == "{":
            opened.append(None)
        elif piece == "}" and opened:
            start = opened.pop()
            if start is not None:
                content = _INNER.sub("", text[start[1] : found.start()])
                yield start[0], found.end(), content.strip()
        elif piece.startswith((r"\boxed", r"\fbox")) and (bare := _BARE.match(text, found.end())):
            yield found.start(), bare.end(), bare[0]


def hashes(text: str) -> Extracted | None:
    """The rest of the last line that begins with ``####``."""
    found = [line.strip() for line in _HASHES.findall(without_reasoning(text)) if line.strip()]
    return Extracted(found[-1], "the last line that begins with ####") if found else None


def phrase(text: str) -> Extracted | None:
    """The text after the last "the answer is" or "answer:", up to the end of the sentence."""
    found = [match["rest"] for match in _PHRASE.finditer(without_reasoning(text))]
    answer = next(filter(None, map(_sentence, reversed(found))), None)
    return Extracted(answer, 'the last "the answer is"') if answer else None


def _sentence(rest: str) -> str:
    end = _SENTENCE_END.search(rest)
    sentence = rest[: end.start()] if end else rest
    why = _REASON.search(sentence)
    return (sentence[: why.start()] if why else sentence).strip(_AROUND)


def marked(text: str) -> Extracted | None:
    r"""The marked answer: ``\boxed{}``, or else ``####``, or else "the answer is"."""
    return boxed(text) or hashes(text) or phrase(text)


def last_line(text: str) -> Extracted | None:
    """The last line that is not blank, without the white space around it."""
    lines = [line.strip() for line in without_reasoning(text).splitlines() if line.strip()]
    return Extracted(lines[-1], "the last line") if lines else None
