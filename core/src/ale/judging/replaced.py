"""Changes, made in a judge while a check ran there, to what checks run with.

A choice that is too wide makes honest verdicts contested: what a build adds is its work, and what
it changes of the image's programs, libraries, shells' settings and tests is not.
"""

import posixpath
import re
from collections.abc import Sequence

from ale.judging import tools
from ale.judging.tools import Scope
from ale.protocols import Judge
from ale.types import CarriedChange

_PROGRAMS = re.compile(
    r"/(?:usr/(?:local/)?)?(?:s?bin|libexec|lib[^/]*)/|/opt/(?:[^/]+/)*s?bin/|/etc/alternatives/"
)
_SHELLS_AND_LOADERS = re.compile(
    r"/etc/(?:profile|bash\.bashrc|environment|nsswitch\.conf|pam\.conf|ld\.so\.conf|"
    r"(?:profile\.d|pam\.d|security|ld\.so\.conf\.d|ssl|python3[^/]*)/.+)"
    r"|/(?:root|home/[^/]+)/\.(?:bashrc|profile|bash_profile|bash_login|bash_logout|pam_environment)"
)
_PRELOAD = "/etc/ld.so.preload"
_STANDARD = re.compile(r"(?P<library>/usr/(?:local/)?lib/python3[^/]*)/(?P<rest>.+)")
_SHARED = re.compile(r"[^/]+\.so(?:\.[0-9.]+)?")
_LIBRARIES = tuple(
    f"{base}/lib{rest}"
    for base in ("", "/usr")
    for rest in ("", "64", "/x86_64-linux-gnu", "/aarch64-linux-gnu")
)
_CONFTEST = ("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml")
_ENTRY_POINT = b"pytest11"


async def replaced_among(judge: Judge, scope: Scope) -> list[str]:
    """The paths of such changes."""
    return [each.path for each in await judge.made() if await _replaces(each, judge, scope)]


async def _replaces(change: CarriedChange, judge: Judge, scope: Scope) -> bool:
    path = change.path
    if any(tools.is_below(path, folder) for folder in scope.own):
        return (change.kind != "added" and not path.endswith("/")) or _is_first(change, scope)
    if tools.is_below(path, scope.workdir):
        return await _is_of_workdir(change, judge, scope)
    if any(tools.is_below(path, folder) for folder in tools.PASSING):
        return False
    if change.kind == "added":
        return await _is_before_anothers(change, judge, scope)
    if path.endswith("/") and change.kind == "changed":
        return _is_searched(path.rstrip("/"), scope)
    if tools.SITE.fullmatch(path) is not None:
        return True
    return bool(_PROGRAMS.match(f"{path}/") or _SHELLS_AND_LOADERS.fullmatch(path))


async def _is_of_workdir(change: CarriedChange, judge: Judge, scope: Scope) -> bool:
    """A module or setting that is found first where a check runs, or a setting of git."""
    if _is_first(change, scope):
        return True
    inside = change.path.removeprefix(scope.workdir.rstrip("/"))
    if not inside.startswith("/.git/") or inside.startswith("/.git/hooks/"):
        return False
    return change.kind != "removed" and await tools.is_setting_of_git(change.path, judge)


def _is_first(change: CarriedChange, scope: Scope) -> bool:
    """Whether it is a module or setting in a folder where Python or pytest looks first."""
    if change.kind == "removed" or change.path.endswith("/"):
        return False
    folder, name = posixpath.split(change.path)
    own = any(tools.is_below(folder, each) for each in scope.own)
    if name in _CONFTEST:
        return own or tools.is_below(scope.workdir, folder)
    if not name.endswith((".py", ".so")):
        return False
    if name == "__init__.py":
        folder, name = posixpath.split(folder)
    return folder in (scope.workdir.rstrip("/"), *scope.own) and (
        name.partition(".")[0] in tools.MODULES
    )


async def _is_before_anothers(change: CarriedChange, judge: Judge, scope: Scope) -> bool:
    """Whether a new file is found before one that the image has, or runs by itself."""
    path = change.path
    folder, name = posixpath.split(path)
    if path == _PRELOAD or _is_first(change, scope):
        return True
    if folder in scope.path:
        others = [place for place in scope.path if place != folder]
        return await _has_any(judge, others, name)
    if "/__pycache__/" in path:
        return False
    if (site := tools.SITE.fullmatch(path)) is not None:
        return await _runs_by_itself(site["top"], change, judge)
    if (standard := _STANDARD.fullmatch(path)) is not None:
        return standard["rest"].endswith((".py", ".so", ".pyc"))
    if _SHELLS_AND_LOADERS.fullmatch(path) and not path.startswith("/etc/ssl/"):
        return not path.startswith("/etc/")
    return bool(_SHARED.fullmatch(name)) and await _has_any(judge, _LIBRARIES, name)


async def _has_any(judge: Judge, folders: Sequence[str], name: str) -> bool:
    for folder in folders:
        if await judge.has(f"{folder}/{name}", image=True):
            return True
    return False


async def _runs_by_itself(top: str, change: CarriedChange, judge: Judge) -> bool:
    if top.lower().endswith("-info") or ".egg" in top.lower():
        named = posixpath.basename(change.path).lower() == "entry_points.txt"
        return named and _ENTRY_POINT in await tools.content(change.path, judge)
    return await tools.is_of_python(change, judge)


def _is_searched(folder: str, scope: Scope) -> bool:
    """Whether it is a folder where shells look for programs, or Python for modules."""
    name = posixpath.basename(folder)
    return folder in scope.path or name in ("site-packages", "dist-packages")
