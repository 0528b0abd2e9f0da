"""A work tree at one commit, whose git directory has nothing of later commits."""

import shutil
from pathlib import Path

from ale.files import remove_partial, replacing
from ale_tasks_swe.git import git
from ale_tasks_swe.mirrors import locked

_LEFT_OVER = ("FETCH_HEAD", "ORIG_HEAD", "logs", "hooks", "branches", "description", "info")
_EDITION = 1
"""Of the folders in the cache; another one for another way to make them."""


def cut_checkout(mirror: Path, commit: str, history: int, cache: Path, name: str) -> Path:
    """A folder with the files of a commit and a git directory that ends with it; made once.

    Args:
        history: commits that are in it, the newest of them `commit`; 0 is all that led to it.
        name: of the repository.

    Raises:
        GitError: git failed.
        OSError: it can't be written.
    """
    folder = name.replace("/", "__")
    path = cache / "checkouts" / f"{folder}-{commit}-{history}-{_EDITION}"
    if path.is_dir():
        return path
    with locked(path):
        if not path.is_dir():
            remove_partial(path)
            with replacing(path) as draft:
                _make(draft, mirror, commit, history)
    return path


def _make(path: Path, mirror: Path, commit: str, history: int) -> None:
    git("init", "--quiet", "--template=", "--initial-branch=main", str(path))
    depth = [f"--depth={history}"] if history else []
    # By protocol 2 any commit can be asked for, also one that no branch or tag points to.
    git(
        *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", *depth),
        *(mirror.resolve().as_uri(), commit),
        cwd=path,
        options=("-c", "protocol.version=2"),
    )
    git("update-ref", "--no-deref", "refs/heads/main", commit, cwd=path)
    git("reset", "--quiet", "--hard", cwd=path)
    git("config", "gc.auto", "0", cwd=path)
    for left in _LEFT_OVER:
        found = path / ".git" / left
        if found.is_dir():
            shutil.rmtree(found)
        else:
            found.unlink(missing_ok=True)
