"""Settings of what tests run with: test runners, what installs and starts them, and git."""

import posixpath
import re
import tomllib
from collections.abc import Sequence

from ale.errors import SandboxError
from ale.judging import git
from ale.protocols import Judge

_SETTINGS = frozenset(
    {"conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"}
    | {"uv.toml", ".npmrc", ".Rprofile", ".Renviron", ".proverc", ".rspec"}
    | {"CTestCustom.cmake", "CTestCustom.ctest"}
    | {".flake8", ".pylintrc", "pylintrc", ".shellcheckrc"}
)
_FIRST_OF_MAKE = {"GNUmakefile": ("makefile", "Makefile"), "makefile": ("Makefile",)}
"""Files that make reads in place of others beside them."""
_MAYBE_SETTINGS = frozenset({"pyproject.toml", "setup.cfg", "tox.ini"})
_SECTION = re.compile(r"\s*\[\s*(?:(?:tool:)?pytest|flake8)\s*\]")
_MAYBE = re.compile(rb"pytest|tool\.uv")
_BINARY = rb"7z|a|bin|bmp|bz2|class|db|dll|docx?|eot|exe|gif|gz|ico|jar|jpe?g|mp[34]|o|pdf|png|so|"
_BINARY += rb"sqlite3?|tar|tgz|ttf|webp|whl|woff2?|xlsx?|xz|zip"
_SHOWS_NO_TEXT = re.compile(
    rb"^(?!\s*#)(?!\s*\S+\.(?:" + _BINARY + rb")\s).*\s(?:-diff|binary)\s*", re.M | re.I
)
"""Attributes by which git shows no content of a file, which is none of the usual binary formats."""
_OF_RUST = ("rust-toolchain", "rust-toolchain.toml")
"""Which may lead to any compiler, by its path."""
_REPLACES_OBJECTS = re.compile(r"/(?:refs/replace/|objects/info/commit-graph)")
"""Files by which git shows another object, or history, than the one that is named."""
_OF_CARGO = ("/.cargo/config.toml", "/.cargo/config")
_CARGO = re.compile(rb"runner|wrapper|linker|rustc|rustdoc|flags|alias")
UNREADABLE = b"import pytest11 hookspath runner / -diff"
"""Text that has whatever a setting is known by."""
_LONGEST = 1 << 20
_LONGEST_INDEX = 1 << 28


def is_named_as_setting(path: str) -> bool:
    """Whether it could be a setting of a test runner, or of what installs and starts these."""
    name = posixpath.basename(path)
    return name in _SETTINGS | _MAYBE_SETTINGS or path.endswith(_OF_CARGO)


async def is_setting(path: str, judge: Judge) -> bool:
    """Settings of test runners, of what installs and starts them, and of git."""
    _, name = posixpath.split(path)
    if name in _SETTINGS:
        return True
    if name == ".gitattributes":
        return _SHOWS_NO_TEXT.search(await content(path, judge)) is not None
    if name in _FIRST_OF_MAKE:
        return await _has_beside(path, _FIRST_OF_MAKE[name], judge)
    if name in _MAYBE_SETTINGS:
        return _has_section(name, await content(path, judge))
    if name == ".python-version" or name in _OF_RUST:  # also the path of any program
        return b"/" in await content(path, judge)
    if path.endswith(_OF_CARGO):
        return _CARGO.search(await content(path, judge)) is not None
    return await is_setting_of_git(path, judge)


async def _has_beside(path: str, names: Sequence[str], judge: Judge) -> bool:
    for name in names:
        if await judge.has(posixpath.join(posixpath.dirname(path), name)):
            return True
    return False


def _has_section(name: str, data: bytes) -> bool:
    """Whether there is a section that pytest, flake8 or uv reads; also if that can't be told."""
    if data == UNREADABLE:
        return True
    text = data.decode(errors="replace")
    if name != "pyproject.toml":
        return any(_SECTION.match(line) for line in text.splitlines())
    try:
        sections = tomllib.loads(text).get("tool", {})
    except (ValueError, RecursionError):  # which another reader may understand
        return _MAYBE.search(data) is not None
    return not isinstance(sections, dict) or not sections.keys().isdisjoint(("pytest", "uv"))


async def is_setting_of_git(path: str, judge: Judge) -> bool:
    """Settings that run programs or hide files, wherever the repository is kept."""
    folder, name = posixpath.split(path)
    above, base = posixpath.split(folder)
    if name in (".gitconfig", "gitconfig") or (base == "git" and name == "config"):
        return git.decides(await content(path, judge))
    if base == "git" and name in ("ignore", "attributes"):
        return _is_said(await content(path, judge))
    if base in ("hooks", "info") and await _is_of_repository(above, judge):
        if (base, name) == ("info", "exclude"):
            return _is_said(await content(path, judge))
        return base == "hooks" or name in ("attributes", "grafts")
    if (others := _REPLACES_OBJECTS.search(path)) is not None:
        return await _is_of_repository(path[: others.start()], judge)
    return await _is_of_repository(folder, judge) and await _is_beside_objects(path, judge)


async def _is_beside_objects(path: str, judge: Judge) -> bool:
    """Whether a file of a repository's own folder is a setting that decides."""
    folder, name = posixpath.split(path)
    if name == "shallow":  # of a repository that was whole
        return await judge.has(f"{folder}/HEAD", image=True)
    if name == "packed-refs":
        return b"refs/replace/" in await content(path, judge)
    if name in ("config", "config.worktree"):
        return git.decides(await content(path, judge))
    if name == "index" or name.startswith("sharedindex."):
        return git.hides(await content(path, judge, _LONGEST_INDEX))
    return False


async def _is_of_repository(folder: str, judge: Judge) -> bool:
    """Whether a folder is one of git's; a common one of several has no HEAD."""
    return await judge.has(f"{folder}/HEAD") or await judge.has(f"{folder}/objects")


def _is_said(lines: bytes) -> bool:
    """Whether there is more than comments."""
    return any(line.strip() and not line.startswith(b"#") for line in lines.splitlines())


async def content(path: str, judge: Judge, longest: int = _LONGEST) -> bytes:
    """A file of the judge; text that matches everything if it can't be read, or is longer."""
    try:
        data = await judge.sandbox.read(path, max_bytes=longest)
    except (OSError, SandboxError):
        return UNREADABLE
    return data if len(data) < longest else UNREADABLE
