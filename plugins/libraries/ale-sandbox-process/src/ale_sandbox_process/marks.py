"""Find and kill every process of a sandbox, whatever it did to its group, session or parent.

Each command runs with RLIMIT_RSS, which Linux has ignored since 2.4.30, set to a number of its
own. The kernel hands it to every descendant, through setsid, double forks and ``env -i``; one
``prlimit`` call per process reads it back. A process whose limit was lowered on the way
(``ulimit -m``) is known by ``ALE_SANDBOX`` in its first environment. What escapes is a process
that changes both, or gives itself the number of another sandbox.
"""

import asyncio
import contextlib
import hashlib
import os
import resource
import signal
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol
from weakref import WeakKeyDictionary

from attrs import frozen

from ale.errors import SandboxError

VARIABLE = "ALE_SANDBOX"
_COMMANDS = 20
"""Bits of the mark that count the commands of a sandbox."""
_PATIENCE_S = 10.0

Limits = tuple[int, int]
"""Soft and hard RLIMIT_RSS in bytes."""


class Child(Protocol):
    """A process whose end this one is told."""

    @property
    def pid(self) -> int:
        """Its id, its own until `ended` is done."""
        ...

    @property
    def ended(self) -> "asyncio.Future[int]":
        """Its exit code."""
        ...

    def kill(self) -> None:
        """SIGKILL, unless it has ended. Raises PermissionError: it is another user's now."""
        ...


@frozen
class Mark:
    """The number that all processes of one sandbox carry.

    The hard limit is the sandbox's, the soft limit just below it the command's.
    """

    token: int
    """32 bits, the first one set."""
    id: str

    @classmethod
    def of(cls, folder: str, id: str) -> "Mark":
        """The mark of the sandbox in `folder`."""
        digest = hashlib.blake2b(folder.encode(), digest_size=4).digest()
        return cls(int.from_bytes(digest, "big") | 1 << 31, id)

    @property
    def hard(self) -> int:
        """Hard limit in KiB."""
        return (self.token + 1 << _COMMANDS) - 1

    def soft(self, command: int) -> int:
        """Soft limit in KiB of the n-th command, n from 0."""
        return (self.token << _COMMANDS) + command % ((1 << _COMMANDS) - 1)

    def values(self, command: int) -> tuple[int, int] | None:
        """Soft and hard limit in bytes; None where the host's own limit is lower."""
        if not _markable(self.hard * 1024):
            return None
        return self.soft(command) * 1024, self.hard * 1024

    def script(self, command: int) -> str:
        """Shell commands that put the mark on the shell and all that it starts."""
        if self.values(command) is None:
            return ""
        return f"ulimit -m {self.hard};ulimit -Sm {self.soft(command)};"

    def put(self, pid: int, command: int) -> None:
        """Put the mark on a process that has just been started.

        Its shell does the same with its first line, before it starts anything: this covers the
        moment until then, in which it may have to be killed.
        """
        limits = self.values(command)
        if limits is not None:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_RSS, limits)

    def variable(self, command: int) -> str:
        """Value of ``ALE_SANDBOX``."""
        return f"{self._name}.{command}"

    @property
    def _name(self) -> str:
        """The id alone would not do: another backend's sandbox may have the same."""
        return f"{self.id}-{self.token:08x}"

    def on(self, pid: int, command: int | None = None, *, newborn: bool = False) -> bool:
        """Does this process carry the mark (of that command)? A zombie does not.

        Raises nothing: a process that is gone or another user's is not ours.

        Args:
            newborn: look more closely, for a shell that has not run its first line yet.
        """
        return self.claims(pid, _limits_of(pid), command, newborn=newborn)

    def claims(
        self, pid: int, limits: Limits | None, command: int | None = None, *, newborn: bool = False
    ) -> bool:
        """As `on`, of a process whose limits are known."""
        if limits is not None and limits[1] == self.hard * 1024:
            ours = command is None or limits[0] == self.soft(command) * 1024
        elif limits is not None and _is_anothers(limits):
            ours = False
        else:
            ours = (limits is not None or newborn) and self._in_environment(pid, command)
        return ours and not _is_zombie(pid)

    def _in_environment(self, pid: int, command: int | None) -> bool:
        end = "." if command is None else f".{command}\0"
        try:
            with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:  # noqa: PTH123 - quicker
                environment = b"\0%b\0" % file.read()
        except OSError:  # gone, or not ours to look at
            return False
        return f"\0{VARIABLE}={self._name}{end}".encode() in environment


