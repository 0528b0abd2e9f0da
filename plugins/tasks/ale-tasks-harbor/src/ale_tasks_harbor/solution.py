"""A reference solution as commands for one shell: the files go in by here-document."""

import base64
import gzip
import io
import shlex
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ale_tasks_harbor.folder import Folder

LARGEST = 8 << 20
"""Bytes of a solution's files that go into a task, and with it into the run's files."""
WITHOUT = "no_solution"
"""Key of a task's metadata: why it has no solution, though its folder has one."""
FOLDER = "solution_folder"
"""Key of a task's metadata: the folder for its solution's files, for the agent that runs it."""


CRLF = "line 1 ends in CR LF, which makes the CR a part of the interpreter's name"


FILES = "solution_files"
"""Key of a task's metadata: the host's folder that goes to `FOLDER` whole, as it is larger than
`LARGEST`; the commands only run it."""


class UnusableError(Exception):
    """Its script alone is larger than `LARGEST`, or names its interpreter in a line with CR LF."""


class TooLargeError(UnusableError):
    """Its files are larger than `LARGEST`."""


def from_folder(script: str, place: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Run a script that is in a folder of the sandbox already; see `FILES`."""
    start = f"{place}/{script}"
    pairs = [shlex.quote(f"{name}={value}") for name, value in env.items()]
    runnable = f"[ -x {start} ] || chmod +x {start}"
    return (f"{{ {runnable}; }} && {' '.join(['env', *pairs, start])}",)


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
    source: Folder,
    script: str,
    place: str,
    env: Mapping[str, str],
    *,
    alone: bool = False,
    for_bash: bool = False,
) -> tuple[str, ...]:
    """Put the host's folder with a script into a folder of the sandbox and run the script.

    Where the sandbox's user can't make that folder, it is one of the same name in ``/tmp``.

    Args:
        script: its name in the folder, a plain one.
        place: in the sandbox; a plain name below ``/``.
        env: for the script.
        alone: nothing but the script is put there.
        for_bash: whatever its first line says, where there is a bash.

    Raises:
        UnusableError: then the task has none.
        OSError: it can't be read.
    """
    if not for_bash and source.starts_with_crlf(script):
        raise UnusableError(f"{source.at(script)}: {CRLF}")
    alone = alone or source.names == [script]
    data = source.read(script)
    placed = None
    if alone and len(data) <= LARGEST:
        placed = _written(data, script)
    if placed is None:
        files = [Path(source.at(script))] if alone else sorted(Path(source.path).rglob("*"))
        packed = base64.encodebytes(_packed(source.path, files)).decode()
        placed = _UNPACK.format(data=packed.rstrip())
    # Without a first line that says otherwise it is for bash, as in Harbor.
    start = f'"$place"/{script}' if data.startswith(b"#!") else f'bash "$place"/{script}'
    if for_bash:
        start = f'"$(command -v bash || echo sh)" "$place"/{script}'
    pairs = [shlex.quote(f"{name}={value}") for name, value in env.items()]
    run = " ".join(["env", *pairs, start]) if pairs else start
    return (_PLACE.format(folder=place) + placed, f'chmod +x "$place"/{script} && {run}')


def _written(data: bytes, script: str) -> str | None:
    """As text that can be read in a trajectory, where it is text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if not text.endswith("\n") or "\0" in text or "\r" in text or "\nALE_FILE\n" in f"\n{text}":
        return None
    return _WRITE.format(script=script, text=text)


def _packed(source: str, files: Sequence[Path]) -> bytes:
    size = 0
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in files:
            size += path.lstat().st_size
            if size > LARGEST:
                raise TooLargeError(
                    f"the files of the reference solution are larger than {LARGEST >> 20} MiB"
                )
            tar.add(path, str(path.relative_to(source)), recursive=False, filter=_plain)
    return gzip.compress(buffer.getvalue(), mtime=0)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
