"""file_contains, with files that an adversary made."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ale.errors import GradingError
from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale.types import ExecResult, Score
from ale_criteria_shell.files import FileContains
from ale_criteria_shell.options import FileContainsOptions

Grade = Callable[..., Awaitable[Score]]


def contains(path: str = "answer", **options: Any) -> FileContains:
    return FileContains(FileContainsOptions(path=path, **(options or {"text": "42"})))


async def test_a_text_is_taken_literally(grade: Grade, sandbox: FolderSandbox) -> None:
    await sandbox.write("answer", b"abc")
    score = await grade(contains(text="a.c"))
    assert score.detail == "'answer': not found in: abc; expected it to contain 'a.c'"
    assert (await grade(contains(pattern="a.c"))).passed


async def test_each_thing_that_is_not_a_file_is_named(
    grade: Grade, sandbox: FolderSandbox, tmp_path: Path
) -> None:
    root = Path(sandbox.workdir)
    (tmp_path / "secret").write_text("42")
    (root / "folder").mkdir()
    (root / "nowhere").symlink_to("gone")
    (root / "loop").symlink_to("loop")
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "outdir").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")
    (root / "zero").symlink_to("/dev/zero")
    found = {
        name: (await grade(contains(name))).detail.partition(";")[0]
        for name in ("gone", "folder", "nowhere", "loop", "out", "outdir/secret", "pipe", "zero")
    }
    assert found == {
        "gone": "'gone': no such file",
        "folder": "'folder': it is a folder",
        "nowhere": "'nowhere': it is a dangling symbolic link",
        "loop": "'loop': it is a dangling symbolic link",
        "out": "'out': a symbolic link leads out of the workspace",
        "outdir/secret": "'outdir/secret': a symbolic link leads out of the workspace",
        "pipe": "'pipe': it is not a regular file",
        "zero": "'zero': a symbolic link leads out of the workspace",
    }


async def test_a_link_inside_the_workspace_is_followed(
    grade: Grade, sandbox: FolderSandbox
) -> None:
    await sandbox.write("real/answer", b"42")
    (Path(sandbox.workdir) / "answer").symlink_to("real/answer")
    assert (await grade(contains())).passed


@pytest.mark.parametrize("name", ["-n", "a b", "it's", "$(id)", "näme", "(", "a\nb", "!"])
async def test_odd_names_are_only_names(grade: Grade, sandbox: FolderSandbox, name: str) -> None:
    await sandbox.write(name, b"42")
    assert (await grade(contains(name))).passed


async def test_binary_content_is_called_that(grade: Grade, sandbox: FolderSandbox) -> None:
    await sandbox.write("answer", bytes(range(256)))
    score = await grade(contains(text="forty-two"))
    assert score.detail == (
        "'answer': not found in: binary content; expected it to contain 'forty-two'"
    )


async def test_only_the_first_bytes_are_looked_at(
    grade: Grade, sandbox: FolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sandbox.write("answer", b"x" * 100 + b"42")
    monkeypatch.setattr("ale_criteria_shell.files.MAX_BYTES", 102)
    assert (await grade(contains(text="42"))).passed
    monkeypatch.setattr("ale_criteria_shell.files.MAX_BYTES", 101)
    score = await grade(contains(text="42"))
    assert "not found in its first 101 bytes" in score.detail


class Unreadable(FolderSandbox):
    async def read(self, path: str, *, max_bytes: int | None = None) -> bytes:
        raise PermissionError(path)


async def test_a_file_without_permission_fails() -> None:
    sandbox = Unreadable()
    await sandbox.write("answer", b"42")
    score = await contains().grade(builders.task(), builders.trajectory(), sandbox)
    assert "permission denied" in score.detail
    await sandbox.close()


class NoShell(FolderSandbox):
    async def exec(self, command: Any, **arguments: Any) -> ExecResult:
        return ExecResult(exit_code=127, stdout=b"", stderr=b"/usr/bin/env: not found")


async def test_a_sandbox_without_a_shell_is_an_error_and_not_a_zero() -> None:
    sandbox = NoShell()
    with pytest.raises(GradingError, match="/usr/bin/env: not found"):
        await contains().grade(builders.task(), builders.trajectory(), sandbox)
    await sandbox.close()


@pytest.mark.parametrize(
    "options",
    [
        {"text": "a", "pattern": "a"},
        {"text": None},
        {"text": ""},
        {"pattern": "["},
        {"path": "../answer", "text": "a"},
        {"path": "", "text": "a"},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"text|pattern|path"):
        contains(**{"path": "answer", **options})
