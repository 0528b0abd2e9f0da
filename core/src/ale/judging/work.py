"""Changes in the places of tools that are an agent's work by what they hold.

They name no program, and hide no file of the image's: leaving them out would make honest work
contested, such as an installed package whose version tests ask for.
"""

import csv
import posixpath
import re
from collections.abc import Callable, Sequence

from ale.judging import loader, python
from ale.judging.settings import content
from ale.protocols import Judge
from ale.types import CarriedChange

_OF_A_PACKAGE = re.compile(
    r"(?P<info>(?P<site>.*/(?:site|dist)-packages)/[^/]+\.dist-info)"
    r"/(?:METADATA|RECORD|WHEEL|INSTALLER|REQUESTED|top_level\.txt|direct_url\.json)"
)
_OF_SSH = re.compile(r".*/\.ssh/(?:authorized_keys|known_hosts|[^/]+\.pub)")
_PYTHON = re.compile(r"python[0-9.]*")
_HOME = re.compile(rb"^home *= *(\S+) *$", re.MULTILINE)
_ZONES = "/usr/share/zoneinfo/"
_LIBRARY = re.compile(r"/usr/local/lib/([^/]+\.so[0-9.]*)")
_HEADER = re.compile(r"/usr/local/include/(.+)")
_HEADERS = ("/usr/include", "/usr/include/x86_64-linux-gnu", "/usr/include/aarch64-linux-gnu")


async def is_work(
    change: CarriedChange, judge: Judge, path: Sequence[str], names: Callable[[str], bool]
) -> bool:
    """Whether a change where tools are can't decide what a check runs with.

    Args:
        path: folders in which a shell looks for programs.
        names: whether a file of the tests has this path in it.
    """
    if change.kind == "removed":
        return False
    if change.path == "/etc/localtime":
        return change.link.startswith(_ZONES) and await judge.has(change.link, image=True)
    if change.path == loader.CACHE:
        return not await loader.finds_anothers(judge)
    if change.kind == "changed":
        return False
    if _OF_SSH.fullmatch(change.path):
        return names(change.path)
    return (
        await _is_of_environment(change, judge, path)
        or await _is_of_package(change.path, judge)
        or await _is_new_library(change.path, judge)
    )


async def _is_of_environment(change: CarriedChange, judge: Judge, path: Sequence[str]) -> bool:
    """Whether it is what makes a virtual environment of the image's Python: settings and links."""
    folder, name = posixpath.split(change.path)
    if name == "pyvenv.cfg":
        for own in (f"{folder}/bin", f"{folder}/python3"):
            if await judge.has(own, image=True):
                return False
        home = _HOME.findall(await content(change.path, judge))
        return len(home) == 1 and home[0].decode(errors="replace") in path
    target, program = posixpath.split(change.link)
    if not (_PYTHON.fullmatch(name) and _PYTHON.fullmatch(program)) or (
        not await judge.has(f"{posixpath.dirname(folder)}/pyvenv.cfg") or folder in path
    ):
        return False
    return not target or (target in path and await judge.has(change.link, image=True))


async def _is_of_package(path: str, judge: Judge) -> bool:
    """Whether it tells of a package in Python's folders whose files are there."""
    found = _OF_A_PACKAGE.fullmatch(path)
    if found is None:
        return False
    text = (await content(f"{found['info']}/RECORD", judge)).decode(errors="replace")
    for line in csv.reader(text.splitlines()):
        file = posixpath.normpath(posixpath.join(found["site"], line[0] if line else ""))
        top = file.removeprefix(f"{found['site']}/").partition("/")[0]
        if top.endswith("-info") or top.partition(".")[0] in {"", *python.MODULES}:
            continue
        if await judge.has(file):
            return not await judge.has(file, image=True)
    return False


async def _is_new_library(path: str, judge: Judge) -> bool:
    """Whether it is a library or header of which the image has none by this name."""
    if (library := _LIBRARY.fullmatch(path)) is not None:
        return not await loader.is_anothers(library[1], judge)
    header = _HEADER.fullmatch(path)
    return header is not None and not await loader.has_any(judge, _HEADERS, header[1])
