"""What Docker's archive calls, which Podman has taken over, say about a path."""

import base64
import json
import stat
from datetime import datetime

from ale_sandbox_container.engine import Stat

STAT_HEADER = "X-Docker-Container-Path-Stat"
_ALPHABET = str.maketrans("-_", "+/")
"""Podman's is the one for URLs."""
# What Go's os.FileMode says besides the permission bits.
_KINDS = (
    (1 << 31, stat.S_IFDIR),
    (1 << 27, stat.S_IFLNK),
    (1 << 25, stat.S_IFIFO),
    (1 << 24, stat.S_IFSOCK),
    (1 << 21, stat.S_IFCHR),
    (1 << 26, stat.S_IFBLK),
)


def parse_stat(header: str) -> Stat:
    """The value of the header `STAT_HEADER`: Base64, in either alphabet."""
    found = json.loads(base64.b64decode(header.translate(_ALPHABET)))
    mode = found["mode"]
    kind = next((kind for bit, kind in _KINDS if mode & bit), stat.S_IFREG)
    return Stat(
        mode=kind | mode & 0o777,
        mtime=datetime.fromisoformat(found["mtime"]).timestamp(),
        link=found["linkTarget"] if kind == stat.S_IFLNK else "",
    )
