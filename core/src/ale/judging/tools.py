"""Which of an agent's changes are to what tests run with, and not what they look at.

Nothing here decides a verdict: what is chosen is left out for a second look, and only if that ends
in another way is a verdict contested. So a choice that is too wide costs time, and one that is too
narrow lets a forgery pass.
"""

import posixpath
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from attrs import field, frozen

from ale.errors import SandboxError
from ale.protocols import Judge
from ale.types import CarriedChange

MODULES = frozenset(
    {*sys.stdlib_module_names, "pytest", "_pytest", "pluggy", "iniconfig", "pip", "setuptools"}
    | {"sitecustomize", "usercustomize", "pkg_resources", "py"}
)
"""Modules of Python's library and of test runners."""
_SETTINGS = frozenset({"conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"})
_MAYBE_SETTINGS = frozenset({"pyproject.toml", "setup.cfg", "tox.ini"})
_SITE = re.compile(r"(?P<site>.*/(?:site|dist)-packages)/(?P<top>[^/]+)(?P<rest>/.*)?")
_SYSTEM = ("/etc", "/usr", "/bin", "/sbin", "/var/lib", "/var/cache", "/var/tmp", "/tmp")  # noqa: S108
_LIBRARIES = re.compile(r"/lib[^/]*/")
_ACCOUNTS = (
    "/etc/passwd",
    "/etc/group",
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/subuid",
    "/etc/subgid",
)
_HIDDEN = re.compile(r"/(?:root|home/[^/]+)/\.")
"""Settings of a user's programs."""
_PASSING = ("/tmp", "/var/tmp", "/var/cache", "/var/log", "/var/lib/apt/lists", "/run")  # noqa: S108
"""Folders that lose files by themselves."""
_NEVER_NAMED = re.compile(r"/(?:s?bin|lib[^/]*|\.[^/]+)(?:/|$)|\.so(?:\.|$)|preload|profile|\.pth$")
"""Paths of programs, libraries and settings, which tests may name and yet not be about."""
_GIT = re.compile(
    rb"fsmonitor|hookspath|external|textconv|filter|sshcommand|pager|editor|helper|include|proc"
    rb"|attributesfile|worktree|alias",
    re.IGNORECASE,
)
_PYTEST = re.compile(rb"pytest")
_LONGEST = 1 << 20


@frozen(kw_only=True)
class Scope:
    """The files and folders that a check is about.

    Args:
        names: whether a file of the tests has this path in it.
        path: folders in which a shell looks for programs.
    """

    workdir: str
    names: Callable[[str], bool] = field(default=lambda path: False)
    path: Sequence[str] = (
        *("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"),
    )


def named_in(texts: Iterable[str], files: Iterable[Path] = ()) -> Callable[[str], bool]:
    """Whether a path stands in one of the texts or files, for `Scope.names`.

    Args:
        files: of a folder all files; of each file the first MiB is read.
    """
    given = [text.encode(errors="surrogateescape") for text in texts]
    listed = list(files)

    def contents() -> Iterator[bytes]:
        yield from given
        for source in listed:
            for path in source.rglob("*") if source.is_dir() else [source]:
                if path.is_file():
                    with path.open("rb") as file:
                        yield file.read(_LONGEST)

    def names(path: str) -> bool:
        wanted = path.encode(errors="surrogateescape")
        return any(wanted in content for content in contents())

    return names


async def tools_among(judge: Judge, scope: Scope) -> list[str]:
    """The paths of used changes that could decide a verdict by what tests run with."""
    found = []
    for change in await judge.used():
        if await _is_tool(change, judge, scope):
            found.append(change.path)
    return found


async def _is_tool(change: CarriedChange, judge: Judge, scope: Scope) -> bool:
    path = change.path
    if change.kind == "removed":
        passing = any(_is_below(path, place) for place in (scope.workdir, *_PASSING))
        return not passing and not _is_named(path, scope)
    if (site := _SITE.fullmatch(path)) is not None:
        return await _is_tool_of_python(site, change, judge)
    if await _is_setting(path, judge) or await _is_program_of_venv(path, judge):
        return True
    if _HIDDEN.match(path):
        return True
    if _is_below(path, scope.workdir):
        return False
    return _is_of_system(change, scope)


def _is_of_system(change: CarriedChange, scope: Scope) -> bool:
    path = change.path
    if change.only_longer and path in _ACCOUNTS:
        return False
    if _is_named(path, scope):
        return False
    folder = posixpath.dirname(path)
    if change.kind == "changed" or folder == "/" or folder in scope.path:
        return True
    return any(_is_below(path, place) for place in _SYSTEM) or bool(_LIBRARIES.match(path))


def _is_named(path: str, scope: Scope) -> bool:
    """Whether the tests are about this file: they name it, and it is no program or library."""
    return not _NEVER_NAMED.search(path) and scope.names(path.rstrip("/"))


async def _is_tool_of_python(site: "re.Match[str]", change: CarriedChange, judge: Judge) -> bool:
    """Whether a file below a folder of packages is of one that the image has, or runs by itself."""
    folder, top = site["site"], site["top"]
    lower = top.lower()
    if change.kind == "changed" or lower.endswith("-info") or ".egg" in lower:
        return True
    if lower.endswith(".pth"):
        return b"import" in await _content(change.path, judge)
    name = top.partition(".")[0]
    if name in MODULES or top == "__pycache__":
        return True
    return await _image_has(folder, name, judge)


async def _image_has(folder: str, name: str, judge: Judge) -> bool:
    """Whether the image has a module of this name in one of the usual folders."""
    version = next(iter(re.findall(r"python3(?:\.\d+)?", folder)), "python3")
    bases = [f"/usr/lib/{version}", f"/usr/local/lib/{version}", "/usr/lib/python3"]
    places = {folder, *(f"{base}/{kind}-packages" for base in bases for kind in ("site", "dist"))}
    for place in places:
        for file in (name, f"{name}.py"):
            if await judge.has(f"{place}/{file}", image=True):
                return True
    return False


async def _is_setting(path: str, judge: Judge) -> bool:
    """Settings of test runners and git, and modules that come before those of Python's library."""
    folder, name = posixpath.split(path)
    if name in _SETTINGS or "/.git/hooks/" in path:
        return True
    if name in _MAYBE_SETTINGS:
        return _PYTEST.search(await _content(path, judge)) is not None
    if path.endswith("/.git/config") or name in (".gitconfig", "gitconfig"):
        return _GIT.search(await _content(path, judge)) is not None
    if not name.endswith((".py", ".so", ".pyc")):
        return False
    if name == "__init__.py":
        folder, name = posixpath.split(folder)
    if name.partition(".")[0] not in MODULES:
        return False
    if posixpath.basename(folder) == "__pycache__":
        folder = posixpath.dirname(folder)
    # In a package it is another module.
    return not await judge.has(f"{folder}/__init__.py")


async def _is_program_of_venv(path: str, judge: Judge) -> bool:
    folder, name = posixpath.split(path)
    if name == "pyvenv.cfg":
        return True
    above, base = posixpath.split(folder)
    return base == "bin" and await judge.has(f"{above}/pyvenv.cfg")


async def _content(path: str, judge: Judge) -> bytes:
    """A file of the judge; text that matches everything if it can't be read."""
    try:
        return await judge.sandbox.read(path, max_bytes=_LONGEST)
    except (OSError, SandboxError):
        return b"import pytest hookspath"


def _is_below(path: str, folder: str) -> bool:
    return folder == "/" or path.rstrip("/") == folder or path.startswith(f"{folder.rstrip('/')}/")
