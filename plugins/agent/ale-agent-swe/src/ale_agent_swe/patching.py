"""Applies what a model wrote to the files of a sandbox."""

from collections.abc import Mapping
from itertools import product
from pathlib import PurePosixPath

from ale.errors import SandboxError
from ale.protocols import Sandbox
from ale.types import ExecResult

SECONDS = 60.0
"""For one command of git."""
MISSING = 127
# Without the second, a change that ends without context has to be at the end of its file.
_LENIENCE = ((), ("--recount",), ("--recount", "--unidiff-zero"))


class RejectedError(Exception):
    """A patch can't be applied; the message is for the model, and nothing was changed."""


async def has_git(sandbox: Sandbox) -> bool:
    """Does the sandbox have git?"""
    result = await sandbox.exec(("git", "--version"), timeout_s=SECONDS)
    return result.exit_code != MISSING


async def change(
    sandbox: Sandbox, diff: object, files: Mapping[str, str], *, had_git: bool = False
) -> None:
    """Apply a diff, and write whole files; with neither, see that commands have changed some.

    Args:
        had_git: the sandbox had git when the agent began: if it has none now, its commands have
            removed it.

    Raises:
        RejectedError: nothing has changed, the diff does not apply, a path is none in the
            repository, or git was removed.
        SandboxError: the sandbox has failed, or never had git.
    """
    try:
        await _change(sandbox, diff, files)
    except _NoGitError:
        if had_git:
            raise RejectedError("git was removed, so no patch can be applied") from None
        raise


class _NoGitError(SandboxError):
    """There is no git."""


async def _change(sandbox: Sandbox, diff: object, files: Mapping[str, str]) -> None:
    if not isinstance(diff, str):
        raise RejectedError("diff is not a text")
    if not diff.strip() and not files and not await _changes_anything(sandbox):
        raise RejectedError("no diff was given, and no file has changed")
    for path in files:
        _check(path)
    if diff.strip():
        await _apply_diff(sandbox, diff.strip("\n") + "\n")
    for path, text in files.items():
        try:
            await sandbox.write(path, text.encode())
        except (OSError, ValueError) as error:
            raise RejectedError(f"{path} can't be written: {error}") from error


async def _changes_anything(sandbox: Sandbox) -> bool:
    """Whether git sees a change; a folder without git counts as changed."""
    result = await _git(sandbox, "status", "--porcelain")
    return result.exit_code != 0 or bool(result.stdout.strip())


def _check(path: str) -> None:
    parts = PurePosixPath(path).parts
    if path.startswith(("/", "~")) or ".." in parts or ".git" in parts or not parts:
        raise RejectedError(f"{path!r} is not a path in the repository")


async def _apply_diff(sandbox: Sandbox, diff: str) -> None:
    """Counts and numbers of lines may be wrong, and a/ and b/ before the paths be missing.

    The first complaint is the one about the diff as it was written.
    """
    first = None
    for strip, lenience in product(("-p1", "-p0"), _LENIENCE):
        options = (strip, *lenience, "--whitespace=nowarn", "-")
        result = await _git(sandbox, "apply", *options, stdin=diff.encode())
        if result.exit_code == 0:
            return
        first = first or result
    assert first is not None
    raise RejectedError(first.stderr.decode(errors="replace").strip() or "git apply failed")


async def _git(sandbox: Sandbox, *arguments: str, stdin: bytes = b"") -> ExecResult:
    command = ("git", *arguments)
    result = await sandbox.exec(command, stdin=stdin, env={"LC_ALL": "C"}, timeout_s=SECONDS)
    if result.exit_code == MISSING:
        raise _NoGitError("plan-patch-test applies diffs by git, which the sandbox does not have")
    return result
