"""Mutable objects that both processes have: what one changes in them, the other sees."""

from __future__ import annotations

import _operator
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ale_criteria_python.inside.wire import Refer, Resolve, Shared

if __name__ != "ale_grading":
    from ale_criteria_python.inside.channel import deeply
    from ale_criteria_python.inside.wire import Decoder, Encoder

LONG, LONG_TOGETHER = 2_000, 20_000
"""Items of a container, and of all of them, that are looked through before each message. A longer
one is the same on both sides only during the call that it is an argument of."""


class Twins:
    """The objects, in the same order on both sides, and what the other side knows to be in them.

    A message has the content of those that have changed here, and the numbers of those that are not
    needed here any more, which both sides then forget.
    """

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.contents: list[Any] = []

    def encoded(self, value: Any, refer: Refer, shared: Shared, *, nested: bool = False) -> bytes:
        """A message; both sides then have the mutable objects in it.

        Args:
            nested: a call has begun whose arguments are needed until it ends.
        """
        changed = {
            number
            for number, (each, content) in enumerate(zip(self.values, self.contents))  # noqa: B905
            if each is not None and not same(content, content_of(each))
        }
        self.release(changed)
        encoder = Encoder(refer, shared, self.values)

        def write() -> None:
            encoder.write(value)
            for number in changed:
                encoder.parts.append(b"u%d\n" % number)
                encoder.content(self.values[number])

        deeply(write)
        gone = self.gone(nested) - encoder.used
        if gone:
            encoder.parts.append(b"g%s\n" % b" ".join(b"%d" % number for number in gone))
        self.note(encoder.keep, gone)
        return encoder.done()

    def decoded(self, data: bytes, resolve: Resolve, shared: Shared) -> Any:
        """The value of a message; fills the objects that the other side has changed."""
        decoder = Decoder(data, resolve, shared, self.values)
        gone: set[int] = set()

        def read() -> Any:
            value = decoder.read()
            while decoder.at < len(data):
                line = decoder.line()
                if line[:1] == b"g":
                    gone.update(map(int, line[1:].split()))
                elif line[:1] == b"u":
                    decoder.fill(decoder.keep[int(line[1:])])
                else:
                    raise ValueError("there is more than one value")
            return value

        value = deeply(read)
        self.note(decoder.keep, gone)
        return value

    def release(self, changed: set[int]) -> None:
        """Release objects that nothing else here refers to. Those that hold others come first."""
        for number in range(len(self.values)):
            # One reference is that of the list, one that of the call.
            if number not in changed and sys.getrefcount(self.values[number]) <= 2:
                self.values[number] = self.contents[number] = None

    def gone(self, nested: bool) -> set[int]:
        """Numbers of those that were released, and of those that are too long to be watched."""
        sizes = [0 if content is None else len(content) + 1 for content in self.contents]
        longest: float = LONG if sum(sizes) <= LONG_TOGETHER else -2
        longest = float("inf") if nested else longest
        return {
            number
            for number, size in enumerate(sizes)
            if self.values[number] is None or size > longest + 1
        }

    def note(self, values: list[Any], gone: set[int]) -> None:
        """Set what both sides have."""
        if gone:
            values = [value for number, value in enumerate(values) if number not in gone]
        self.values = values
        self.contents = [None if value is None else content_of(value) for value in values]


def content_of(value: Any) -> Any:
    """A copy of what is in a mutable object, one level deep."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return [*value, *dict.values(value)]
    if hasattr(value, "__dict__"):
        return content_of(vars(value))
    return list(value)


def same(one: Any, other: Any) -> bool:
    """Whether two contents have the same objects; nothing of theirs is called."""
    if isinstance(one, bytes):
        return bool(one == other)
    return len(one) == len(other) and all(map(_operator.is_, one, other))
