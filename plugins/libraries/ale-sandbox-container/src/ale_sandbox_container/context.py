"""What a build sees of its folder, and a digest of that: the same build has the same digest.

``.gitignore`` plays no part, as for the engines.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen

_FILE = ".dockerignore"
_OTHERS = (".containerignore", "Dockerfile.dockerignore", "Containerfile.dockerignore")
"""Some builders read these instead; where there is one, nothing is taken for ignored."""
_ALWAYS = (_FILE, "Dockerfile", "Containerfile")
_PIECE = 1 << 20


@frozen
class Rule:
    """One line of a ``.dockerignore``."""

    pattern: re.Pattern[str]
    ignored: bool
    """False: it brings back what an earlier line leaves out."""


def rules_of(text: str) -> list[Rule]:
    """Read a ``.dockerignore``."""
    rules = []
    for line in text.splitlines():
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        brings_back = words.startswith("!")
        clean = os.path.normpath(words.removeprefix("!").strip()).strip("/")
        if clean != ".":
            rules.append(Rule(re.compile(_expression(clean)), not brings_back))
    return rules


def _expression(pattern: str) -> str:
    """A pattern of Go's `filepath.Match` with ``**``, as it matches a path or a folder above it."""
    made, i = "", 0
    while i < len(pattern):
        if pattern.startswith("**", i):
            i += 2
            # At a beginning of folders it is any number of them, none too.
            made, i = (made + "(?:.*/)?", i + 1) if pattern[i : i + 1] == "/" else (made + ".*", i)
            continue
        end = pattern.find("]", i) if pattern[i] == "[" else -1
        if end > i:
            made, i = made + pattern[i : end + 1], end + 1
            continue
        made += {"*": "[^/]*", "?": "[^/]"}.get(pattern[i], re.escape(pattern[i]))
        i += 1
    return rf"(?s:{made})(?:/|\Z)"


def is_ignored(name: str, rules: Sequence[Rule]) -> bool:
    """Is a path, relative to the folder, left out? The last line that matches decides."""
    if name in _ALWAYS:
        return False
    found = [rule.ignored for rule in rules if rule.pattern.match(name)]
    return bool(found) and found[-1]


def seen(folder: Path) -> Iterator[Path]:
    """All that a build in the folder sees, in order."""
    try:
        rules = rules_of((folder / _FILE).read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, IsADirectoryError):
        rules = []
    if any((folder / name).exists() for name in _OTHERS):
        rules = []
    for path in _walk(folder):
        if not is_ignored(path.relative_to(folder).as_posix(), rules):
            yield path


def digest_of(folder: Path, *, whole: bool = False) -> str:
    """A digest of names, modes, links and contents.

    Args:
        whole: of all that is there; else of what a build of the folder sees.
    """
    digest = hashlib.sha256()
    for path in _walk(folder) if whole else seen(folder):
        about = path.lstat()
        kind = stat.S_IFMT(about.st_mode)
        mode = 0 if stat.S_ISLNK(about.st_mode) else stat.S_IMODE(about.st_mode)
        name = str(path.relative_to(folder))
        digest.update(f"{name}\0{kind:o} {mode:o} ".encode("utf-8", "surrogateescape"))
        if stat.S_ISLNK(about.st_mode):
            digest.update(os.fsencode(path.readlink()))
        elif stat.S_ISREG(about.st_mode):
            digest.update(f"{about.st_size} ".encode())
            with path.open("rb") as file:
                while piece := file.read(_PIECE):
                    digest.update(piece)
        digest.update(b"\0")
    return digest.hexdigest()[:32]


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