def _is_anothers(limits: Limits) -> bool:
    """Are they a mark? Asked where they are not one's own; saves a look at the environment."""
    next_token, rest = divmod(limits[1] // 1024 + 1, 1 << _COMMANDS)
    token = next_token - 1
    return rest == 0 and token >> 31 == 1 and limits[0] // 1024 >> _COMMANDS == token


def _markable(hard: int) -> bool:
    limit = resource.getrlimit(resource.RLIMIT_RSS)[1]
    return limit == resource.RLIM_INFINITY or limit >= hard


def _limits_of(pid: int) -> Limits | None:
    """RLIMIT_RSS of a process; None where there is none, or it is not ours to look at."""
    try:
        limits = resource.prlimit(pid, resource.RLIMIT_RSS)
    except ProcessLookupError:
        return None
    except PermissionError:
        # A root without CAP_SYS_RESOURCE, as containers have it, may still read.
        return None if os.geteuid() else _limits_by_text(pid)
    return None if limits[1] == resource.RLIM_INFINITY else limits


def _limits_by_text(pid: int) -> Limits | None:
    try:
        text = Path(f"/proc/{pid}/limits").read_text()
    except OSError:  # it has ended
        return None
    (line,) = (line for line in text.splitlines() if line.startswith("Max resident set"))
    soft, hard, _ = line.removeprefix("Max resident set").split()
    return (int(soft), int(hard)) if hard.isdigit() and soft.isdigit() else None


def _is_zombie(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return True
    return stat[stat.rindex(b")") + 2 : stat.rindex(b")") + 3] in b"ZX"


def _others() -> Iterator[int]:
    """All process ids but this one's.

    Listed again until nobody new is there, so that a process that hands itself on from fork to
    fork is not missed.
    """
    seen = {str(os.getpid())}
    while new := set(os.listdir("/proc")) - seen:  # noqa: PTH208
        yield from (int(name) for name in new if name.isdigit())
        seen |= new


def find(mark: Mark, command: int | None = None, *, newborn: bool = False) -> list[int]:
    """Process ids of the sandbox, or of one of its commands. A fraction of a millisecond.

    Nobody found means that nobody is there.
    """
    return [pid for pid in _others() if mark.on(pid, command, newborn=newborn)]


_looks: WeakKeyDictionary[
    asyncio.AbstractEventLoop, "asyncio.Future[Sequence[tuple[int, Limits]]]"
] = WeakKeyDictionary()


async def _limited() -> Sequence[tuple[int, Limits]]:
    """All processes that have limits, by a look that begins after this is called.

    Who asks in the same turn of the event loop shares one look: with a hundred sandboxes at once,
    looks are a good part of what they cost.
    """
    loop = asyncio.get_running_loop()
    look = _looks.get(loop)
    if look is None:
        look = _looks[loop] = loop.create_future()
        loop.call_soon(_look, loop)
    return await asyncio.shield(look)


def _look(loop: asyncio.AbstractEventLoop) -> None:
    look = _looks.pop(loop)
    try:
        known = ((pid, _limits_of(pid)) for pid in _others())
        look.set_result([(pid, limits) for pid, limits in known if limits is not None])
    except OSError as error:
        look.set_exception(error)


def kill(mark: Mark, command: int | None = None, *, newborn: bool = False) -> set[int]:
    """SIGKILL them all, again and again until no new one appears; the process ids."""
    killed: set[int] = set()
    while new := [pid for pid in find(mark, command, newborn=newborn) if pid not in killed]:
        for pid in new:
            _kill_one(mark, pid)
        killed.update(new)
    return killed


def _kill_one(mark: Mark, pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # Looked at again, now that the handle holds it: the id may have passed to a stranger.
        if mark.on(pid, newborn=True):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # who is still there after this is reported by `end`
    finally:
        os.close(handle)


async def end_orphans(mark: Mark) -> int:
    """Kill all that a dead host process has left, and wait; the number killed.

    Also what it had started in its last moment, and not yet marked.

    Raises:
        SandboxError: some would not die.
    """
    killed = kill(mark, newborn=True)
    return len(await _until_gone(mark, None, killed))


async def end(mark: Mark, command: int | None = None, *, children: Iterable[Child] = ()) -> int:
    """Kill them all and wait until none is left; the number killed.

    Args:
        children: those among them that this process has started itself. They go first: mostly
            there are no others, and one look at all processes then is enough.

    Raises:
        SandboxError: some would not die (another user's, or stuck in the kernel).
    """
    own = [child for child in children if not child.ended.done()]
    try:
        for child in own:
            child.kill()
    except PermissionError as error:
        kill(mark, command)
        raise SandboxError(f"a process of sandbox {mark.id} can't be ended: {error}") from error
    if own:
        await asyncio.wait([child.ended for child in own], timeout=_PATIENCE_S)
    killed: set[int] = set()
    if any(mark.claims(pid, limits, command) for pid, limits in await _limited()):
        killed = kill(mark, command)
    killed = await _until_gone(mark, command, killed)
    return len(killed.union(child.pid for child in own))


async def _until_gone(mark: Mark, command: int | None, killed: set[int]) -> set[int]:
    """Wait for them to end, and kill those that come in between."""
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + _PATIENCE_S, 0.0005
    while killed and (left := find(mark, command)):
        if loop.time() > deadline:
            raise SandboxError(f"processes of sandbox {mark.id} would not end: {left}")
        await asyncio.sleep(pause)
        pause = min(2 * pause, 0.05)
        killed |= kill(mark, command)
    return killed
