"""A value with the file and line that it was written on."""

import re
from typing import Any

from attrs import evolve, frozen

from ale.errors import InputError, Problem

Scalar = str | int | float | bool | None


@frozen(eq=False)
class Node:
    """A mapping, a list or a scalar, with its file and 1-based line.

    A value in a mapping carries the line of its key.
    """

    value: "dict[str, Node] | list[Node] | Scalar"
    file: str | None = None
    line: int | None = None
    replaced_text: "Node | None" = None
    """The text that this mapping replaced in a merge: see `replacing`."""
    new_type: "Node | None" = None
    """For an option of a section: the ``type`` that a merge gave the section after this option was
    written. The new type may not have the option."""
    whole_section: bool = False
    """For a ``type``: an override gave it with its section (``--set starts={type: parallel}``), so
    that no option of the old type is retained."""

    def replacing(self, old: "Node") -> "Node":
        """This mapping, merged over `old`, which is no mapping.

        If `old` is text, and the mapping is structured into a class with exactly one required field
        that the mapping does not set, the text becomes that field's value:
        ``{mask: none}`` over ``grpo`` is ``{preset: grpo, mask: none}``.
        """
        return evolve(self, replaced_text=old) if isinstance(old.value, str) else self

    @property
    def mapping(self) -> "dict[str, Node] | None":
        """The entries, or None if this is not a mapping."""
        return self.value if isinstance(self.value, dict) else None

    @property
    def items(self) -> "list[Node] | None":
        """The items, or None if this is not a list."""
        return self.value if isinstance(self.value, list) else None

    def get(self, key: str) -> "Node | None":
        """An entry of a mapping, or None."""
        return self.value.get(key) if isinstance(self.value, dict) else None

    def innermost(self, path: str) -> "Node":
        """The value at ``sandbox.env.A`` or ``steps[1].command``, or the innermost around it."""
        found = self
        for part in re.findall(r"[^.\[\]]+", path):
            items = found.items
            below = found.get(part)
            if items is not None and part.isdecimal() and int(part) < len(items):
                below = items[int(part)]
            if below is None:
                break
            found = below
        return found

    def section(self, name: str) -> "Node":
        """The section of a config that selects a component.

        Raises:
            InputError: it is missing, or is no mapping.
        """
        found, expected = self.get(name), f"{name}: {{type: ...}}"
        if found is None:
            raise self.error(f"section '{name}' is missing", expected=expected)
        if found.mapping is None:
            message = f"expected a mapping, found {describe(found.value)}"
            raise found.error(message, path=name, expected=expected)
        return found

    def plain(self) -> Any:
        """The value as plain Python types."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def problem(
        self, message: str, *, path: str = "", expected: str | None = None, hint: str | None = None
    ) -> Problem:
        """A problem at this file and line."""
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
        """An error with one problem at this file and line."""
        return InputError([self.problem(message, path=path, expected=expected, hint=hint)])


def from_plain(value: Any, *, file: str | None = None, line: int | None = None) -> Node:
    """Wrap Python mappings, lists and scalars; all nodes get the same file and line."""
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
