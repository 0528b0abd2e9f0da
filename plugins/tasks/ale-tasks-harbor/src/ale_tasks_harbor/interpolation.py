"""Variables in a compose file, filled in as docker compose does it.

Source: the compose specification, interpolation.
"""

import re
from collections.abc import Mapping
from typing import Any

_NAME = re.compile(r"\$(?:\$|\{?([A-Za-z_]\w*))")
_WORD = re.compile(r"[A-Za-z_]\w*")
_INNER = r"[^{}]*(?:\$\{[^{}]*\}[^{}]*)*"
_VARIABLE = re.compile(
    rf"\$(?:(?P<dollar>\$)|(?P<plain>[A-Za-z_]\w*)"
    rf"|\{{(?P<name>[A-Za-z_]\w*)(?:(?P<how>:?[-?+])(?P<word>{_INNER}))?\}})"
)
_PAIR = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*")


def words_of(text: str) -> frozenset[str]:
    """Every variable that a text may name, and other words."""
    return frozenset(_WORD.findall(text))


def names_in(value: Any) -> frozenset[str]:
    """Every variable that is filled in, in a text, list or table."""
    return frozenset(_NAME.findall(str(value))) - {""}


def filled(value: Any, variables: Mapping[str, str]) -> Any:
    """The value with all variables filled in, those in lists and tables too.

    Raises:
        ValueError: one that has to be set is not.
    """
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _of(match, variables), value)
    if isinstance(value, Mapping):
        return {name: filled(inner, variables) for name, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, variables) for inner in value]
    return value


def _of(match: re.Match[str], variables: Mapping[str, str]) -> str:
    if match["dollar"]:
        return "$"
    name = match["plain"] or match["name"]
    how, word = match["how"] or "", match["word"] or ""
    found = variables.get(name)
    # A colon: what is empty counts as not set.
    is_set = bool(found) if how.startswith(":") else found is not None
    if how.endswith("+"):
        return str(filled(word, variables)) if is_set else ""
    if is_set or not how:
        return found or ""
    if how.endswith("?"):
        raise ValueError(f"the variable {name} is not set: {word}")
    return str(filled(word, variables))


def pairs_of(text: str) -> dict[str, str]:
    """Variables of a file ``.env``: one on each line, perhaps in quotes."""
    found = {}
    for line in text.splitlines():
        match = _PAIR.fullmatch(line)
        if match is not None:
            found[match[1]] = _unquoted(match[2])
    return found


def _unquoted(value: str) -> str:
    quote = value[:1]
    if quote in ("'", '"') and quote in value[1:]:
        return value[1 : value.index(quote, 1)]
    return re.split(r"\s+#", value, maxsplit=1)[0]
