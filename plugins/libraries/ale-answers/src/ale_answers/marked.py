r"""Answers that a model has marked: ``\boxed{}``, ``#### 18``, "The answer is 18."."""

import re
from collections.abc import Iterator

from ale_answers.extracted import Extracted, without_reasoning

_TOKEN = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*+(?P<brace>\{)?|\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"[^\s${}\\.,;]+|\\[a-zA-Z]+")
_HASHES = re.compile(r"^[ \t]*+####(.*+)$", re.MULTILINE)
_PHRASE = re.compile(
    r"\banswer(?:\*\*|__)?\s?(?::|is\b:?|=)(?:\*\*|__)?\s{0,20}+(?=(?P<rest>[^\n]{0,1000}))",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_AROUND = " \t*_`\"'"


def boxed(text: str) -> Extracted | None:
    r"""The content of the last complete ``\boxed{}`` or ``\fbox{}``, with nested braces.

    ``\boxed 5`` is understood too.
    """
    found = list(_boxes(without_reasoning(text)))
    return Extracted(found[-1], r"the last \boxed{}") if found else None


def _boxes(text: str) -> Iterator[str]:
    """In the order in which they end; one pass, so that a hostile text takes no longer."""
    opened: list[int | None] = []
    for found in _TOKEN.finditer(text):
        piece = found[0]
        if found["brace"]:
            opened.append(found.end())
        elif piece == "{":
            opened.append(None)
        elif piece == "}" and opened:
            start = opened.pop()
            if start is not None:
                yield text[start : found.start()].strip()
        elif piece.startswith((r"\boxed", r"\fbox")) and (bare := _BARE.match(text, found.end())):
            yield bare[0]


def hashes(text: str) -> Extracted | None:
    """The rest of the last line that begins with ``####``."""
    found = [line.strip() for line in _HASHES.findall(without_reasoning(text)) if line.strip()]
    return Extracted(found[-1], "the last line that begins with ####") if found else None


def phrase(text: str) -> Extracted | None:
    """What follows the last "the answer is" or "answer:", up to the end of the sentence."""
    found = [match["rest"] for match in _PHRASE.finditer(without_reasoning(text))]
    answers = [answer for rest in found if (answer := _sentence(rest))]
    return Extracted(answers[-1], 'the last "the answer is"') if answers else None


def _sentence(rest: str) -> str:
    end = _SENTENCE_END.search(rest)
    return (rest[: end.start()] if end else rest).strip(_AROUND)


def marked(text: str) -> Extracted | None:
    r"""The marked answer: ``\boxed{}``, or else ``####``, or else "the answer is"."""
    return boxed(text) or hashes(text) or phrase(text)


def last_line(text: str) -> Extracted | None:
    """The last line that is not blank, without the white space around it."""
    lines = [line.strip() for line in without_reasoning(text).splitlines() if line.strip()]
    return Extracted(lines[-1], "the last line") if lines else None
