"""Tags of a sandbox: what it is for, and which process holds it."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from attrs import evolve

from ale_sandbox_shell.owner import Owner

MARK = "ale-sandbox"
"""On every sandbox of `ale`."""
_EPISODE = re.compile(r"(?:evaluation-)?\d+-(?P<task>.+?)(?:@.*)?-\d+")
_PREFIX = "ale-tag."
_OWNER = "ale-owner."
_ID = "ale-id."


def tags_of(own: Iterable[str], tags: Mapping[str, str], owner: Owner, id: str) -> list[str]:
    """All tags of one sandbox.

    Args:
        own: from the options.
        tags: of its spec; ``job-RUN`` and ``problem-TASK`` are made from ``run`` and ``episode``.
        id: of the request, to find a sandbox whose creation was not answered.
    """
    named = [f"job-{tags['run']}"] if "run" in tags else []
    episode = _EPISODE.fullmatch(tags.get("episode", ""))
    if episode is not None:
        named.append(f"problem-{episode['task']}")
    exact = [f"{_PREFIX}{_quoted(key)}.{_quoted(value)}" for key, value in tags.items()]
    return [*own, *named, MARK, id_tag(id), _owner_tag(owner), *exact]


def id_tag(id: str) -> str:
    """The tag that one sandbox alone has."""
    return f"{_ID}{id}"


def spec_tags(tags: Iterable[str]) -> dict[str, str]:
    """The tags of the spec that a sandbox was made from."""
    parts = (tag.removeprefix(_PREFIX).split(".", 1) for tag in tags if tag.startswith(_PREFIX))
    return {_unquoted(key): _unquoted(value) for key, value in parts}


def owner_alive(tags: Iterable[str], me: Owner) -> bool:
    """Does the process live that holds the sandbox? Also True where it can't be known from here."""
    found = next((tag for tag in tags if tag.startswith(_OWNER)), None)
    if found is None:
        return True
    machine, boot, namespace, pid, start = found.removeprefix(_OWNER).split(".")
    if machine != _short(me.machine):
        return True
    if boot != _short(me.boot):
        return False
    return evolve(me, pid=int(pid), start=int(start), namespace=int(namespace)).alive


def _owner_tag(owner: Owner) -> str:
    place = f"{_short(owner.machine)}.{_short(owner.boot)}.{owner.namespace}"
    return f"{_OWNER}{place}.{owner.pid}.{owner.start}"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _quoted(text: str) -> str:
    """Letters, digits, ``-`` and ``_``; all else by its bytes, as ``_2E`` for a point."""
    return re.sub(r"[^A-Za-z0-9-]", lambda found: _bytes(found[0]), text)


def _bytes(character: str) -> str:
    return "".join(f"_{byte:02X}" for byte in character.encode())


def _unquoted(text: str) -> str:
    return unquote(text.replace("_", "%"))
