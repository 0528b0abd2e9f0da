"""Servers as processes of this machine: each has one that keeps it running."""

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ale.errors import AleError, InputError, nearest
from ale.files import replacing
from ale_servers.records import Entry
from ale_servers.supervisor import last_lines, serve_command
from ale_serving.server.places import Place

_STOP_S = 30.0


class Keeping(msgspec.Struct, frozen=True, kw_only=True):
    """The process that keeps a server running."""

    name: str
    pid: int
    born: str
    """When it was started: another process may get its id later."""
    host: str
    """The folder may be shared with other machines."""
    starter: int = 0
    """The `ale engines start` that waits until the server answers; 0 once it has."""
    starter_born: str = ""
    """As `born`."""

    @property
    def is_starting(self) -> bool:
        """Is the command that started it still waiting for it?"""
        return self.starter != 0 and _born(self.starter) == self.starter_born != ""


def default_folder() -> Path:
    """The registry of this user."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "ale" / "servers"


def names_for(place: Place, name: str | None, count: int) -> list[str]:
    """Names of new servers.

    Raises:
        InputError: one of them is in use.
    """
    taken = {*started(place), *(entry.name for entry in place.entries())}
    if name is None:
        free = (f"server-{n}" for n in range(1, len(taken) + count + 1))
        return [each for each in free if each not in taken][:count]
    wanted = [name] if count == 1 else [f"{name}-{n}" for n in range(1, count + 1)]
    if used := sorted(taken.intersection(wanted)):
        hint = f"ale engines stop {used[0]}; or another name"
        message = f"there is a server '{used[0]}' in {place.registry}"
        raise InputError.of(message, path="--name", hint=hint)
    return wanted


def start(
    place: Place, name: str, served: Sequence[str], *, gpus: str | None, wait_s: float
) -> Entry:
    """Start a server and wait until it is in the registry.

    Args:
        served: what it serves, as `ale serve` takes it.
        gpus: its CUDA_VISIBLE_DEVICES.

    Raises:
        AleError: it did not answer in time; it is stopped again. Or the registry can't be reached.
    """
    place.folder.mkdir(parents=True, exist_ok=True)
    environ = dict(os.environ) if gpus is None else {**os.environ, "CUDA_VISIBLE_DEVICES": gpus}
    command = serve_command(served, place.register, name)
    log = place.log(name)
    log.write_bytes(b"")
    pid = _spawn(
        [sys.executable, "-m", "ale_serving.server.keeping", str(log), *command], log, environ
    )
    record = Keeping(
        name=name,
        pid=pid,
        born=_born(pid),
        host=socket.gethostname(),
        starter=os.getpid(),
        starter_born=_born(os.getpid()),
    )
    _write(place, record)
    try:
        entry = _wait_for(place, record, wait_s)
        _write(place, msgspec.structs.replace(record, starter=0, starter_born=""))
    except BaseException:
        if _runs(record):
            stop(place, name)
        raise
    return entry


def _spawn(argv: Sequence[str], log: Path, environ: Mapping[str, str]) -> int:
    """Start a process that outlives this one, in a session of its own; its id."""
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(argv[0], list(argv), environ, file_actions=files, setsid=True)


def _wait_for(place: Place, record: Keeping, wait_s: float) -> Entry:
    deadline = time.monotonic() + wait_s
    name, log = record.name, place.log(record.name)
    while True:
        for entry in place.entries():
            if entry.name == name:
                return entry
        ended = not _runs(record)
        if ended or time.monotonic() > deadline:
            why = "ended" if ended else f"did not answer within {wait_s:g} s"
            raise AleError(f"the server '{name}' {why}; {log} ends with:\n{last_lines(log)}")
        time.sleep(0.05)


def _write(place: Place, record: Keeping) -> None:
    with replacing(place.record(record.name)) as partial:
        partial.write_bytes(msgspec.json.encode(record))


def started(place: Place) -> list[str]:
    """Names of the servers that were started on this machine and are kept running."""
    return [record.name for record in kept(place)]


def kept(place: Place) -> list[Keeping]:
    """The processes that keep servers of this machine running, by the servers' names."""
    found = []
    for file in sorted(place.folder.glob("*.process")):
        record = _read(file)
        if record is not None and _runs(record):
            found.append(record)
        elif record is not None:
            file.unlink(missing_ok=True)
    return found


def stop(place: Place, name: str) -> None:
    """Stop a server of this machine, and wait for its end.

    Raises:
        InputError: there is none of this name.
        AleError: it does not end.
    """
    record = _read(place.record(name))
    if record is None or not _runs(record):
        known = started(place)
        message = f"no server '{name}' was started on this machine in {place.folder}"
        raise InputError.of(message, hint=nearest(name, known))
    os.kill(record.pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_S
    while _runs(record):
        if time.monotonic() > deadline:
            raise AleError(f"the server '{name}' (process {record.pid}) does not end")
        time.sleep(0.02)
    place.record(name).unlink(missing_ok=True)
    with contextlib.suppress(ConnectionError):  # it expires there
        place.registry.remove(name)


def _read(file: Path) -> Keeping | None:
    """A record of this machine; None for any other."""
    try:
        record = msgspec.json.decode(file.read_bytes(), type=Keeping)
    except (OSError, msgspec.DecodeError):
        return None
    return record if record.host == socket.gethostname() else None


def _runs(record: Keeping) -> bool:
    return _born(record.pid) == record.born != ""


def _born(pid: int) -> str:
    """When a process was started, in ticks since the machine was; empty if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
