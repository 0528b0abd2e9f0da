"""Finding ``<micro-step>...</micro-step>`` in a message, whatever the model made of the tags."""

import re

from ale.types import Range

Piece = tuple[str, int]
"""Kind (``micro-step`` or ``message``) and where in the text it ends."""

_OPEN = "<micro-step>"
_CLOSE = "</micro-step>"
_TAG = re.compile(f"{_OPEN}|{_CLOSE}")


def micro_steps(text: str) -> list[Range]:
    """Where the micro-steps of `text` lie, tags included, in order, none inside another.

    A closing tag closes the nearest open one. An opening tag that is never closed and a closing
    tag with nothing to close are plain text; a step inside another is part of the outer one.

    Returns:
        Half-open ranges of characters. Takes time linear in the text.
    """
    if _CLOSE not in text:
        return []
    opened: list[int] = []
    steps: list[Range] = []
    for tag in _TAG.finditer(text):
        if tag.group() == _OPEN:
            opened.append(tag.start())
        elif opened:
            start = opened.pop()
            while steps and steps[-1][0] > start:
                steps.pop()
            steps.append((start, tag.end()))
    return steps


def pieces(text: str) -> list[Piece]:
    """`text` cut at its micro-steps: each step, and what is written before, between and after.

    Nothing but white space is no piece: it belongs to the piece before it, or, at the start, to
    the one after it. At least one piece, even of an empty text.
    """
    found: list[Piece] = []
    position = 0
    for start, stop in micro_steps(text):
        _add_message(found, text, position, start)
        found.append(("micro-step", stop))
        position = stop
    _add_message(found, text, position, len(text))
    return found or [("message", len(text))]


def _add_message(found: list[Piece], text: str, start: int, stop: int) -> None:
    between = text[start:stop]
    if between and not between.isspace():
        found.append(("message", stop))
    elif found:
        found[-1] = (found[-1][0], stop)
