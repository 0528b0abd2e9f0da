"""Reads a page in tests, as a browser would."""

from collections.abc import Sequence
from html.parser import HTMLParser

_VOID = {"meta", "link", "br", "input", "img", "line"}

Attributes = dict[str, str | None]


class ReadPage(HTMLParser):
    """Elements, texts and scripts of a page.

    Raises:
        AssertionError: an element is not closed, or closed in the wrong place.
    """

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, Attributes]] = []
        self.scripts: list[tuple[Attributes, str]] = []
        self._words: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == [], f"never closed: {self._open}"

    @property
    def text(self) -> str:
        """The text without scripts and styles."""
        return " ".join(" ".join(self._words).split())

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.handle_startendtag(tag, attrs)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        """Note an empty element."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Check that the innermost element is closed."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note a text."""
        if self._open[-1:] == ["script"]:
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif self._open[-1:] != ["style"]:
            self._words.append(data)
