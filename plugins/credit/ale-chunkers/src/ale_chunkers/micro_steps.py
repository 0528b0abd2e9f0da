"""Find ``<micro-step>...</micro-step>`` and other tags, even malformed ones."""

import re
from collections.abc import Sequence

from ale.types import Range

Piece = tuple[str, int]
"""Kind (a tag's name or ``message``), and where in the text the piece ends."""

MICRO_STEP = ("micro-step",)


def tagged(text: str, tags: Sequence[str]) -> list[tuple[str, Range]]:
    """The tags of `text` by name, with their ranges, in order; none lies inside another.

    A closing tag closes the nearest open tag of its name. An opening tag that is never closed and
    a closing tag with nothing to close are plain text; a pair inside another pair is part of the
    outer pair.

    Returns:
        Half-open ranges of characters. Takes time linear in the text, for one tag.
    """
    if not any(f"</{tag}>" in text for tag in tags):
        return []
    opened: list[tuple[str, int]] = []
    found: list[tuple[str, Range]] = []
    for tag in re.finditer(f"<(/?)({'|'.join(map(re.escape, tags))})>", text):
        name = tag[2]
        if not tag[1]:
            opened.append((name, tag.start()))
        elif any(name == each for each, _ in opened):
            while opened[-1][0] != name:
                opened.pop()
            _, start = opened.pop()
            while found and found[-1][1][0] > start:
                found.pop()
            found.append((name, (start, tag.end())))
    return found


def micro_steps(text: str) -> list[Range]:
    """The ranges of the micro-steps of `text`; see `tagged`."""
    return [where for _, where in tagged(text, MICRO_STEP)]


def pieces(text: str, tags: Sequence[str] = MICRO_STEP) -> list[Piece]:
    """`text` cut at its tags: each pair, and the text before, between and after pairs.

    White space alone is not a piece: it belongs to the piece before it or, at the start, to the
    one after it. There is at least one piece, even for an empty text.
    """
    found: list[Piece] = []
    position = 0
    for name, (start, stop) in tagged(text, tags):
        _add_message(found, text, position, start)
        found.append((name, stop))
        position = stop
    _add_message(found, text, position, len(text))
    return found or [("message", len(text))]


def _add_message(found: list[Piece], text: str, start: int, stop: int) -> None:
    between = text[start:stop]
    if between and not between.isspace():
        found.append(("message", stop))
    elif found:
        found[-1] = (found[-1][0], stop)
