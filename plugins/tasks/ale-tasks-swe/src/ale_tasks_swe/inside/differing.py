"""Prints which files of the workspace are not as git has them. Sent as text; stdin has the list.

Standard library only, Python 3.8.
"""

# pathlib would add to the start.
# ruff: noqa: PTH114, PTH115, PTH118, PTH120, PTH123

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys


def differs(path: str, mode: int, blob: str) -> bool:
    """Whether a file or link is not the one that git names by a mode and an id."""
    try:
        if mode == 0o120000:
            data = os.fsencode(os.readlink(path))
        else:
            found = os.lstat(path).st_mode
            if not stat.S_ISREG(found) or bool(found & 0o100) != bool(mode & 0o100):
                return True
            with open(path, "rb") as file:
                data = file.read()
    except OSError:
        return True
    digest = hashlib.sha1 if len(blob) == 40 else hashlib.sha256
    return digest(b"blob %d\0" % len(data) + data).hexdigest() != blob


def below_link(root: str, path: str) -> bool:
    """Whether a folder on the way to a path is a link."""
    folder = os.path.dirname(path)
    while folder:
        if os.path.islink(os.path.join(root, folder)):
            return True
        folder = os.path.dirname(folder)
    return False


if __name__ == "ale_differing":
    given = json.loads(sys.stdin.buffer.read())
    root = given["workdir"]
    found = [
        path
        for path, (mode, blob) in given["files"].items()
        if below_link(root, path) or differs(os.path.join(root, path), mode, blob)
    ]
    sys.stdout.write(given["mark"] + json.dumps(found) + "\n")
