"""Values beside the one that a test has, of which an object of the answer is asked as well."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NUMBERS = (bool, int, float, complex)


def others(value: Any) -> list[Any]:
    """The value, amid four that are like it and four that are not, in any order.

    Of those that are like it and itself, no one is in the middle more often than another.
    """
    from random import SystemRandom

    draw = SystemRandom()
    like = [value]
    for _ in range(4):
        if draw.random() < 0.5:
            like.append(changed(like[-1], 1, draw))
        else:
            like.insert(0, changed(like[0], -1, draw))
    unlike = [far_from(value, sign, draw) for sign in (1, 1, -1, -1)]
    made = like + unlike
    draw.shuffle(made)
    return made


def changed(value: Any, by: int, draw: Any) -> Any:
    """A value that differs a little."""
    kind = type(value)
    if kind in NUMBERS:
        return value + by
    if kind is str:
        at = draw.randrange(len(value)) if value else 0
        code = ord(value[at : at + 1] or "m") + by
        return value[:at] + chr(min(max(code, 32), sys.maxunicode)) + value[at + 1 :]
    if kind is bytes:
        return changed(value.decode("latin-1"), by, draw).encode("utf-8")
    if kind in (list, tuple):
        items = list(value) or [0]
        at = draw.randrange(len(items))
        items[at] = changed(items[at], by, draw)
        return kind(items)
    if kind in (set, frozenset):
        return kind((*list(value)[1:], draw.randrange(100)))
    if kind is dict and value:
        at = draw.choice(list(value))
        return {**value, at: changed(value[at], by, draw)}
    return draw.randrange(100)


def far_from(value: Any, sign: int, draw: Any) -> Any:
    """A value of the same type that has nothing to do with it."""
    kind = type(value)
    number = sign * draw.randrange(1 << 40, 1 << 50)
    if kind in NUMBERS:
        return number if kind is bool else kind(number)
    if kind is str:
        return f"{number:x}"
    if kind is bytes:
        return b"%x" % number
    if kind in (list, tuple, set, frozenset):
        return kind([number] * max(len(value), 1))
    return {number: number} if kind is dict else number
