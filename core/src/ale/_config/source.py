"""Read a config file with the files it extends, and merge ``--set`` overrides into it."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

from ale.errors import InputError
from ale.strict import Node, describe, from_plain, nearest_file, parse_yaml, read_yaml


def read_source(path: Path) -> Node:
    """The merged tree of a config file and the files that it extends.

    Raises:
        InputError: a file can't be read, or extends itself.
    """
    return _read(path, ())


def parse_overrides(overrides: Sequence[str]) -> Node:
    """One tree of all overrides such as ``credit.type=grpo``; a later one wins.

    Raises:
        InputError: an override is not ``key=value``.
    """
    # Merged with each other first, so that the order of a type and its options does not matter.
    tree = Node({}, "--set", None)
    for override in overrides:
        tree = merge(tree, parse_override(override))
    return tree


def _read(path: Path, above: tuple[Path, ...]) -> Node:
    node = read_yaml(path)
    if node.value is None:
        node = Node({}, node.file, node.line)
    if node.mapping is None:
        raise node.error(f"expected a mapping, found {describe(node.value)}")
    bases = node.mapping.pop("extends", None)
    if bases is None:
        return node
    made = Node({}, node.file, node.line)
    for base in bases.items if bases.items is not None else [bases]:
        made = merge(made, _read(_base_path(base, path, above), (*above, path.resolve())))
    return merge(made, node)


def _base_path(base: Node, path: Path, above: tuple[Path, ...]) -> Path:
    if not isinstance(base.value, str):
        raise base.error(f"expected a file's path, found {describe(base.value)}", path="extends")
    target = path.parent / base.value
    if not os.path.exists(target):  # noqa: PTH110 (a name may be too long)
        raise base.error(f"no such file: {target}", path="extends", hint=nearest_file(target))
    if target.is_dir():
        raise base.error(f"{target} is a folder, not a YAML file", path="extends")
    if target.resolve() in (*above, path.resolve()):
        raise base.error(f"extends itself through {target}", path="extends")
    return target


def merge(below: Node, above: Node) -> Node:
    """Merge one tree over another.

    Mappings are merged key by key, everything else is replaced; a mapping remembers the text that
    it replaced (see `Node.replacing`). If the ``type`` of a section changes, its other options are
    marked with the new type (see `Node.new_type`): `select` drops those that the new type lacks, or
    all of them if an override gave the whole section.
    """
    if above.mapping is None or above.replaced_text is not None:
        return above
    if below.mapping is None:
        return above.replacing(below)
    merged = dict(below.mapping)
    old, new = merged.get("type"), above.mapping.get("type")
    if old is not None and new is not None and old.value != new.value:
        merged = {key: evolve(child, new_type=new) for key, child in merged.items()}
    for key, child in above.mapping.items():
        merged[key] = merge(merged[key], child) if key in merged else child
    # An override of one option does not write the section, unless it gives it another type.
    inside = above.line is None and below.line is not None and new is None
    written = below if inside else above
    return Node(merged, written.file, written.line, below.replaced_text)


def parse_override(text: str, origin: str = "--set") -> Node:
    """The tree of one override.

    Args:
        origin: where it was given, for messages.

    Raises:
        InputError: it is not ``key=value``, or the value is no YAML.
    """
    path, equals, value = text.partition("=")
    if not equals or not all(path.split(".")):
        message = f"expected key.key=value, found '{text}'"
        raise Node(None, origin).error(message, hint="for example --set credit.type=grpo")
    try:
        return override(path, parse_yaml(value, file=origin).plain(), origin)
    except InputError as error:
        raise InputError([evolve(each, line=None, path=path) for each in error.problems]) from None


def override(path: str, value: Any, origin: str) -> Node:
    """The tree of an override's value, a plain one; its nodes have no line.

    Args:
        path: dotted: ``credit.type``.
        origin: where it was given, for messages.

    Raises:
        InputError: a part of the path is empty.
    """
    keys = path.split(".")
    if not all(keys):
        raise Node(None, origin).error(f"expected a key such as credit.type, found '{path}'")
    node = from_plain(value, file=origin)
    if node.mapping is not None and "type" in node.mapping:
        node.mapping["type"] = evolve(node.mapping["type"], whole_section=True)
    for key in reversed(keys):
        node = Node({key: node}, origin, None)
    return node
