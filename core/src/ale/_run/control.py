"""Requests to a run while it runs, through a socket that a file in its directory names.

A request is a line of JSON, ``{"action": "pause"}``, and so is the answer: the run's state, or
``{"error": ...}``. The socket itself is in a folder of its own among the temporary ones: what
copies or packs a run's directory, while the run runs or after it was killed, can't read a socket.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import stat
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field

from ale._run.adaptive import AdaptiveLimit
from ale._run.episode import EpisodeRunner
from ale._store import RunReader
from ale._store.lock import holder
from ale.errors import AleError, InputError, StoreError, nearest
from ale.files import write_whole

NAMED = "control"
"""The file in a run's directory that names the socket; gone when the run has ended."""
_SOCKET = "socket"
_PREFIX = "ale-control-"
ACTIONS = (
    *("state", "pause", "resume", "concurrency", "cancel", "evaluate", "stop-after-step", "stop"),
)
_LONGEST = 4096
"""Bytes of a request."""
_PATIENCE_S = 10.0
_CLIENTS = 32
"""Most connections at once."""
_YOUNG_S = 60.0
"""Seconds in which a folder may have no listener yet."""


@define
class Control:
    """State of a run that can be asked for; a resumed run begins with its config's.

    Args:
        concurrency: most episodes at once.
        adaptive: changes that number.
    """

    concurrency: int
    adaptive: AdaptiveLimit | None = None
    paused: bool = False
    """No further episode starts."""
    stops: bool = False
    """The run ends after the step that it is in."""
    evaluates: bool = False
    """The policy is evaluated after the step that the run is in."""
    running: int = 0
    """Episodes that run."""
    at_work: set[str] = field(factory=set)
    """Their ids, but for those that have a slot and not begun."""
    here: EpisodeRunner | None = None
    """Runs the episodes; None where they run elsewhere."""
    on_change: list[Callable[[], object]] = field(factory=list)
    """Are called when the state was changed."""
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    async def slot(self, given_up: Callable[[], bool]) -> None:
        """Wait until a further episode may start, or the run gives up, and count it."""
        while not given_up() and (self.paused or self.running >= self.concurrency):
            self._changed.clear()
            await self._changed.wait()
        self.running += 1

    def free(self) -> None:
        """Count an episode less."""
        self.running -= 1
        self._changed.set()

    def begin(self, id: str, at: float) -> None:
        """Count an episode that begins at this time."""
        self.at_work.add(id)
        if self.adaptive is not None:
            self.adaptive.begin([id], at)

    def adapt(self, most: int, at: float) -> None:
        """Let the number of episodes at once change by itself, from what it is now."""
        self.adaptive = AdaptiveLimit(most, self.concurrency)
        self.adaptive.begin(self.at_work, at)
        self.concurrency = self.adaptive.limit

    def changed(self) -> None:
        """Let those who wait for a slot look again."""
        self._changed.set()
        for each in self.on_change:
            each()

    def state(self) -> dict[str, Any]:
        """The state, as an answer has it."""
        return {
            "paused": self.paused,
            "concurrency": self.concurrency,
            "auto": self.adaptive is not None,
            "running": self.running,
            "stops_after_step": self.stops,
            "evaluates_after_step": self.evaluates,
        }

    def cancel(self, id: str) -> None:
        """End a running episode. Raises `InputError` if it does not run here."""
        if self.here is None:
            raise InputError.of("episodes run in other processes, where none can be cancelled")
        if id not in (running := self.here.running):
            hint = nearest(id, running) or "without an action, 'ale steer RUN' lists those that run"
            raise InputError.of(f"no episode '{id}' is running", hint=hint)
        self.here.cancel(id)

    def episodes(self) -> list[dict[str, Any]]:
        """The episodes that run in this process, the longest first, with what they do."""
        if self.here is None:
            return []
        now = self.here.context.monotonic()
        running = sorted(self.here.running.items(), key=lambda each: each[1].since)
        return [
            {"id": id, "stage": each.stage, "seconds": round(now - each.since, 1)}
            for id, each in running
        ]


def requested(line: bytes) -> tuple[str, int | str | None]:
    """The action of a request, and what it is about.

    Raises:
        InputError: it is none.
    """
    try:
        made = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError.of("a request is a line of JSON") from error
    action = made.get("action") if isinstance(made, dict) else None
    if not isinstance(action, str):
        raise InputError.of('a request is a mapping with an "action"')
    to = made.get("to")
    check(action, to)
    return action, to


def check(action: str, to: object) -> None:
    """Raise `InputError` if there is no such action, or it is about something else."""
    if action not in ACTIONS:
        expected = "one of " + ", ".join(ACTIONS)
        hint = nearest(action, ACTIONS)
        raise InputError.of(f"there is no action '{action}'", expected=expected, hint=hint)
    if action == "concurrency" and not (to == "auto" or (type(to) is int and to >= 1)):
        found = "" if to is None else f", found {to!r}"
        raise InputError.of(f"concurrency needs a number of at least 1, or auto{found}")
    if action == "cancel" and not isinstance(to, str):
        raise InputError.of("cancel needs the id of an episode")
    if to is not None and action not in ("concurrency", "cancel"):
        raise InputError.of(f"{action} needs nothing else, found {to!r}")


