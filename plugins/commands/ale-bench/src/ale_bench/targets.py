"""The target of ``ale eval``: a benchmark, a folder of tasks, a repository, a stored run."""

import os
import re
import subprocess
from pathlib import Path

from attrs import evolve, frozen

from ale.errors import InputError, nearest
from ale.files import replacing
from ale.runs import Registry, folder_format
from ale_bench.offered import Offered, find, offered, offered_by
from ale_bench.running import stored_run

_REPOSITORY = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<ref>[A-Za-z0-9][\w./-]*))?"
)
_HOST = "https://github.com/"


@frozen(kw_only=True)
class Target:
    """The tasks to do."""

    offered: Offered
    name: str
    """Name of the run."""
    folder: Path | None = None
    """The folder of its tasks; None where the benchmark knows or another option says it."""
    foreign: bool = False
    """It was fetched from somebody else, and its tasks are not trusted with this machine's own."""


def stored_target(text: str) -> Path | None:
    """The path, if it is a stored run or a folder that `ale eval` has made for one.

    Raises:
        InputError: it has several runs.
    """
    folder = Path(text)
    return folder if folder.is_dir() and stored_run(folder) is not None else None


def resolve(text: str, registry: Registry) -> Target:
    """The tasks of a benchmark's name, of a folder, or of a repository that is cloned.

    Raises:
        InputError: it is none of these.
    """
    named = {name for each in offered(registry) for name in (each.benchmark.name, each.full_name)}
    folder = Path(text)
    if text in named:
        chosen = find(registry, text)
        return Target(offered=chosen, name=chosen.benchmark.name)
    if folder.is_dir():
        return _in_folder(folder, folder.absolute().name, registry)
    wanted = _REPOSITORY.fullmatch(text)
    if wanted is not None and not folder.exists():
        cloned = _cloned(wanted["repo"], wanted["ref"])
        return evolve(_in_folder(cloned, wanted["repo"], registry), foreign=True)
    beside = [each.name for each in folder.parent.glob("*/")]
    if folder.name != text or text == "..":
        raise InputError.of(f"no such folder: {text}", hint=nearest(folder.name, beside))
    if text not in named and (meant := nearest(text, beside)) and not nearest(text, named):
        raise InputError.of(f"no benchmark and no folder '{text}'", hint=meant)
    chosen = find(registry, text)
    return Target(offered=chosen, name=chosen.benchmark.name)


def _in_folder(folder: Path, name: str, registry: Registry) -> Target:
    source, benchmark = folder_format(folder, registry)
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", name).strip("-.") or benchmark.name
    return Target(
        offered=offered_by(registry, source, benchmark), name=safe, folder=folder.absolute()
    )


def _cloned(repo: str, ref: str | None) -> Path:
    """The work tree of a commit, below the user's cache, named by its digest; made once."""
    address = f"{_HOST}{repo}"
    commit = ref if ref and re.fullmatch(r"[0-9a-f]{40}", ref) else _commit(address, ref)
    given = os.environ.get("XDG_CACHE_HOME")
    parent = (Path(given) if given else Path.home() / ".cache") / "ale" / "tasks" / repo
    if (parent / commit).is_dir():
        return parent / commit
    parent.mkdir(parents=True, exist_ok=True)
    with replacing(parent / commit) as tree:
        _git("init", "--quiet", str(tree))
        _git("-C", str(tree), "fetch", "--quiet", "--depth", "1", address, commit)
        _git("-C", str(tree), "checkout", "--quiet", "FETCH_HEAD")
    return parent / commit


def _commit(address: str, ref: str | None) -> str:
    """The commit of a branch or a tag of exactly this name; without one, of the default branch."""
    names = ["HEAD"] if ref is None else [f"refs/heads/{ref}", f"refs/tags/{ref}"]
    asked = [*names, *(f"{name}^{{}}" for name in names)]
    listed = (line.split("\t", 1) for line in _git("ls-remote", address, *asked).splitlines())
    # git answers with names that end in one of these too, such as refs/heads/refs/heads/main.
    found = {name: commit for commit, name in listed if name in asked}
    there = [name for name in names if name in found]
    if not there:
        raise InputError.of(f"{address} has no branch or tag '{ref or 'HEAD'}'")
    if len(there) > 1:
        message = f"{address} has both a branch and a tag '{ref}'"
        raise InputError.of(message, hint="name the commit, with all its 40 digits")
    return found.get(f"{there[0]}^{{}}", found[there[0]])  # of an annotated tag the commit


def _git(*arguments: str) -> str:
    environ = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, check=False, env=environ
        )
    except FileNotFoundError:
        raise InputError.of("a repository of tasks needs git, which is not installed") from None
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise InputError.of(f"git can't get the tasks: {said}")
    return done.stdout
