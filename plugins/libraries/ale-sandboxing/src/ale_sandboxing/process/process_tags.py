"""Find and kill every process of a sandbox, whatever it did to its group, session or parent.

Each command runs with RLIMIT_RSS, which Linux has ignored since 2.4.30, set to a number of its
own. The kernel hands it to every descendant, through setsid, double forks and ``env -i``; one
``prlimit`` call per process reads it back. A process whose limit was lowered on the way
(``ulimit -m``) is known by ``ALE_SANDBOX`` in its first environment. A process
that changes both, or sets the number of another sandbox, is not found.
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
"""Bits of the tag that count the commands of a sandbox."""
_TIMEOUT_S = 10.0

Limits = tuple[int, int]
"""Soft and hard RLIMIT_RSS in bytes."""


class Child(Protocol):
    """A process whose end is reported to this one."""

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
class ProcessTag:
    """The number that all processes of one sandbox carry.

    The hard limit is the sandbox's, the soft limit just below it the command's.
    """

    token: int
    """32 bits, the first one set."""
    id: str

    @classmethod
    def of(cls, folder: str, id: str) -> "ProcessTag":
        """The tag of the sandbox in `folder`."""
        digest = hashlib.blake2b(folder.encode(), digest_size=4).digest()
        return cls(int.from_bytes(digest, "big") | 1 << 31, id)

    @property
    def hard_kib(self) -> int:
        """Hard limit in KiB."""
        return (self.token + 1 << _COMMANDS) - 1

    def soft_kib(self, command: int) -> int:
        """Soft limit in KiB of the n-th command, n from 0."""
        return (self.token << _COMMANDS) + command % ((1 << _COMMANDS) - 1)

    def values(self, command: int) -> tuple[int, int] | None:
        """Soft and hard limit in bytes; None where the host's own limit is lower."""
        if not _can_tag(self.hard_kib * 1024):
            return None
        return self.soft_kib(command) * 1024, self.hard_kib * 1024

    def script(self, command: int) -> str:
        """Shell commands that put the tag on the shell and all that it starts."""
        if self.values(command) is None:
            return ""
        return f"ulimit -m {self.hard_kib};ulimit -Sm {self.soft_kib(command)};"

    def apply(self, pid: int, command: int) -> None:
        """Put the tag on a process that has just been started.

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

    def carried_by(self, pid: int, command: int | None = None, *, untagged: bool = False) -> bool:
        """Does this process carry the tag (of that command)? A zombie does not.

        Raises nothing: a process that is gone or another user's is not ours.

        Args:
            untagged: also find a shell that has not run its first line yet, by its environment.
        """
        limits = _limits_of(pid)
        return self.matches(pid, limits, command, untagged=untagged) and not _is_zombie(pid)

    def matches(
        self, pid: int, limits: Limits | None, command: int | None = None, *, untagged: bool = False
    ) -> bool:
        """As `carried_by`, of a process whose limits are known, and which may have ended."""
        if limits is not None and limits[1] == self.hard_kib * 1024:
            return command is None or limits[0] == self.soft_kib(command) * 1024
        if limits is not None and _is_foreign_tag(limits):
            return False
        return (limits is not None or untagged) and self._named_in_environment(pid, command)

    def _named_in_environment(self, pid: int, command: int | None) -> bool:
        end = "." if command is None else f".{command}\0"
        try:
            with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:  # noqa: PTH123 - quicker
                environment = b"\0%b\0" % file.read()
        except OSError:  # gone, or not readable for us
            return False
        return f"\0{VARIABLE}={self._name}{end}".encode() in environment


def _is_foreign_tag(limits: Limits) -> bool:
    """Are they the tag of another sandbox? Saves reading the environment."""
    next_token, rest = divmod(limits[1] // 1024 + 1, 1 << _COMMANDS)
    token = next_token - 1
    return rest == 0 and token >> 31 == 1 and limits[0] // 1024 >> _COMMANDS == token


def _can_tag(hard_kib: int) -> bool:
    limit = resource.getrlimit(resource.RLIMIT_RSS)[1]
    return limit == resource.RLIM_INFINITY or limit >= hard_kib


def _limits_of(pid: int) -> Limits | None:
    """RLIMIT_RSS of a process; None where there is none, or it is not readable for us."""
    try:
        limits = resource.prlimit(pid, resource.RLIMIT_RSS)
    except ProcessLookupError:
        return None
    except PermissionError:
        # A root without CAP_SYS_RESOURCE, as containers have it, may still read.
        return None if os.geteuid() else _limits_by_text(pid)
    return None if limits[1] == resource.RLIM_INFINITY else limits


def _limits_by_text(pid: int) -> Limits | None:
    """By hand: `Path.read_text` takes twice as long, and there may be hundreds to read."""
    try:
        file = os.open(f"/proc/{pid}/limits", os.O_RDONLY)
    except OSError:  # it has ended
        return None
    try:
        text = os.read(file, 4096)
    except OSError:
        return None
    finally:
        os.close(file)
    return parsed_limits(text)


def parsed_limits(text: bytes) -> Limits | None:
    """RLIMIT_RSS in the text of ``/proc/PID/limits``, which is empty while the process ends."""
    fields = text.partition(b"Max resident set")[2].split(maxsplit=2)[:2]
    if len(fields) < 2 or not all(field.isdigit() for field in fields):
        return None
    return int(fields[0]), int(fields[1])


def _is_zombie(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return True
    return stat[stat.rindex(b")") + 2 : stat.rindex(b")") + 3] in b"ZX"


def _other_pids() -> Iterator[int]:
    """All process ids but this one's.

    Listed again until no new one appears, so that a process that forks and exits repeatedly is not
    missed.
    """
    seen = {str(os.getpid())}
    while new := set(os.listdir("/proc")) - seen:  # noqa: PTH208
        yield from (int(name) for name in new if name.isdigit())
        seen |= new


def find(tag: ProcessTag, command: int | None = None, *, untagged: bool = False) -> list[int]:
    """Process ids of the sandbox, or of one of its commands. A fraction of a millisecond.

    An empty list means that no process is left.
    """
    return [pid for pid in _other_pids() if tag.carried_by(pid, command, untagged=untagged)]


_scans: WeakKeyDictionary[
    asyncio.AbstractEventLoop, "asyncio.Future[Sequence[tuple[int, Limits]]]"
] = WeakKeyDictionary()


async def _scan_limits() -> Sequence[tuple[int, Limits]]:
    """All processes that have limits, by a scan that starts after this call.

    Callers in the same turn of the event loop share one scan: with a hundred open sandboxes, scans
    are a large part of the cost.
    """
    loop = asyncio.get_running_loop()
    scan = _scans.get(loop)
    if scan is None:
        # No task: a loop that closes cancels its tasks, and sandboxes are closed even then.
        scan = _scans[loop] = loop.create_future()
        loop.call_soon(_scan, loop)
    return await asyncio.shield(scan)


def _scan(loop: asyncio.AbstractEventLoop) -> None:
    scan = _scans.pop(loop)
    try:
        known = ((pid, _limits_of(pid)) for pid in _other_pids())
        scan.set_result([(pid, limits) for pid, limits in known if limits is not None])
    except Exception as error:
        scan.set_exception(error)


def kill(tag: ProcessTag, command: int | None = None, *, untagged: bool = False) -> set[int]:
    """SIGKILL them all, again and again until no new one appears; the process ids."""
    killed: set[int] = set()
    while new := [pid for pid in find(tag, command, untagged=untagged) if pid not in killed]:
        for pid in new:
            _kill_pid(tag, pid)
        killed.update(new)
    return killed


def _kill_pid(tag: ProcessTag, pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # Check again now that the handle pins the process: the id may have been reused.
        if tag.carried_by(pid, untagged=True):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # `end` reports what is left
    finally:
        os.close(handle)


async def end_orphans(tag: ProcessTag) -> int:
    """Kill what a dead host process left running, and wait; the number killed.

    Includes what it had just started and not tagged yet.

    Raises:
        SandboxError: some did not die.
    """
    killed = kill(tag, untagged=True)
    return len(await _until_gone(tag, None, killed))


async def end(
    tag: ProcessTag, command: int | None = None, *, children: Iterable[Child] = ()
) -> int:
    """Kill them all and wait until none is left; the number killed.

    Args:
        children: those of them that this process started itself. They are killed first: mostly
            there are no others, and one scan of all processes is then enough.

    Raises:
        SandboxError: some did not die (another user's, or stuck in the kernel).
    """
    own = [child for child in children if not child.ended.done()]
    try:
        for child in own:
            child.kill()
    except PermissionError as error:
        kill(tag, command)
        raise SandboxError(f"a process of sandbox {tag.id} can't be ended: {error}") from error
    if own:
        await asyncio.wait([child.ended for child in own], timeout=_TIMEOUT_S)
    killed: set[int] = set()
    # Also where all that were found have ended since: they may have started others.
    if any(tag.matches(pid, limits, command) for pid, limits in await _scan_limits()):
        killed = kill(tag, command)
    killed = await _until_gone(tag, command, killed)
    return len(killed.union(child.pid for child in own))


async def _until_gone(tag: ProcessTag, command: int | None, killed: set[int]) -> set[int]:
    """Wait for them to end, and kill new ones meanwhile."""
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + _TIMEOUT_S, 0.0005
    while killed and (left := find(tag, command)):
        if loop.time() > deadline:
            raise SandboxError(f"processes of sandbox {tag.id} did not end: {left}")
        await asyncio.sleep(pause)
        pause = min(2 * pause, 0.05)
        killed |= kill(tag, command)
    return killed
