"""A reference solution as commands for one shell: the files go in by here-document."""

import base64
import gzip
import io
import shlex
import tarfile
from collections.abc import Mapping
from pathlib import Path

LARGEST = 8 << 20
"""Bytes of a solution's files that go into a task, and with it into the run's files."""
WITHOUT = "no_solution"
"""Of a task's metadata: why it has no solution, though its folder has one."""
FOLDER = "solution_folder"
"""Of a task's metadata: where the files of its solution go to, for the agent that runs it."""


class TooLargeError(Exception):
    """Its files are larger than `LARGEST`."""


_PLACE = """place={folder}
mkdir -p "$place" 2>/dev/null && [ -w "$place" ] || {{ place=/tmp{folder} && mkdir -p "$place"; }}
"""
_UNPACK = """base64 -d <<'ALE_FILES' | tar xzf - -C "$place"
{data}
ALE_FILES"""
# That of an earlier step may be another user's, and is not written over.
_WRITE = """rm -f "$place"/{script} && cat >"$place"/{script} <<'ALE_FILE'
{text}ALE_FILE"""


def commands(
    source: Path, folder: str, script: str, env: Mapping[str, str], *, for_bash: bool = False
) -> tuple[str, ...]:
    """Put a script, or a folder that holds it, into a folder of the sandbox and run the script.

    Where the sandbox's user can't make that folder, it is one of the same name in ``/tmp``.

    Args:
        source: the host's script, or the folder.
        folder: of the sandbox; a plain name below ``/``.
        script: name of the script in it, plain too.
        env: for the script.
        for_bash: whatever its first line says, where there is a bash.

    Raises:
        TooLargeError: then the task has none.
        OSError: it can't be read.
    """
    alone = source.is_file() or [path.name for path in source.iterdir()] == [script]
    file = source if source.is_file() else source / script
    data = file.read_bytes()
    placed = None
    if alone and len(data) <= LARGEST:
        placed = _written(data, script)
    if placed is None:
        packed = base64.encodebytes(_packed(source, script)).decode()
        placed = _UNPACK.format(data=packed.rstrip())
    # Without a first line that says otherwise it is for bash, as in Harbor.
    start = f'"$place"/{script}' if data.startswith(b"#!") else f'bash "$place"/{script}'
    if for_bash:
        start = f'"$(command -v bash || echo sh)" "$place"/{script}'
    pairs = [shlex.quote(f"{name}={value}") for name, value in env.items()]
    run = " ".join(["env", *pairs, start]) if pairs else start
    return (_PLACE.format(folder=folder) + placed, f'chmod +x "$place"/{script} && {run}')


def _written(data: bytes, script: str) -> str | None:
    """As text that can be read in a trajectory, where it is text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if not text.endswith("\n") or "\0" in text or "\r" in text or "\nALE_FILE\n" in f"\n{text}":
        return None
    return _WRITE.format(script=script, text=text)


def _packed(source: Path, script: str) -> bytes:
    size = 0
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in [source] if source.is_file() else sorted(source.rglob("*")):
            size += path.lstat().st_size
            if size > LARGEST:
                raise TooLargeError(
                    f"the files of the reference solution are larger than {LARGEST >> 20} MiB"
                )
            name = script if path == source else str(path.relative_to(source))
            tar.add(path, name, recursive=False, filter=_plain)
    return gzip.compress(buffer.getvalue(), mtime=0)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
