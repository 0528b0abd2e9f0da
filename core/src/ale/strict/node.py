"""A value that knows where it was written."""

from typing import Any

from attrs import evolve, frozen

from ale.errors import InputError, Problem

Scalar = str | int | float | bool | None


@frozen(eq=False)
class Node:
    """A mapping, a list or a scalar, with the file and the 1-based line it stands on.

    A value in a mapping carries the line of its key.
    """

    value: "dict[str, Node] | list[Node] | Scalar"
    file: str | None = None
    line: int | None = None
    over: "Node | None" = None
    """The text that this mapping was laid over: see `laid_over`."""

    def laid_over(self, below: "Node") -> "Node":
        """This mapping, where something else stood before.

        Where that was a text and the mapping becomes a class with one required field, the text is
        the value of that field if the mapping gives none: a part laid over a bare name.
        """
        return evolve(self, over=below) if isinstance(below.value, str) else self

    @property
    def mapping(self) -> "dict[str, Node] | None":
        """The entries, or None where this is no mapping."""
        return self.value if isinstance(self.value, dict) else None

    @property
    def items(self) -> "list[Node] | None":
        """The items, or None where this is no list."""
        return self.value if isinstance(self.value, list) else None

    def get(self, key: str) -> "Node | None":
        """An entry of a mapping, or None."""
        return self.value.get(key) if isinstance(self.value, dict) else None

    def plain(self) -> Any:
        """The value in Python's own types."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def problem(
        self, message: str, *, path: str = "", expected: str | None = None, hint: str | None = None
    ) -> Problem:
        """A problem at this place."""
        return Problem(
            message=message,
            file=self.file,
            line=self.line,
            path=path or None,
            expected=expected,
            hint=hint,
        )

    def error(
        self, message: str, *, path: str = "", expected: str | None = None, hint: str | None = None
    ) -> InputError:
        """The error of one problem at this place."""
        return InputError([self.problem(message, path=path, expected=expected, hint=hint)])


def from_plain(value: Any, *, file: str | None = None, line: int | None = None) -> Node:
    """Wrap Python's own mappings, lists and scalars, all standing at one place."""
    if isinstance(value, dict):
        entries = {
            str(key): from_plain(child, file=file, line=line) for key, child in value.items()
        }
        return Node(entries, file, line)
    if isinstance(value, list | tuple):
        return Node([from_plain(child, file=file, line=line) for child in value], file, line)
    return Node(value, file, line)


def describe(value: object) -> str:
    """A value in words, for ``found ...``."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        shown = value if len(value) <= 60 else value[:57] + "..."
        return f'the text "{shown}"'
    return "a mapping" if isinstance(value, dict) else "a list"