@contextlib.asynccontextmanager
async def listening(
    folder: Path,
    carry_out: Callable[[str, int | str | None], Mapping[str, Any]],
    report: Callable[[str], None],
) -> AsyncIterator[None]:
    """Take requests inside the block, of this process's user and of root.

    Args:
        carry_out: does what a request asks for, and returns the state; an `AleError` is answered.
        report: is told if none can be taken there.
    """

    answering: set[asyncio.Task[object]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        answering.add(task)
        task.add_done_callback(answering.discard)
        # Cancelled below: asyncio's own callback would print that.
        ended = (OSError, ValueError, TimeoutError, asyncio.CancelledError)
        with contextlib.closing(writer), contextlib.suppress(*ended):
            if not _is_ours(writer.get_extra_info("socket")) or len(answering) > _CLIENTS:
                return
            line = await asyncio.wait_for(reader.readline(), _PATIENCE_S)
            try:
                said = dict(carry_out(*requested(line)))
            except AleError as error:
                said = {"error": str(error)}
            writer.write(json.dumps(said).encode() + b"\n")
            await asyncio.wait_for(writer.drain(), _PATIENCE_S)

    _forget_killed(folder)
    _sweep()
    made = None
    try:
        made = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with _reachable(made / _SOCKET) as path:
            server = await asyncio.start_unix_server(answer, path, limit=_LONGEST)
            path.chmod(0o600)
        write_whole(folder / NAMED, os.fsencode(made / _SOCKET), private=True)
    except (OSError, StoreError) as error:  # a file system without sockets, or a full one
        _remove(made)
        report(f"nothing can be asked of this run while it runs: {error}")
        yield
        return
    try:
        yield
    finally:
        server.close()
        for task in [*answering]:
            task.cancel()
        await asyncio.gather(*answering)
        _remove(made)
        with contextlib.suppress(OSError):
            (folder / NAMED).unlink()


def _remove(made: Path | None) -> None:
    if made is not None:
        shutil.rmtree(made, ignore_errors=True)


def _forget_killed(folder: Path) -> None:
    """Remove what a process of the run left that was killed; the caller has the run's lock.

    The directory may be a copy that names the socket of a run that runs: that one stays.
    """
    named = folder / NAMED
    with contextlib.suppress(OSError, ValueError):  # which is of a path with a NUL
        if named.is_file():
            path = Path(os.fsdecode(named.read_bytes()))
            if path.parent.name.startswith(_PREFIX) and path.name == _SOCKET:
                _remove_dead(path.parent)  # the rest would be somebody else's
    with contextlib.suppress(OSError):
        named.unlink()


def _sweep() -> None:
    """Remove what processes of this user that were killed have left among the temporary files."""
    for made in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody else's, or removed meanwhile
            if time.time() - made.lstat().st_mtime > _YOUNG_S:
                _remove_dead(made)


def _remove_dead(made: Path) -> None:
    """Remove the folder of a socket at which nobody listens; a link, and what is not ours, stays.

    Raises:
        OSError: it is a link, or can't be read or removed.
    """
    folder = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        names = [each.name for each in os.scandir(folder)]
        if os.fstat(folder).st_uid != os.geteuid() or names not in ([], [_SOCKET]):
            return
        if names:
            if not stat.S_ISSOCK(os.stat(_SOCKET, dir_fd=folder, follow_symlinks=False).st_mode):
                return
            with _reachable(made / _SOCKET) as short, socket.socket(socket.AF_UNIX) as asked:
                asked.setblocking(False)  # one that is busy listens
                try:
                    asked.connect(str(short))
                except ConnectionRefusedError:
                    os.unlink(_SOCKET, dir_fd=folder)
                else:
                    return
        made.rmdir()
    finally:
        os.close(folder)


def steer(
    folder: str | os.PathLike[str], action: str = "state", to: int | str | None = None
) -> dict[str, Any]:
    """Ask a run that is running for one of `ACTIONS`; returns its state.

    Args:
        folder: the run's directory.
        action: ``state`` changes nothing.
        to: the number of ``concurrency``, or ``auto``; or the id of the episode to ``cancel``.

    Raises:
        InputError: there is no such action or run, the run does not run, or refuses.
        StoreError: it does not answer.
    """
    folder = Path(folder)
    check(action, to)
    made = {"action": action} | ({} if to is None else {"to": to})
    state = RunReader(folder).state
    if holder(folder) is None:
        raise InputError.of(f"the run is not running: it is {state}", file=str(folder))
    try:
        named = Path(os.fsdecode((folder / NAMED).read_bytes()))
        with _reachable(named) as path, socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(_PATIENCE_S)
            asked.connect(str(path))
            asked.sendall(json.dumps(made).encode() + b"\n")
            with asked.makefile("rb") as answers:
                said = json.loads(answers.readline())
    except (FileNotFoundError, ConnectionError, json.JSONDecodeError) as error:
        why = "it has just begun, or is about to end, or could not listen, as it said at its start"
        raise StoreError(f"{folder}: the run takes no request now: {why}") from error
    except (OSError, ValueError) as error:
        raise StoreError(f"{folder}: the process of the run can't be asked: {error}") from error
    if "error" in said:
        raise InputError.of(said["error"], file=str(folder))
    return dict(said)


@contextlib.contextmanager
def _reachable(path: Path) -> Iterator[Path]:
    """A socket's path, by a descriptor of its folder: an address has at most 107 bytes."""
    if sys.platform != "linux":
        yield path
        return
    descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield Path(f"/proc/self/fd/{descriptor}") / path.name
    finally:
        os.close(descriptor)


def _is_ours(connection: socket.socket) -> bool:
    """Is who asks the user of this process, or root?"""
    if sys.platform != "linux":
        return True  # the mode of the socket decides
    _, user, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    )
    return user in (0, os.geteuid())
