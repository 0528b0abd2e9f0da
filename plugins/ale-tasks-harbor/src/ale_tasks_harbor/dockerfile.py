"""What of a Dockerfile matters when its container starts, which a sandbox does not do itself."""

import json
import re
import shlex
from collections.abc import Iterator

from attrs import frozen

_CONTINUED = re.compile(r"\\[ \t]*\n")
_PASSES_ON = {"tini", "dumb-init"}
_IDLE = ("sh", "-c", "sleep infinity")
"""What both harnesses give a container to do."""
_START = "$(command -v setsid) sh -c {command} </dev/null >/dev/null 2>&1 &"
_PLAIN = {"sh", "/bin/sh", "bash", "/bin/bash", "/usr/bin/bash", "env", "/usr/bin/env"}


@frozen(kw_only=True)
class Stage:
    """What the last stage of a Dockerfile sets; what it takes from its base is not seen."""

    entrypoint: tuple[str, ...] = ()
    """Where it starts a program besides a shell."""
    user: str | None = None


def last_stage(text: str) -> Stage:
    """Read a Dockerfile's instructions."""
    entrypoint: tuple[str, ...] = ()
    user = None
    for word, rest in _instructions(text):
        if word == "FROM":
            entrypoint, user = (), None
        elif word == "ENTRYPOINT":
            entrypoint = _program(rest)
        elif word == "USER":
            user = rest.partition(":")[0]
    return Stage(entrypoint=entrypoint, user=user)


def background(entrypoint: tuple[str, ...], command: tuple[str, ...] = ()) -> str | None:
    """The shell command for what starts with a container; None where that does nothing."""
    return shlex.join((*entrypoint, *(command or _IDLE))) if entrypoint or command else None


def started(command: str | None) -> tuple[str, ...]:
    """The setup step that starts it, in a session of its own."""
    return () if command is None else (_START.format(command=shlex.quote(f"exec {command}")),)


def again(command: str | None, health: tuple[str, ...] = ()) -> str | None:
    """Starts it and waits: until a health check passes, else for a second."""
    if command is None:
        return None
    return "\n".join((*started(command), *(health or ("sleep 1",))))


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in _CONTINUED.sub(" ", "\n".join(lines)).splitlines():
        word, _, rest = line.strip().partition(" ")
        yield word.upper(), rest.strip()


def _program(entrypoint: str) -> tuple[str, ...]:
    """Its arguments; none where it is empty, or a shell that would run the command it is given."""
    words = [entrypoint] if entrypoint.strip() else []
    if entrypoint.startswith("["):
        try:
            words = [str(word) for word in json.loads(entrypoint)]
        except ValueError:
            return ("/bin/sh", "-c", entrypoint)
    elif entrypoint not in ("", *_PLAIN):
        return ("/bin/sh", "-c", entrypoint)
    if words and words[0].rpartition("/")[2] in _PASSES_ON:
        words = words[1:]
        while words and words[0].startswith("-"):
            words = words[1:]
    if not any(words) or (len(words) == 1 and words[0] in _PLAIN):
        return ()
    return tuple(words)
