"""Where the repositories are: a folder of mirrors, or clones that are made once and kept."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from ale.files import remove_partial, replacing
from ale_tasks_swe.git import GitError, git


def default_cache() -> Path:
    """``$XDG_CACHE_HOME/ale/swe``, or ``~/.cache/ale/swe``."""
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "ale" / "swe"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock beside a path, against other threads and processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@frozen(kw_only=True)
class Mirrors:
    """Finds the git repository that has a commit."""

    folder: Path | None
    """Of mirrors; nothing is cloned then."""
    address: str
    """``{repo}`` in it is replaced."""
    cache: Path

    def having(self, repo: str, commit: str) -> Path:
        """The git directory of a repository that has a commit; cloned or fetched if need be.

        Raises:
            GitError: there is none, or it has no such commit.
        """
        if self.folder is not None:
            found = self._in_folder(self.folder, repo)
            if not _has(found, commit):
                raise GitError(f"{found} has no commit {commit}")
            return found
        return self._cloned(repo, commit)

    def _in_folder(self, folder: Path, repo: str) -> Path:
        owner, _, name = repo.rpartition("/")
        flat = [f"{owner}__{name}", name] if owner else [name]
        for each in (f"{repo}.git", repo, *(form for f in flat for form in (f"{f}.git", f))):
            for path in (folder / each / ".git", folder / each):
                if (path / "objects").is_dir():
                    return path
        raise GitError(
            f"there is no repository {repo} in {folder}: expected {repo}.git, {flat[0]}.git "
            f"or {name}.git, as of `git clone --mirror`"
        )

    def _cloned(self, repo: str, commit: str) -> Path:
        path = self.cache / "mirrors" / f"{repo.replace('/', '__')}.git"
        if not _has(path, commit):
            with locked(path):
                self._bring(path, self.address.replace("{repo}", repo), commit)
        return path

    def _bring(self, path: Path, address: str, commit: str) -> None:
        if _has(path, commit):  # while we waited for the lock
            return
        if path.exists():
            git("fetch", "--quiet", "--prune", "origin", cwd=path)
        else:
            remove_partial(path)
            with replacing(path) as draft:
                git("clone", "--quiet", "--mirror", "--", address, str(draft))
        if not _has(path, commit):
            # Of a pull request that was squashed, for example: no branch has it.
            git("fetch", "--quiet", "origin", commit, cwd=path)


def _has(path: Path, commit: str) -> bool:
    if not path.is_dir():
        return False
    try:
        git("cat-file", "-e", f"{commit}^{{commit}}", cwd=path)
    except GitError:
        return False
    return True
