"""The files of the repository: those that git knows.

What a user has made in a clone, such as data sets or a package, is not the repository's. Tests load
this with `runpy`, since a test module can't import another.
"""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def tracked(*patterns: str, root: Path = ROOT) -> list[Path]:
    """Files that git knows and that are there, sorted.

    Args:
        patterns: which; ``*`` is a part of one name, ``**`` any number of folders. Default: all.

    Raises:
        CalledProcessError: `root` is no clone, or there is no git.
    """
    # A clone may belong to another user, such as the one that called sudo.
    command = ["git", "-c", f"safe.directory={root.resolve()}", "-C", str(root), "ls-files", "-z"]
    command += ["--", *(f":(glob){pattern}" for pattern in patterns)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return sorted(path for name in listed.split("\0") if name and (path := root / name).exists())
