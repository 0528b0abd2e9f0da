"""Environment variables such as ``ALE_LLM__MODEL`` that override keys of a config."""

import re
from collections.abc import Collection, Iterator, Mapping

from ale._config.source import merge, parse_override
from ale.errors import InputError, Problem
from ale.strict import Node

_PREFIX = "ALE_"
_BETWEEN = "__"
"""Between the parts of a key: one underscore is part of a name."""
_LISTS = ("middleware", "scorers", "observers", "plugins")
"""Sections that have no keys and so are given whole: ``ALE_OBSERVERS``."""
_OF_OTHERS = ("ALE_RUN_DIRECTORY", "ALE_SANDBOX")
"""Variables that launchers and sandboxes give to processes; both look like misspelt keys."""
_VARIABLE = re.compile(r"ALE_[A-Z0-9_]+")
_SECRET_WORDS = re.compile(
    r"(^|_)(API|ACCESS|AUTH)?(KEYS?|TOKENS?|SECRETS?|PASS|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?)(_|$)",
    re.IGNORECASE,
)
_NOT_SECRET = re.compile(r"_(FIELD|FILE|PATH|DIR|ENV|NAME|ID|SOCK|URL)$", re.IGNORECASE)
SHORTEST = 8
"""Characters of a secret."""


def looks_secret(name: str, value: str) -> bool:
    """Whether a variable holds a secret, by the words in its name (``KEY``, ``TOKEN``, ...)."""
    listed = _SECRET_WORDS.search(name) and not _NOT_SECRET.search(name)
    return bool(listed) and len(value) >= SHORTEST


def overriding(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that override, and the dotted keys that they override.

    One that is empty counts as not set.
    """
    return {
        name: key
        for name, value in sorted(environ.items())
        if value and (key := _key(name)) is not None
    }


def parse_environment(environ: Mapping[str, str], sections: Collection[str]) -> Node:
    """One tree of all of them, whose nodes have the variable's name as their file.

    Args:
        sections: of a config.

    Raises:
        InputError: a variable has one underscore where two are meant or names a whole section, or
            its value is no YAML.
    """
    problems = [*_misspelt(environ, sections)]
    if problems:
        raise InputError(problems)
    tree = Node({}, None, None)
    for name, key in overriding(environ).items():
        tree = merge(tree, parse_override(f"{key}={environ[name]}", name))
    return tree


def values_from(tree: Node, files: Collection[str]) -> Node | None:
    """The part of a tree whose values have one of these names as their file, if there is any."""
    if tree.mapping is None:
        return tree if tree.file in files else None
    found = {key: values_from(child, files) for key, child in tree.mapping.items()}
    kept = {key: child for key, child in found.items() if child is not None}
    return Node({**kept}, tree.file, tree.line) if kept else None


def notes(tree: Node) -> list[str]:
    """Which values of a merged tree are from variables, a line each."""
    return [f"{key} is set by {name}" for key, name in origins(tree)]


def origins(tree: Node, path: str = "") -> Iterator[tuple[str, str]]:
    """Key and variable of each value of a merged tree that is from a variable."""
    if tree.file is not None and _VARIABLE.fullmatch(tree.file) and path and not tree.mapping:
        yield path, tree.file
        return
    for key, child in (tree.mapping or {}).items():
        yield from origins(child, f"{path}.{key}" if path else key)


def _key(name: str) -> str | None:
    if not name.startswith(_PREFIX):
        return None
    rest = name.removeprefix(_PREFIX).lower()
    parts = rest.split(_BETWEEN)
    if len(parts) > 1 and all(parts):
        return ".".join(parts)
    return rest if rest in _LISTS else None


def _misspelt(environ: Mapping[str, str], sections: Collection[str]) -> Iterator[Problem]:
    for name, value in sorted(environ.items()):
        if not value or not name.startswith(_PREFIX) or _BETWEEN in name:
            continue
        if name in _OF_OTHERS and not value.startswith("{"):  # a mapping is meant for a config
            continue
        if looks_secret(name, value):  # a name of the user's own choice
            continue
        section, underscore, rest = name.removeprefix(_PREFIX).partition("_")
        if underscore and rest and section.lower() in sections:
            hint = f"did you mean {_PREFIX}{section}{_BETWEEN}{rest}?"
            yield Problem(message="two underscores are between the parts", file=name, hint=hint)
        elif not underscore and section.lower() in sections and section.lower() not in _LISTS:
            expected = f"{name}{_BETWEEN}KEY, for each key of the section"
            message = "a section can't be set as a whole"
            yield Problem(message=message, file=name, expected=expected)
