"""Runs git on the host: without the user's configuration, hooks, or questions at the terminal."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_SAFE = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "LC_ALL": "C",
}
_OPTIONS = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "safe.directory=*"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
)


class GitError(Exception):
    """A command of git failed; the message is what it said."""


def git(
    *arguments: str,
    cwd: Path | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> bytes:
    """What git prints.

    Args:
        env: added to an environment without the variables of git.
        options: before the subcommand.

    Raises:
        GitError: it failed, or is not installed.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *_OPTIONS, *options, *arguments],
            cwd=cwd,
            input=stdin,
            env={**kept, **_SAFE, **(env or {})},
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise GitError(f"git can't be started: {error}") from error
    if done.returncode != 0:
        output = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise GitError(f"git {arguments[0]}: {output}")
    return done.stdout


def lines(data: bytes) -> list[str]:
    """The entries of a listing that was made with ``-z``."""
    return [os.fsdecode(entry) for entry in data.split(b"\0") if entry]
