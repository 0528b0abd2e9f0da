"""What a Dockerfile asks for that a sandbox does not do."""

import json
import re
from collections.abc import Iterator

from attrs import frozen

_CONTINUED = re.compile(r"\\[ \t]*\n")
_PASSES_ON = {"tini", "dumb-init"}
_PLAIN = {"sh", "/bin/sh", "bash", "/bin/bash", "/usr/bin/bash", "env", "/usr/bin/env"}


@frozen(kw_only=True)
class Stage:
    """What the last stage of a Dockerfile sets; what it takes from its base is not seen."""

    entrypoint: str | None = None
    """Where it starts a program besides a shell."""
    user: str | None = None


def last_stage(text: str) -> Stage:
    """Read a Dockerfile's instructions."""
    entrypoint = user = None
    for word, rest in _instructions(text):
        if word == "FROM":
            entrypoint = user = None
        elif word == "ENTRYPOINT":
            entrypoint = None if _starts_nothing(rest) else rest
        elif word == "USER":
            user = rest
    return Stage(entrypoint=entrypoint, user=user)


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in _CONTINUED.sub(" ", "\n".join(lines)).splitlines():
        word, _, rest = line.strip().partition(" ")
        yield word.upper(), rest.strip()


def _starts_nothing(entrypoint: str) -> bool:
    """Is it empty, or a shell that would run the command it is given?"""
    if not entrypoint.startswith("["):
        return entrypoint in ("", *_PLAIN)
    try:
        words = json.loads(entrypoint)
    except ValueError:
        return False
    if words in ([], [""]) or words[0].rpartition("/")[2] in _PASSES_ON:
        return True
    return len(words) == 1 and words[0] in _PLAIN
