"""The criterion on the content of a file."""

from typing import ClassVar

from attrs import frozen

from ale.errors import NoVerdictError
from ale.protocols import Sandbox
from ale.types import Score, Task, Trajectory
from ale_criteria_shell.matching import SearchTooLongError, matches
from ale_criteria_shell.options import FileContainsOptions
from ale_grading.signed_tests import CLEAN, excerpt

MAX_BYTES = 4 << 20
"""Only this much of a file is searched."""
# Reports what the path is before it is opened: a pipe or a device would block a reader for ever,
# and a link could lead to a file of the host that happens to contain the text.
_KIND = """
[ -e "$1" ] || { [ -L "$1" ] && echo dangling || echo missing; exit 0; }
real=$(readlink -f -- "$1") || exit 1
root=$(pwd -P)
case "$1" in
  /*) ;;
  *) case "$real" in "${root%/}"/*) ;; *) echo outside; exit 0 ;; esac ;;
esac
if [ -d "$real" ]; then echo folder; elif [ -f "$real" ]; then echo file; else echo special; fi
"""
_ERRORS = {
    "missing": "no such file",
    "dangling": "it is a dangling symbolic link",
    "outside": "a symbolic link leads out of the workspace",
    "folder": "it is a folder",
    "special": "it is not a regular file",
}


@frozen
class FileContains:
    """Passes when a file contains a text or a match of a regular expression."""

    options: FileContainsOptions
    needs_workspace: ClassVar[bool] = True

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        """One exec to see what the path is, one read. Raises as `Criterion.grade`."""
        error, timed_out = await self._error(sandbox), False
        if error is None:
            try:
                error = await self._mismatch(sandbox)
            except SearchTooLongError as late:
                error, timed_out = str(late), True
        wanted = self.options.pattern if self.options.text is None else self.options.text
        detail = f"{self.options.path!r} contains {wanted!r}"
        if error is not None:
            detail = f"{self.options.path!r}: {error}; expected it to contain {wanted!r}"
        return Score(
            criterion="file_contains",
            passed=error is None,
            value=float(error is None),
            detail=detail,
            timed_out=timed_out,
        )

    async def _error(self, sandbox: Sandbox) -> str | None:
        shell = ("/usr/bin/env", "-i", f"PATH={CLEAN['PATH']}", "/bin/sh", "-c", _KIND)
        result = await sandbox.exec((*shell, "ale-grading", self.options.path), timeout_s=60)
        kind = result.stdout.decode("utf-8", "replace").strip()
        if result.exit_code != 0 or (kind != "file" and kind not in _ERRORS):
            raise NoVerdictError(
                f"the sandbox could not examine {self.options.path!r} "
                f"(exit code {result.exit_code}): {excerpt(result.stderr)}"
            )
        return _ERRORS.get(kind)

    async def _mismatch(self, sandbox: Sandbox) -> str | None:
        limit = MAX_BYTES
        try:
            data = await sandbox.read(self.options.path, max_bytes=limit + 1)
        except (FileNotFoundError, IsADirectoryError) as error:
            return f"it changed during grading ({type(error).__name__})"
        except PermissionError:
            return "it can't be read: permission denied"
        text = data[:limit].decode("utf-8", "replace")
        if await self._holds(text):
            return None
        cut = f" in its first {limit} bytes" if len(data) > limit else ""
        what = "binary content" if b"\0" in data else excerpt(text)
        return f"not found{cut}, which is: {what}" if cut else f"not found in: {what}"

    async def _holds(self, text: str) -> bool:
        if self.options.pattern is not None:
            return bool(await matches(self.options.pattern, text))
        assert self.options.text is not None
        return self.options.text in text
