"""Probes of `read`, `write`, `upload` and `download` with mistakes in the path.

A model makes them often. Each is an `OSError`, whatever the backend asks its engine: a
`SandboxError` would break the episode, and leave the mistake out of what is learned.
"""

from collections.abc import Awaitable
from pathlib import Path

import pytest

from ale.protocols import Sandbox
from ale.testing.sandbox._guard import time_limited
from ale.testing.sandbox.probes import case, expect

PREPARED = """\
echo a > f.txt; mkdir folder; mkfifo pipe
ln -s two one; ln -s one two; ln -s nowhere dangling; ln -s f.txt link
"""
LONG = "n" * 300
WRONG: dict[str, type[OSError]] = {
    "f.txt/": OSError,
    "f.txt/.": OSError,
    "f.txt/x": OSError,
    "f.txt/x/y": OSError,
    "link/x": OSError,
    "one": OSError,
    "one/x": OSError,
    LONG: OSError,
    f"folder/{LONG}": OSError,
    "folder/" + "name/" * 1000 + "x": OSError,
    "a\0b": OSError,
}
"""Wrong in every use, and the error."""
NO_FILE: dict[str, type[OSError]] = {
    "": IsADirectoryError,
    ".": IsADirectoryError,
    "folder": IsADirectoryError,
    "folder/": IsADirectoryError,
    "folder/..": IsADirectoryError,
    "/": OSError,
    "pipe": PermissionError,
    "/dev/null": PermissionError,
    "/proc/1": OSError,
}
"""There, but not to be read or written."""
MISSING: dict[str, type[OSError]] = {
    "missing": FileNotFoundError,
    "missing/": FileNotFoundError,
    "missing/x": FileNotFoundError,
    "dangling": FileNotFoundError,
    "dangling/x": FileNotFoundError,
    "folder/missing": FileNotFoundError,
}
"""Not there, for reading."""
NOT_WRITABLE: dict[str, type[OSError]] = {
    "missing/": OSError,
    "/proc/version": OSError,
    "/proc/new": OSError,
    "/dev/null/new": OSError,
}


async def fails(call: Awaitable[object], path: str, error: type[OSError]) -> None:
    """Check that the call raises this error."""
    with case(path[:40]), pytest.raises(error):
        await call


async def unharmed(box: Sandbox) -> None:
    """Check that the sandbox still works, with its files as they were."""
    expect(await box.exec("cat f.txt; ls"), stdout=LISTED)


LISTED = b"a\ndangling\nf.txt\nfolder\nlink\none\npipe\ntwo\n"


@time_limited
@pytest.mark.asyncio
class PathProbes:
    async def test_a_wrong_path_is_an_error_of_reading(self, box: Sandbox) -> None:
        await box.exec(PREPARED)
        for path, error in {**WRONG, **NO_FILE, **MISSING}.items():
            await fails(box.read(path), path, error)
        await unharmed(box)

    async def test_a_wrong_path_is_an_error_of_writing(self, box: Sandbox) -> None:
        await box.exec(PREPARED)
        for path, error in {**WRONG, **NO_FILE, **NOT_WRITABLE}.items():
            await fails(box.write(path, b"x"), path, error)
        await unharmed(box)

    async def test_a_wrong_path_is_an_error_of_uploads(self, box: Sandbox, tmp_path: Path) -> None:
        await box.exec(PREPARED)
        (tmp_path / "source").write_bytes(b"x")
        wrong = [path for path in WRONG if path != "one"]  # a link itself may be replaced
        for path in (*wrong, "folder", "folder/", "/proc/new", "/dev/null/new"):
            await fails(box.upload(tmp_path / "source", path), path, OSError)
        (tmp_path / "tree" / "inner").mkdir(parents=True)
        for path in wrong:
            await fails(box.upload(tmp_path / "tree", path), path, OSError)
        await unharmed(box)

    async def test_a_wrong_path_is_an_error_of_downloads(
        self, box: Sandbox, tmp_path: Path
    ) -> None:
        await box.exec(PREPARED)
        for path, error in {**WRONG, **MISSING}.items():
            await fails(box.download(path, tmp_path / "target"), path, error)
        assert not (tmp_path / "target").exists(), "something was copied"
        await unharmed(box)
