"""The agent gets one commit and nothing that came later; clones are made once."""

import multiprocessing
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from ale.testing.fakes import FolderSandbox
from ale.types import Task
from ale_tasks_swe.checkout import cut_checkout
from ale_tasks_swe.git import GitError, git
from ale_tasks_swe.mirrors import Mirrors
from ale_tasks_swe.source import CUT_IN_IMAGE

from .conftest import set_up


def commits(repository: Path) -> list[str]:
    """All commits, the newest first."""
    return git("rev-list", "--all", "--topo-order", cwd=repository).decode().split()


def contents(repository: Path) -> bytes:
    """Every object that there is, reachable or not."""
    return git("cat-file", "--batch-all-objects", "--batch", cwd=repository)


@pytest.fixture
def mirror(samples: Path) -> Path:
    return samples / "repositories" / "samples__ranges.git"


def later_lines(task: Task) -> list[bytes]:
    """What only the reference solution and the hidden tests have."""
    (command,) = task.solution or ()
    text = command + task.criteria[0].options["test_patch"]
    added = [line[1:].strip() for line in text.splitlines() if line.startswith("+")]
    return [line.encode() for line in added if len(line) > 20 and not line.startswith("++")]


async def test_nothing_of_later_commits_is_in_the_sandbox(
    tasks: Mapping[str, Task], samples: Path, sandbox: FolderSandbox
) -> None:
    for name, task in tasks.items():
        folder = Path(sandbox.workdir)
        await sandbox.exec("find . -mindepth 1 -delete")
        await set_up(task, sandbox)
        base = task.metadata["swe"]["base_commit"]
        mirror = samples / "repositories" / f"samples__{name}.git"
        later = git("rev-list", f"{base}..main", cwd=mirror).decode().split()
        assert len(later) == 2
        later += git("rev-list", "--objects", f"{base}..main", cwd=mirror).decode().split("\n")
        known = git(
            "cat-file", "--batch-all-objects", "--batch-check", "--unordered", cwd=folder
        ).decode()
        assert base in known
        assert [line for line in later if line and line.split(" ")[0] in known] == []
        assert git("rev-list", "--all", cwd=folder).decode().split() == [base]
        assert git("for-each-ref", cwd=folder).decode().split() == [
            base,
            "commit",
            "refs/heads/main",
        ]
        for command in (("remote",), ("tag",), ("stash", "list"), ("status", "--porcelain")):
            assert git(*command, cwd=folder) == b"", command
        assert b"dangling" not in git("fsck", "--full", cwd=folder)
        log = git("log", "--all", "--format=%s", cwd=folder)
        assert b"Fix it" not in log
        assert b"1.1" not in log


async def test_no_file_of_the_git_directory_leads_to_later_commits(
    tasks: Mapping[str, Task], sandbox: FolderSandbox
) -> None:
    await set_up(tasks["ranges"], sandbox)
    folder = Path(sandbox.workdir) / ".git"
    for name in ("FETCH_HEAD", "ORIG_HEAD", "packed-refs", "logs", "hooks", "info", "worktrees"):
        assert not (folder / name).exists(), name
    assert not (folder / "objects" / "info" / "alternates").exists()
    assert git("reflog", "--all", cwd=folder.parent) == b""
    config = (folder / "config").read_text()
    assert "remote" not in config
    assert "url" not in config
    mirrors = str(tasks["ranges"].criteria[0].options["repository"]).encode()
    for path in folder.rglob("*"):
        assert not path.is_file() or mirrors not in path.read_bytes(), path


async def test_neither_solution_nor_tests_can_be_found_by_the_agent(
    tasks: Mapping[str, Task], sandbox: FolderSandbox
) -> None:
    for task in tasks.values():
        await sandbox.exec("find . -mindepth 1 -delete")
        await set_up(task, sandbox)
        lines = later_lines(task)
        assert lines
        folder = Path(sandbox.workdir)
        seen = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
        seen += contents(folder) + (await sandbox.exec("env")).stdout + task.goal.encode()
        base = b"".join(path.read_bytes() for path in folder.rglob("*.py"))
        assert [line for line in lines if line in seen and line not in base] == []
        shown = f"{task.metadata}{task.environment}{task.setup_steps}{task.description}".encode()
        assert [line for line in lines if line in shown] == []


