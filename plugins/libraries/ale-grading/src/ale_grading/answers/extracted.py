"""An answer that was found in a text, and its place."""

from attrs import frozen

_END = "</think>"


@frozen
class Extracted:
    """An answer, and the place in the text that it was taken from."""

    text: str
    source: str
    """For people: ``the last code block tagged python (lines 3 to 9)``."""

    def __str__(self) -> str:
        return f"{self.text!r} from {self.source}"


def without_reasoning(text: str) -> str:
    """The text after the last ``</think>``; the whole text if there is none."""
    return text.rpartition(_END)[2]
