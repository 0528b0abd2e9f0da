"""Read YAML 1.2 with line numbers, without implicit conversions.

Only ``true`` and ``false`` are booleans (``off`` is text, and an error where a boolean is
expected), ``1e-5`` is a number, and a duplicate key, a tag or a merge key is an error.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ale.errors import InputError, Problem, nearest
from ale.strict.node import Node, Scalar, describe
from ale.strict.texts import read_text

# The C loader, if PyYAML was built with it, is about ten times faster; the result is the same.
_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_WORDS: dict[str, Scalar] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= {word: True for word in ("true", "True", "TRUE")}
_WORDS |= {word: False for word in ("false", "False", "FALSE")}
_YAML_SUFFIXES = {".yaml", ".yml", ".json"}
_DEEPEST = 100
"""Levels of mappings and lists, so that whatever reads a tree may recurse."""
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("map", "seq", "str")}


def read_yaml(path: Path) -> Node:
    """Read one YAML (or JSON) file.

    Raises:
        InputError: it can't be read, is not UTF-8, or is not valid; every problem at once.
    """
    if path.is_dir():
        raise Node(None, str(path)).error("is a folder, not a YAML file")
    if not path.exists():
        raise Node(None, str(path)).error("no such file", hint=nearest_file(path))
    return parse_yaml(read_text(path), file=str(path))


def read_texts(path: Path) -> dict[str, str]:
    """Read a YAML (or JSON) file that maps keys to texts, without the blanks around these.

    Raises:
        InputError: as `read_yaml`, or something in it is no text.
    """
    root = read_yaml(path)
    if root.mapping is None:
        raise root.error(f"expected a mapping, found {describe(root.value)}")
    bad = [
        node.problem(f"expected a text, found {describe(node.value)}", path=key)
        for key, node in root.mapping.items()
        if not isinstance(node.value, str)
    ]
    if bad:
        raise InputError(bad)
    return {key: str(node.value).strip() for key, node in root.mapping.items()}


def nearest_file(path: Path) -> str | None:
    """A hint, as `nearest` gives it, for a missing file: a similar name of the same file type.

    A name without a suffix may also be short for a file with one.
    """
    try:
        siblings = [each for each in path.parent.iterdir() if each.name != path.name]
    except (OSError, ValueError):  # no folder, one that can't be read, or no path at all
        return None
    return nearest(path.name, [each.name for each in siblings if _same_type(path, each)])


def _same_type(wanted: Path, found: Path) -> bool:
    if not wanted.suffix and found.stem == wanted.name:
        return True
    return found.suffix == wanted.suffix or {wanted.suffix, found.suffix} <= _YAML_SUFFIXES


def parse_yaml(text: str, *, file: str | None = None) -> Node:
    """Read YAML text; `file` is its name in problems.

    Raises:
        InputError: it is not valid; every problem at once.
    """
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise InputError([_syntax(error, text, file)]) from None
    if root is None:
        return Node(None, file, 1)
    reader = _Reader(file)
    node = reader.read(root, root.start_mark.line + 1)
    if reader.problems:
        raise InputError(reader.problems)
    return node


def _syntax(error: yaml.YAMLError, text: str, file: str | None) -> Problem:
    mark = getattr(error, "problem_mark", None)
    message = getattr(error, "problem", None) or str(error).splitlines()[0]
    context = getattr(error, "context", None)
    # The C and the Python loader have different messages, so look for the tab itself.
    lines = text.splitlines()
    stopped = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    indent = stopped[: len(stopped) - len(stopped.lstrip())]
    hint = "indent with spaces" if "\t" in indent else None
    return Problem(
        message=f"not valid YAML: {message}" + (f" ({context})" if context else ""),
        file=file,
        line=None if mark is None else mark.line + 1,
        hint=hint,
    )


class _Reader:
    """Converts PyYAML nodes to `Node`s; an anchored node is converted once."""

    def __init__(self, file: str | None) -> None:
        self.problems: list[Problem] = []
        self._file = file
        self._open: set[int] = set()
        self._done: dict[int, Node] = {}

    def read(self, node: yaml.Node, line: int) -> Node:
        known = self._done.get(id(node))
        if known is not None:
            return Node(known.value, self._file, line)
        if id(node) in self._open:
            return self._refuse("an anchor that contains itself", line)
        if len(self._open) > _DEEPEST:
            return self._refuse(f"nested more than {_DEEPEST} levels deep", line)
        self._open.add(id(node))
        made = self._read(node, line)
        self._open.discard(id(node))
        self._done[id(node)] = made
        return made

    def _read(self, node: yaml.Node, line: int) -> Node:
        if node.tag not in _TAGS:
            return self._refuse(f"the tag {node.tag} is not supported", line)
        if isinstance(node, yaml.MappingNode):
            return Node(dict(self._entries(node)), self._file, line)
        if isinstance(node, yaml.SequenceNode):
            items = [self.read(child, child.start_mark.line + 1) for child in node.value]
            return Node(items, self._file, line)
        assert isinstance(node, yaml.ScalarNode)
        plain = not node.style  # a quoted or block scalar is always text
        return Node(_scalar(node.value) if plain else node.value, self._file, line)

    def _entries(self, node: yaml.MappingNode) -> Iterator[tuple[str, Node]]:
        first: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self._refuse("a key must be text", line)
            elif key.value in first:
                self._refuse(
                    f"'{key.value}' is given twice, first on line {first[key.value]}", line
                )
            elif key.value == "<<":
                self._refuse(
                    "merge keys are not supported", line, hint="use 'extends', or an alias"
                )
            else:
                first[key.value] = line
                yield key.value, self.read(value, line)

    def _refuse(self, message: str, line: int, hint: str | None = None) -> Node:
        self.problems.append(Problem(message=message, file=self._file, line=line, hint=hint))
        return Node(None, self._file, line)


def _scalar(text: str) -> Scalar:
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    if _FLOAT.fullmatch(text):
        lowered = text.lower()
        return float(lowered.replace(".inf", "inf").replace(".nan", "nan"))
    return text
