"""Changes, made in a judge while a check ran there, to what checks run with.

A choice that is too wide makes honest verdicts contested: what a build adds is its work, and what
it changes of the image's programs, libraries, shells' settings and tests is not.
"""

import posixpath
import re

from ale.judging import loader, python, tools
from ale.judging.settings import is_setting, is_setting_of_git
from ale.judging.tools import Scope
from ale.protocols import Judge
from ale.types import CarriedChange

_PROGRAMS = re.compile(
    r"/(?:usr/(?:local/)?)?(?:s?bin|libexec|lib[^/]*)/|/opt/(?:[^/]+/)*s?bin/|/etc/alternatives/"
)
_SHELLS_AND_LOADERS = re.compile(
    r"/etc/(?:profile|bash\.bashrc|environment|nsswitch\.conf|pam\.conf|ld\.so\.conf|"
    r"(?:profile\.d|pam\.d|security|ld\.so\.conf\.d|ssl|python3[^/]*)/.+)"
    r"|/(?:root|home/[^/]+)/\.(?:bashrc|profile|bash_profile|bash_login|bash_logout|pam_environment"
    r"|curlrc|wgetrc|npmrc|sqliterc|psqlrc|Rprofile|config/(?:curlrc|uv/uv\.toml))"
)
_STANDARD = re.compile(r"/usr/(?:local/)?lib/python3(?:\d*\.zip|[^/]*/(?P<rest>.+))")
_PACKAGES = re.compile(r"(?P<site>.*/(?:site|dist)-packages)/")
_OF_GIT = re.compile(r"/\.git/|/\.config/git/|/\.?gitconfig$")


async def replaced_among(judge: Judge, scope: Scope) -> list[str]:
    """The paths of such changes."""
    return [each.path for each in await judge.made() if await _replaces(each, judge, scope)]


async def _replaces(change: CarriedChange, judge: Judge, scope: Scope) -> bool:
    path = change.path
    if await _is_first(change, judge, scope):
        return True
    if any(tools.is_below(path, folder) for folder in scope.own):
        return change.kind != "added" and not path.endswith("/")
    if (site := _PACKAGES.match(path)) is not None:
        return await _is_of_packages(change, site["site"], judge)
    if change.kind != "removed" and await _is_of_git(path, judge):
        return True
    if any(tools.is_below(path, folder) for folder in (scope.workdir, *tools.PASSING)):
        return False
    return await _is_of_system(change, judge, scope)


async def _is_of_system(change: CarriedChange, judge: Judge, scope: Scope) -> bool:
    path = change.path
    if path == loader.CACHE:
        return change.kind != "removed" and await loader.finds_anothers(judge)
    if change.kind == "added":
        return await _is_before_anothers(change, judge, scope)
    if path.endswith("/") and change.kind == "changed":
        return path.rstrip("/") in scope.path
    return bool(_PROGRAMS.match(f"{path}/") or _SHELLS_AND_LOADERS.fullmatch(path))


async def _is_first(change: CarriedChange, judge: Judge, scope: Scope) -> bool:
    """Whether it is a module or setting in a folder where Python or pytest looks first."""
    path = change.path
    if change.kind == "removed" or path.endswith("/"):
        return False
    folder = posixpath.dirname(path)
    own = any(tools.is_below(folder, each) for each in scope.own)
    if (own or tools.is_below(scope.workdir, folder)) and await is_setting(path, judge):
        return True
    found = python.module_at(path)
    if found is None or found[1] not in python.MODULES:
        return False
    own = any(tools.is_below(found[0], each) for each in scope.own)
    first = own or found[0] == scope.workdir.rstrip("/")
    return first and await python.is_found(path, judge)


async def _is_of_git(path: str, judge: Judge) -> bool:
    """Whether it is a setting of git; hooks run where somebody commits, and that is work."""
    if _OF_GIT.search(path) is None or "/hooks/" in path:
        return False
    return await is_setting_of_git(path, judge)


async def _is_of_packages(change: CarriedChange, site: str, judge: Judge) -> bool:
    """Whether a change in a folder of packages is one to what the image's programs import."""
    if not await python.is_searched(site, judge):
        return False
    if change.kind == "added":
        return f"/{python.CACHE}/" not in change.path and (
            await python.runs_by_itself(change, judge)
        )
    return True


async def _is_before_anothers(change: CarriedChange, judge: Judge, scope: Scope) -> bool:
    """Whether a new file is found before one that the image has, or runs by itself."""
    path = change.path
    folder, name = posixpath.split(path)
    if path == loader.PRELOAD:
        return True
    if name == "pyvenv.cfg":  # of the image's Python
        return folder in scope.path or f"{folder.rstrip('/')}/bin" in scope.path
    if folder in scope.path:
        others = [place for place in scope.path if place != folder]
        return await loader.has_any(judge, others, name)
    if f"/{python.CACHE}/" in path:
        return False
    if (standard := _STANDARD.fullmatch(path)) is not None:
        return standard["rest"] is None or standard["rest"].endswith((".py", ".so", ".pyc"))
    if _SHELLS_AND_LOADERS.fullmatch(path) and not path.startswith("/etc/ssl/"):
        return not path.startswith("/etc/")
    return await loader.is_anothers(name, judge)
