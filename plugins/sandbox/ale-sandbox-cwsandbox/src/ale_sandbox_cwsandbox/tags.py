"""Tags of a sandbox: what it is for, and which process holds it."""

import re
from collections.abc import Iterable
from urllib.parse import unquote

from ale_sandboxing.remote.owners import names_of
from ale_sandboxing.remote.service import Request

MARK = "ale-sandbox"
"""On every sandbox of `ale`."""
_PREFIX = "ale-tag."
_OWNER = "ale-owner."
_ID = "ale-id."


def tags_of(own: Iterable[str], request: Request) -> list[str]:
    """All tags of one sandbox: `own`, ``job-RUN`` and ``problem-TASK``, and what finds it again."""
    named = [f"{kind}-{name}" for kind, name in names_of(request.tags).items()]
    exact = [f"{_PREFIX}{_quoted(key)}.{_quoted(value)}" for key, value in request.tags.items()]
    return [*own, *named, MARK, id_tag(request.id), f"{_OWNER}{request.owner}", *exact]


def id_tag(id: str) -> str:
    """The tag that the sandbox of one request alone has."""
    return f"{_ID}{id}"


def spec_tags(tags: Iterable[str]) -> dict[str, str]:
    """The tags of the request that a sandbox was made for."""
    parts = (tag.removeprefix(_PREFIX).split(".", 1) for tag in tags if tag.startswith(_PREFIX))
    return {_unquoted(key): _unquoted(value) for key, value in parts}


def owner_of(tags: Iterable[str]) -> str | None:
    """The process that holds it, as in the request."""
    return next((tag.removeprefix(_OWNER) for tag in tags if tag.startswith(_OWNER)), None)


def _quoted(text: str) -> str:
    """Letters, digits, ``-`` and ``_``; all else by its bytes, as ``_2E`` for a point."""
    return re.sub(r"[^A-Za-z0-9-]", lambda found: _bytes(found[0]), text)


def _bytes(character: str) -> str:
    return "".join(f"_{byte:02X}" for byte in character.encode())


def _unquoted(text: str) -> str:
    return unquote(text.replace("_", "%"))
