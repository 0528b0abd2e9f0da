"""What a build sees of its folder, and a digest of that: the same build has the same digest.

``.gitignore`` plays no part, as for the engines.
"""

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

_FILE = ".dockerignore"
_OTHERS = (".containerignore", "Dockerfile.dockerignore", "Containerfile.dockerignore")
"""Some builders read these instead; where there is one, nothing is taken for ignored."""
_WILDCARD = re.compile(r"[*?\[\\]")
_PIECE = 1 << 20


def seen(folder: Path) -> Sequence[Path]:
    """All that a build in the folder sees, in order."""
    try:
        lines = (folder / _FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, IsADirectoryError):
        lines = []
    if any((folder / name).exists() for name in _OTHERS):
        lines = []
    rules = [line.strip() for line in lines if not line.strip().startswith("#")]
    if any(line.startswith("!") and _WILDCARD.search(line) for line in rules):
        rules = []  # Docker's SDK enters no ignored folder for these, and engines do
    return _below(folder, [*rules, "!Containerfile"])


def _below(folder: Path, rules: Sequence[str]) -> Sequence[Path]:
    """All but what these lines of a ``.dockerignore`` leave out."""
    # Docker's SDK costs a tenth of a second to import, and is imported where something is built.
    from docker.utils import exclude_paths

    return [folder / name for name in sorted(exclude_paths(str(folder), list(rules)))]


def digest_of(folder: Path, *, whole: bool = False) -> str:
    """A digest of names, modes, links and contents.

    Args:
        whole: of all that is there; else of what a build of the folder sees.
    """
    digest = hashlib.sha256()
    for path in _below(folder, ()) if whole else seen(folder):
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
