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


async def change(sandbox: Sandbox, diff: object, files: Mapping[str, str]) -> None:
    """Apply a diff, and write whole files; with neither, see that commands have changed some.

    Raises:
        RejectedError: nothing has changed, the diff does not apply, or a path is none in the
            repository.
        SandboxError: the sandbox has failed, or has no git.
    """
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
        raise SandboxError("plan-patch-test applies diffs by git, which the sandbox does not have")
    return result
