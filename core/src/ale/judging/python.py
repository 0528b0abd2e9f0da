"""Where Python finds a module: by which files, in which folders, and before which others."""

import platform
import posixpath
import re
import sys
from collections.abc import Collection, Iterable

from ale.errors import SandboxError
from ale.judging.settings import content
from ale.protocols import Judge
from ale.types import CarriedChange

MODULES = frozenset(
    {*sys.stdlib_module_names, "pytest", "_pytest", "pluggy", "iniconfig", "pip", "setuptools"}
    | {"sitecustomize", "usercustomize", "pkg_resources", "py"}
)
"""Modules of Python's library and of test runners."""
SITE = re.compile(r"(?P<site>.*/(?:site|dist)-packages)/(?P<top>[^/]+)(?P<rest>/.*)?")
PYTHONS = tuple(f"python3.{minor}" for minor in range(6, 20))
ENVIRONMENTS = ("/opt/conda", "/opt/venv", "/venv")
"""Virtual environments of images."""
CACHE = "__pycache__"
_INITS = tuple(
    f"__init__.{suffix}"
    for suffix in (
        *("py", "pyc", "so", "abi3.so"),
        *(
            f"cpython-3{minor}-{platform.machine()}-linux-{libc}.so"
            for minor in range(6, 20)
            for libc in ("gnu", "musl")
        ),
    )
)
"""Files of a package, any of which Python reads."""
_ALWAYS_SEARCHED = re.compile(
    r"(?:/usr(?:/local)?|/root/\.local|/home/[^/]+/\.local)/lib/python3[^/]*/(?:site|dist)-packages"
)
_TRIED = re.compile(
    r".*/org(?:/python(?:/core)?)?(?P<file>(?:/__init__)?\.(?:[^/]+\.)?(?:py|pyc|so))?"
)
"""Files by which there is ``org.python.core``: `copy` and `pickle` import it if there is one."""
_ENTRY_POINT = b"pytest11"
_APPENDED = re.compile(r"append\(['\"]([^'\"]*)")
_APPENDS = re.compile(
    rb"^import sys; *sys\.path\.append\((['\"])[\w./-]*\1\);?\r?$", re.MULTILINE | re.ASCII
)
"""A line of a ``.pth`` file that does no more than one with a folder alone."""


def module_at(path: str) -> tuple[str, str] | None:
    """The folder in which Python looks, and the module that it finds by this file; None if none.

    A name without a suffix is one of a module if it is a link to a folder.
    """
    folder, name = posixpath.split(path)
    module, dot, suffix = name.partition(".")
    if not name or (dot and not f".{suffix}".endswith((".py", ".pyc", ".so"))):
        return None
    if module == "__init__" and dot:
        folder, module = posixpath.split(folder)
    return folder, module


def is_tried(path: str, *, link: bool) -> bool:
    """Whether Python's library imports it by a name that no Python has, if there is one."""
    found = _TRIED.fullmatch(path)
    return found is not None and (link or found["file"] is not None)


async def is_found(path: str, judge: Judge) -> bool:
    """Whether Python would read what `module_at` says: without a suffix, a link to a package."""
    if "." in posixpath.basename(path):
        return True
    for name in ("", *_INITS):
        try:
            await judge.sandbox.read(f"{path}/{name}" if name else path, max_bytes=1)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except IsADirectoryError:
            if name:
                return True
        except (OSError, SandboxError):
            return True
        else:
            return bool(name)
    return False


async def is_searched(site: str, judge: Judge) -> bool:
    """Whether the image's programs look for modules in this folder of packages.

    A virtual environment that was made since is searched by its own programs alone.
    """
    return bool(_ALWAYS_SEARCHED.fullmatch(site)) or await judge.has(site, image=True)


async def runs_by_itself(change: CarriedChange, judge: Judge) -> bool:
    """Whether a new file in a folder of packages is of a module that the image has, or of one that
    Python or pytest loads by itself."""
    site = SITE.fullmatch(change.path)
    if site is None:
        return False
    folder, top = site["site"], site["top"]
    lower = top.lower()
    if lower.endswith("-info") or ".egg" in lower:
        named = posixpath.basename(change.path).lower() == "entry_points.txt"
        return named and _ENTRY_POINT in await content(change.path, judge)
    if lower.endswith(".pth"):
        return b"import" in _APPENDS.sub(b"", await content(change.path, judge))
    name = top.partition(".")[0]
    if name in MODULES or top == CACHE:
        return True
    return await _image_has(folder, name, judge)


async def shadows(pth: str, others: Iterable[CarriedChange], judge: Judge) -> bool:
    """Whether a ``.pth`` file leads to one of some new modules that is found in place of another.

    Python's own library comes before what such a file leads to, and some installed modules after.
    """
    made = {other.path for other in others}
    site, lines = posixpath.dirname(pth), (await content(pth, judge)).decode(errors="replace")
    places = {posixpath.normpath(posixpath.join(site, line.strip())) for line in lines.splitlines()}
    places |= {posixpath.normpath(found) for found in _APPENDED.findall(lines)}
    for path in made:
        found = module_at(path)
        if found is None or found[0] not in places:
            continue
        if found[1] in MODULES or await _is_elsewhere(site, found[1], made, judge):
            return True
    return False


async def _is_elsewhere(site: str, module: str, made: Collection[str], judge: Judge) -> bool:
    for place in _places_beside(site):
        for path in (f"{place}/{module}.py", f"{place}/{module}/__init__.py"):
            if path not in made and await judge.has(path):
                return True
    return False


def _places_beside(folder: str) -> set[str]:
    """The usual folders of packages of the same Python."""
    version = next(iter(re.findall(r"python3(?:\.\d+)?", folder)), "python3")
    bases = [f"/usr/lib/{version}", f"/usr/local/lib/{version}", "/usr/lib/python3"]
    return {folder, *(f"{base}/{kind}-packages" for base in bases for kind in ("site", "dist"))}


async def _image_has(folder: str, name: str, judge: Judge) -> bool:
    """Whether the image has a module of this name in one of the usual folders."""
    for place in _places_beside(folder):
        for file in (name, f"{name}.py"):
            if await judge.has(f"{place}/{file}", image=True):
                return True
    return False
