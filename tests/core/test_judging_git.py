"""What an index of git says of the files that git does not look at, and of copies."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ale.judging import git

PLAIN = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


def run(folder: Path, *arguments: str) -> int:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, cwd=folder, env={**os.environ, **PLAIN}, check=False).returncode


def repository(folder: Path, *options: str) -> Path:
    (folder / "deep").mkdir(parents=True)
    for name in ("link", "deep/a", "deep/ab", "ü"):
        (folder / name).write_text(name)
    assert run(folder, "init", "-q", *options, ".") == 0
    return folder


@pytest.mark.parametrize("version", ["2", "4"])
@pytest.mark.parametrize("hashes", ["sha1", "sha256"])
def test_what_was_up_to_date_is_so_in_a_copy(tmp_path: Path, version: str, hashes: str) -> None:
    old = repository(tmp_path / "old", f"--object-format={hashes}")
    run(old, "config", "index.version", version)
    assert run(old, "add", ".") == run(old, "commit", "-qm", "one") == 0
    (old / "deep/a").write_text("changed")
    new = tmp_path / "new"
    shutil.copytree(old, new)
    clean = ("diff-files", "--quiet", "--", "deep/ab", "link", "ü")
    assert run(new, *clean) == 1
    time = (new / ".git/index").stat().st_mtime_ns
    git.move_index(new / ".git/index", sources=[tmp_path / "none", old], seen=new)
    assert (new / ".git/index").stat().st_mtime_ns == time
    assert run(new, *clean) == 0
    assert run(new, "diff-files", "--quiet") == 1
    assert run(new, "fsck") == 0


@pytest.mark.parametrize("version", ["2", "4"])
@pytest.mark.parametrize(
    ("command", "hidden"),
    [
        (("update-index", "--skip-worktree", "deep/a"), True),
        (("update-index", "--assume-unchanged", "deep/a"), True),
        (("update-index", "--split-index"), True),
        (("update-index", "--chmod=+x", "deep/a"), False),
    ],
    ids=lambda given: given[1] if isinstance(given, tuple) else "",
)
def test_files_that_git_does_not_look_at(
    tmp_path: Path, version: str, command: tuple[str, ...], hidden: bool
) -> None:
    folder = repository(tmp_path / "it")
    run(folder, "config", "index.version", version)
    assert run(folder, "add", ".") == run(folder, *command) == 0
    assert git.hides((folder / ".git/index").read_bytes()) == hidden


def test_what_is_no_index_may_hide_anything() -> None:
    for given in (b"", b"DIRC", b"DIRC" + bytes(40), os.urandom(200)):
        assert git.hides(given)
        assert git.moved(given, lambda name: None) is None


@pytest.mark.parametrize("version", ["2", "4"])
@pytest.mark.parametrize("hashes", ["sha1", "sha256"])
def test_trees_that_are_not_those_of_the_entries(tmp_path: Path, version: str, hashes: str) -> None:
    folder = repository(tmp_path / "it", f"--object-format={hashes}")
    run(folder, "config", "index.version", version)
    for name in ("deep-er", "deep/z/y/x", "deep.txt/it"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    assert run(folder, "add", ".") == run(folder, "commit", "-qm", "one") == 0
    index = (folder / ".git/index").read_bytes()
    assert b"TREE" in index
    assert not git.hides(index)
    (folder / "deep/z/y/x").write_text("more")
    assert run(folder, "add", "deep/z") == 0
    assert not git.hides((folder / ".git/index").read_bytes())
    size = 20 if hashes == "sha1" else 32
    named = hashlib.new(hashes, b"blob 10\0deep/z/y/x").digest()
    data = index[:-size].replace(named, bytes(size))
    assert git.hides(data + hashlib.new(hashes, data).digest())


def test_a_file_that_is_not_what_the_index_says_is_looked_at(tmp_path: Path) -> None:
    old = repository(tmp_path / "old")
    assert run(old, "add", ".") == 0
    index = old / ".git/index"
    named = hashlib.sha1(b"blob 6\0deep/a").digest()
    data = index.read_bytes()[:-20].replace(named, hashlib.sha1(b"blob 1\0x").digest())
    index.write_bytes(data + hashlib.sha1(data).digest())
    later = index.stat().st_mtime + 10
    os.utime(index, (later, later))  # as if written long after the files
    assert run(old, "diff-files", "--quiet", "--", "deep/a") == 0
    new = tmp_path / "new"
    shutil.copytree(old, new)
    git.move_index(new / ".git/index", sources=[old], seen=new)
    assert run(new, "diff-files", "--quiet", "--", "deep/ab") == 0
    assert run(new, "diff-files", "--quiet", "--", "deep/a") == 1
    shutil.copy2(index, tmp_path / "index")
    git.move_index(tmp_path / "index", sources=[], seen=new, image=lambda name: old / name)
    shutil.copy2(tmp_path / "index", index)
    assert run(old, "diff-files", "--quiet", "--", "deep/ab") == 0
    assert run(old, "diff-files", "--quiet", "--", "deep/a") == 1


def test_settings_that_decide() -> None:
    assert git.decides(b'[url "/evil"]\n\tinsteadOf = /srv/it\n')
    assert git.decides(b'[submodule "a"]\n\tignore = all\n')
    assert not git.decides(b"[core]\n\tfilemode = true\n[user]\n\tname = me\n")
    assert git.decides(b"[core]\n\tfileMode=false\n")
    assert git.decides(b'[diff "d"]\n\tcommand = true\n')
    assert git.decides(b"[mailmap]\n\tfile = /app/names\n")
    assert git.decides(b"[fsck]\n\tmissingEmail = ignore\n")
