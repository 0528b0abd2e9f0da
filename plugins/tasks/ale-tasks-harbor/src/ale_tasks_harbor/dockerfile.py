"""What starts with a container, which a sandbox does not do itself."""

import shlex
from collections.abc import Sequence

_IDLE = "sh -c 'sleep infinity'"
"""What both harnesses give a container to do."""
_OF_THE_IMAGE = 'eval "set -- ${ALE_IMAGE_ENTRYPOINT-}"'
"""The sandboxes that have images tell it there."""
_START = '$(command -v setsid) "$@" </dev/null >/dev/null 2>&1 &'


def background(entrypoint: Sequence[str] = (), command: Sequence[str] = ()) -> str:
    """Shell script that makes what starts with a container its arguments; none is nothing.

    Args:
        entrypoint: of a compose file; empty is the image's own.
        command: likewise. An image's own is never run: the harnesses put theirs in its place.
    """
    own = f"set -- {shlex.join(entrypoint)}" if entrypoint else _OF_THE_IMAGE
    given = f'set -- "$@" {shlex.join(command)}' if command else f'set -- "$@" {_IDLE}'
    return f"{own}\n{given}" if command else f"{own}\n[ $# -eq 0 ] || {given}"


def started(words: str) -> tuple[str, ...]:
    """The setup step that starts it, in a session of its own."""
    return (f"{words}\n[ $# -gt 0 ] || exit 0\n{_START}",)


def again(words: str, health: Sequence[str] = (), own: str = "") -> str:
    """Starts it and waits: until a health check passes, else for a second.

    A check that fails is no fault of the sandbox's: the agent may have broken what it asks for, and
    the tests are to tell.

    Args:
        health: the task's check.
        own: waits for that of the container, where it has one.
    """
    waits = [f"({check}\n) || :" for check in health]
    return "\n".join((*started(words), *([own] if own else []), *(waits or ["sleep 1"])))
