"""Changes, made in a judge while a check ran there, to what checks run with.

A choice that is too wide makes honest verdicts contested: what a build adds is its work, and what
it changes of the image's programs, libraries, shells' settings and tests is not.
"""

import posixpath
import re
from collections.abc import Sequence

from ale.judging import loader, python, tools
from ale.judging.settings import is_named_as_setting, is_setting, is_setting_of_git
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
_DEEP = 64
_HOMES = ("/root", "/root/.config", "/root/.config/git", "/root/.config/uv", "/root/.cargo")
_PYTHONS = ("/usr/lib", "/usr/local/lib", "/root/.local/lib")


def watched(scope: Scope) -> dict[str, int]:
    """The folders in which a file that comes and goes could decide a verdict, and how many levels
    below each could."""
    folders = (scope.workdir, *scope.own, *_always(scope), *_when_there(scope))
    # A PATH may have folders below the workspace, which are looked for from there.
    found = {each: 0 for folder in folders for each in _with_above(scope.workdir, folder)}
    found.update({_with_above(scope.workdir, folder)[0]: _DEEP for folder in scope.own})
    found["/home"] = 1
    return found


def _always(scope: Scope) -> list[str]:
    """Folders where programs look, whoever has made them."""
    versions = ("python3", *python.PYTHONS)
    libraries = [f"{base}/{version}" for base in _PYTHONS for version in versions]
    packages = [f"{base}/{kind}-packages" for base in libraries for kind in ("site", "dist")]
    own = [scope.workdir, f"{scope.workdir}/.cargo", *scope.own]
    return [*own, *scope.path, "/etc", *_HOMES, *loader.FOLDERS, *libraries, *packages]


def _when_there(scope: Scope) -> list[str]:
    """Folders where programs look that a build may make and remove for its own use."""
    bases = [f"{scope.workdir}/.venv", f"{scope.workdir}/venv", *python.ENVIRONMENTS]
    packages = [
        f"{base}/lib/{version}/site-packages" for base in bases for version in python.PYTHONS
    ]
    return [f"{scope.workdir}/.git", f"{scope.workdir}/.git/info", *packages]


def _with_above(workdir: str, folder: str) -> list[str]:
    """A folder, by its absolute path, and those that it is in."""
    whole = posixpath.normpath(posixpath.join("/", workdir, folder))
    parts = [part for part in whole.split("/") if part]
    return ["/" + "/".join(parts[:n]) for n in range(len(parts), -1, -1)]


async def replaced_among(judge: Judge, scope: Scope) -> list[str]:
    """The paths of such changes; and, without a slash, why changes were not seen."""
    made, folders = await judge.made(), watched(scope)
    return [
        each.path
        for each in made
        if each.kind == "unseen"
        or (each.kind == "changed" and each.path in folders)  # another was in its place
        or await _replaces(each, made, judge, scope)
    ]


async def _replaces(
    change: CarriedChange, made: Sequence[CarriedChange], judge: Judge, scope: Scope
) -> bool:
    path = change.path
    if change.kind == "added" and path.endswith("/"):
        return await _passes(path.rstrip("/"), judge, scope)
    if await _is_first(change, judge, scope):
        return True
    if any(tools.is_below(path, folder) for folder in scope.own):
        return change.kind != "added" and not path.endswith("/")
    if (site := _PACKAGES.match(path)) is not None:
        return await _is_of_packages(change, site["site"], made, judge)
    return await _is_elsewhere(change, made, judge, scope)


async def _is_elsewhere(
    change: CarriedChange, made: Sequence[CarriedChange], judge: Judge, scope: Scope
) -> bool:
    path = change.path
    if change.kind != "removed" and await _is_of_git(path, judge):
        return True
    if await tools.is_program_of_venv(path, judge):
        environment = posixpath.dirname(posixpath.dirname(path)) + "/pyvenv.cfg"
        if all(each.path != environment for each in made):  # it was there before
            name = posixpath.basename(path)
            # The agent's own, written over, counts as added; an image may have no `python`.
            other = change.kind != "added" or name.startswith("python")
            return other or await loader.has_any(judge, scope.path, name)
    if any(tools.is_below(path, folder) for folder in (scope.workdir, *tools.PASSING)):
        return False
    return await _is_of_system(change, judge, scope)


async def _passes(folder: str, judge: Judge, scope: Scope) -> bool:
    """Whether a folder that is gone again could have been one where programs look, or a package."""
    if any(tools.is_below(each, folder) for each in _always(scope)):
        return True
    if f"/{python.CACHE}" in folder:
        return False
    if (site := _PACKAGES.match(folder)) is not None:
        gone = CarriedChange(path=f"{folder}/entry_points.txt", kind="added")
        return await python.is_searched(site["site"], judge) and (
            await python.runs_by_itself(gone, judge)
        )
    place, name = posixpath.split(folder)
    first = any(tools.is_below(place, each) for each in scope.own) or place == scope.workdir
    return name in python.MODULES and (first or _STANDARD.fullmatch(folder) is not None)


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
    if folder.endswith("/.cargo"):
        folder = posixpath.dirname(folder)
    own = any(tools.is_below(folder, each) for each in scope.own)
    above = any(tools.is_below(each, folder) for each in (scope.workdir, *scope.own))
    looked_at = own or above or (is_named_as_setting(path) and await _is_of_image(folder, judge))
    if looked_at and await is_setting(path, judge):
        return True
    found = python.module_at(path)
    if found is None or found[1] not in python.MODULES:
        return False
    own = any(tools.is_below(found[0], each) for each in scope.own)
    first = own or found[0] == scope.workdir.rstrip("/")
    return first and await python.is_found(path, judge)


async def _is_of_image(folder: str, judge: Judge) -> bool:
    """Whether the image has a folder in which tests or sources may be."""
    if any(tools.is_below(folder, each) for each in tools.PASSING) or _PACKAGES.match(f"{folder}/"):
        return False
    return await judge.has(folder, image=True)


async def _is_of_git(path: str, judge: Judge) -> bool:
    """Whether it is a setting of git; hooks run where somebody commits, objects are its work."""
    if _OF_GIT.search(path) is None or "/hooks/" in path or "/objects/" in path:
        return False
    return await is_setting_of_git(path, judge)


async def _is_of_packages(
    change: CarriedChange, site: str, made: Sequence[CarriedChange], judge: Judge
) -> bool:
    """Whether a change in a folder of packages is one to what the image's programs import."""
    if not await python.is_searched(site, judge):
        return False
    if change.kind != "added":
        return True
    path = change.path
    if f"/{python.CACHE}/" in path:
        return False
    if path.lower().endswith(".pth") and await python.shadows(path, made, judge):
        return True
    return await python.runs_by_itself(change, judge)


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
