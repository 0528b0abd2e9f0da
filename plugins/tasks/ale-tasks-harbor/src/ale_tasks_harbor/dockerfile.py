"""The processes that start with a container, which a sandbox does not start itself."""

import shlex
from collections.abc import Sequence

_IDLE = "sh -c 'sleep infinity'"
"""The command that both harnesses give to a container."""
_OF_THE_IMAGE = 'eval "set -- ${ALE_IMAGE_ENTRYPOINT-}"'
"""Sandboxes with images pass the entrypoint in this variable."""
_START = '$(command -v setsid) "$@" </dev/null >/dev/null 2>&1 &'


def background(entrypoint: Sequence[str] = (), command: Sequence[str] = ()) -> str:
    """Shell script that sets its arguments to the command that starts with a container, or to none.

    Args:
        entrypoint: of a compose file; empty for the image's own.
        command: likewise. An image's own is never run, since both harnesses replace it.
    """
    own = f"set -- {shlex.join(entrypoint)}" if entrypoint else _OF_THE_IMAGE
    given = f'set -- "$@" {shlex.join(command)}' if command else f'set -- "$@" {_IDLE}'
    return f"{own}\n{given}" if command else f"{own}\n[ $# -eq 0 ] || {given}"


def started(words: str) -> tuple[str, ...]:
    """The setup step that starts the command in a new session."""
    return (f"{words}\n[ $# -gt 0 ] || exit 0\n{_START}",)


def again(words: str, health: Sequence[str] = (), own: str = "") -> str:
    """Script that starts the command again and waits until the health checks pass, or a second.

    A failing check is not an error here: the agent may have broken it, and the tests decide.

    Args:
        health: checks of the task.
        own: script that waits for the container's own check.
    """
    waits = [f"({check}\n) || :" for check in health]
    return "\n".join((*started(words), *([own] if own else []), *(waits or ["sleep 1"])))
