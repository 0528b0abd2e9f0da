"""The keys that addresses name runs by."""

import hashlib
import re
from pathlib import Path

_PLAIN = re.compile(r"(?!.*(\.json|-[0-9a-f]{8})$)[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
"""Names that are keys: none is like a made key, or like the file that a bundle has of another."""


def key_of(path: Path, folder: Path) -> str:
    """The run's name if an address and a file can have it; otherwise one made of its path."""
    inside = path.name if path == folder else str(path.relative_to(folder))
    if _PLAIN.fullmatch(inside):
        return inside
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", path.name)[:80].strip("-.")
    return (
        f"{slug or 'run'}-{hashlib.sha256(inside.encode(errors='surrogateescape')).hexdigest()[:8]}"
    )
