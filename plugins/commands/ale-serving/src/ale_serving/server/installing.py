"""Server programs that installed packages can install: their entry points."""

from importlib.metadata import entry_points
from pathlib import Path

from ale.errors import InputError, nearest

GROUP = "ale_server_programs"
"""Entry points of functions that take a build, or None, and return the folder of an environment."""


def install(program: str, build: str | None) -> Path:
    """Install a program into an environment of its own; its folder.

    Raises:
        InputError: no installed package can install it, or it has no such build.
        AleError: it can't be installed.
    """
    known = {each.name: each for each in entry_points(group=GROUP)}
    if program not in known:
        message = f"no installed package can install '{program}'"
        expected = ", ".join(sorted(known)) or "a package such as ale-vllm, which is not installed"
        hint = nearest(program, sorted(known))
        raise InputError.of(message, expected=expected, hint=hint)
    return Path(known[program].load()(build))
