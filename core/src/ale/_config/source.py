"""Read a config file with what it extends, and lay ``--set`` over it."""

from collections.abc import Sequence
from pathlib import Path

from ale.strict import Node, describe, nearest_file, parse_yaml, read_yaml


def read_source(path: Path) -> Node:
    """The merged tree of `path` and of what it extends.

    Raises:
        InputError: a file can't be read, or extends itself.
    """
    return _read(path, ())


def lay_over(node: Node, overrides: Sequence[str]) -> Node:
    """A tree with overrides such as ``credit.type=grpo`` laid over it.

    Raises:
        InputError: an override is not ``key=value``.
    """
    # First laid over each other: whatever their order, a type and its options belong together.
    laid = Node({}, "--set", None)
    for override in overrides:
        laid = merge(laid, _parse_override(override))
    return Node(merge(node, laid).value, node.file, node.line)


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
    if not target.exists():
        raise base.error(f"no such file: {target}", path="extends", hint=nearest_file(target))
    if target.resolve() in (*above, path.resolve()):
        raise base.error(f"extends itself, over {target}", path="extends")
    return target


def merge(below: Node, above: Node) -> Node:
    """Lay one tree over another.

    Mappings are merged key by key, everything else is replaced; a mapping remembers a text that it
    replaces (see `Node.laid_over`). Where the ``type`` of a section changes, the options of the old
    type are dropped: they belong to another class.
    """
    if above.mapping is None or above.over is not None:
        return above
    if below.mapping is None:
        return above.laid_over(below)
    kept = dict(below.mapping)
    old, new = kept.get("type"), above.mapping.get("type")
    if old is not None and new is not None and old.value != new.value:
        kept = {}
    for key, child in above.mapping.items():
        kept[key] = merge(kept[key], child) if key in kept else child
    return Node(kept, above.file, above.line, below.over)


def _parse_override(text: str) -> Node:
    path, equals, value = text.partition("=")
    keys = path.split(".")
    if not equals or not all(keys):
        message = f"expected key.key=value, found '{text}'"
        raise Node(None, "--set").error(message, hint="for example --set credit.type=grpo")
    # Paths in an override are relative to the working folder, as on any command line.
    node = parse_yaml(value, file="--set")
    node = _without_line(node)
    for key in reversed(keys):
        node = Node({key: node}, "--set", None)
    return node


def _without_line(node: Node) -> Node:
    if node.mapping is not None:
        entries = {key: _without_line(child) for key, child in node.mapping.items()}
        return Node(entries, node.file, None)
    if node.items is not None:
        return Node([_without_line(child) for child in node.items], node.file, None)
    return Node(node.value, node.file, None)