def test_the_leak_test_would_see_a_plain_clone(mirror: Path, tmp_path: Path) -> None:
    """The control: a clone that was only reset has all of it."""
    folder = tmp_path / "plain"
    git("clone", "--quiet", str(mirror), str(folder))
    git("reset", "--quiet", "--hard", "HEAD~2", cwd=folder)
    assert b"runs backwards" in contents(folder)
    assert git("reflog", "--all", cwd=folder) != b""


async def test_the_history_of_an_image_is_replaced_by_one_commit(
    mirror: Path, sandbox: FolderSandbox
) -> None:
    folder = Path(sandbox.workdir)
    git("clone", "--quiet", str(mirror), str(folder))
    git("reset", "--quiet", "--hard", "HEAD~2", cwd=folder)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "ignored").touch()
    files = git("ls-files", cwd=folder)
    result = await sandbox.exec(CUT_IN_IMAGE)
    assert result.exit_code == 0, result.stderr
    assert b"runs backwards" not in contents(folder)
    assert len(commits(folder)) == 1
    assert git("ls-files", cwd=folder) == files
    for command in (("remote",), ("tag",), ("reflog", "--all"), ("status", "--porcelain")):
        assert git(*command, cwd=folder) == b"", command


def test_earlier_commits_are_there_if_asked_for(mirror: Path, tmp_path: Path) -> None:
    newest = commits(mirror)
    base = newest[2]
    some = cut_checkout(mirror, base, 2, tmp_path, "a/b")
    everything = cut_checkout(mirror, base, 0, tmp_path, "a/b")
    assert commits(some) == newest[2:4]
    assert commits(everything) == newest[2:]
    assert not (everything / ".git" / "shallow").exists()


def test_a_commit_that_no_branch_has_is_found(mirror: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.git"
    git("clone", "--quiet", "--mirror", str(mirror), str(copy))
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    tree = git("rev-parse", "main^{tree}", cwd=copy).decode().strip()
    lone = git("commit-tree", tree, "-m", "Alone", cwd=copy, options=author).decode().strip()
    made = cut_checkout(copy, lone, 1, tmp_path, "a/b")
    assert git("log", "--format=%s", cwd=made) == b"Alone\n"


def _clone(address: str, cache: str, commit: str) -> None:
    Mirrors(folder=None, address=address, cache=Path(cache)).having("a/b", commit)


def test_processes_that_need_the_same_repository_clone_it_once(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A git that writes down what it is asked for.
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nexec {real.strip()} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    arguments = (mirror.as_uri(), str(tmp_path / "cache"), commits(mirror)[0])
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_clone, args=arguments) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len([line for line in asked if " clone " in line]) == 1
    assert [path.name for path in (tmp_path / "cache" / "mirrors").glob("*.git")] == ["a__b.git"]


def test_a_clone_that_lacks_a_commit_is_brought_up_to_date(mirror: Path, tmp_path: Path) -> None:
    origin = tmp_path / "origin.git"
    git("clone", "--quiet", "--mirror", str(mirror), str(origin))
    mirrors = Mirrors(folder=None, address=origin.as_uri(), cache=tmp_path / "cache")
    first = mirrors.having("a/b", commits(mirror)[0])
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    lone = git(
        *("commit-tree", "main^{tree}", "-p", "main", "-m", "New"), cwd=origin, options=author
    )
    new = lone.decode().strip()
    git("update-ref", "refs/heads/main", new, cwd=origin)
    assert mirrors.having("a/b", new) == first
    with pytest.raises(GitError, match="git fetch"):
        mirrors.having("a/b", "0" * 40)


@pytest.mark.parametrize("name", ["a/b.git", "a/b", "a__b.git", "b.git", "b"])
def test_a_folder_of_mirrors_may_name_them_in_several_ways(
    mirror: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    git("clone", "--quiet", "--mirror", str(mirror), str(tmp_path / name))
    found = Mirrors(folder=tmp_path, address="", cache=tmp_path).having("a/b", commits(mirror)[0])
    assert found == tmp_path / name


def test_a_mirror_that_is_missing_is_named(tmp_path: Path) -> None:
    mirrors = Mirrors(folder=tmp_path, address="", cache=tmp_path)
    with pytest.raises(GitError, match=r"no repository a/b in .*: expected a/b.git, a__b.git"):
        mirrors.having("a/b", "0" * 40)
