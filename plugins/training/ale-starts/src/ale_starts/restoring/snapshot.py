"""A snapshot of the state at a start: a sandbox that rollouts are forked from.

A fork copies the files. Everything else that a command could observe is verified, not assumed:

1. shell sessions are reopened in the fork, their state is restored, read back and compared;
2. the names of running processes must be the same;
3. files outside the layers that a fork copies (``/dev/shm``, volumes) must be the same.

If one of these differs, `NotExactError` says which, and the start is replayed instead of forked.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from attrs import field, frozen

from ale.errors import SandboxError, UnsupportedError
from ale.protocols import Sandbox, Session
from ale_starts.restoring.recording import Call, Log, Opened, RecordingSandbox
from ale_starts.restoring.replay import ReplayingFork
from ale_starts.restoring.shell_state import Change, ShellState, UnknownStateError, read

TIME_LIMIT_S = 120.0
"""Time limit for taking or forking a snapshot."""
_INSPECTIONS = 3
"""Attempts: a process that is just ending should not count as a difference."""
_PAUSE_S = 0.1

# A shell script that prints, inside a sandbox:
#   1. names and checksums of the files on every mount that a fork does not copy: all writable
#      mounts except overlays and the kernel's own, and /dev/shm;
#   2. the line "processes", then the name of every running process, zombies excluded.
# Processes in the group and session of PID 1 are the sandbox's own helpers, and are left out; but
# if this script itself runs in that group, commands do too, so all processes are listed.
# Exits with 3 where files or processes can't be inspected.
_INSPECT = r"""
command -v find >/dev/null && command -v cksum >/dev/null && [ -r /proc/mounts ] || exit 3
while read -r _ place type options _; do
  case $place in /dev/shm) ;; / | /dev | /dev/* | /proc | /proc/* | /sys | /sys/*) continue ;; esac
  case $type,$options, in overlay,* | *,ro,*) continue ;; esac
  [ -d "$place" ] || continue
  find "$place" -xdev
  find "$place" -xdev -type f -exec cksum {} +
done </proc/mounts 2>/dev/null
echo processes
read -r line </proc/1/stat || exit 3
set -- ${line##*) }
helpers="$3 $4"
read -r line </proc/$$/stat || exit 3
set -- ${line##*) }
[ "$3 $4" = "$helpers" ] && helpers=
for process in /proc/[0-9]*; do
  read -r line <"$process/stat" && read -r name <"$process/comm" || continue
  set -- ${line##*) }
  [ "$3 $4" = "$helpers" ] && continue
  case $1 in Z*) ;; *) echo "$name" ;; esac
done 2>/dev/null
exit 0
"""


class NotExactError(Exception):
    """A fork would differ from a replay; the message says where."""


class NotMadeError(NotExactError):
    """A fork failed this time; the message says why."""


@frozen(kw_only=True)
class SavedSession:
    """The state needed to reopen a session in a fork."""

    change: Change
    env: Mapping[str, str] | None
    cwd: str | None


@frozen(kw_only=True)
class Snapshot:
    """State at a start, for rollouts that begin there without running the commands before it."""

    sandbox: Sandbox
    calls: Sequence[Call] = field(repr=False)
    sessions: Sequence[SavedSession | None] = field(repr=False)
    """Sessions by number; None for a session that had ended."""

    async def fork(self) -> ReplayingFork:
        """A sandbox at the start, which answers the agent from the recording until then.

        Raises:
            NotExactError: a session could not be restored.
            NotMadeError: the sandbox failed.
        """
        async with _time_limit(), _closed_on_error(await self.sandbox.fork()) as real:
            sessions = [await _reopen(real, saved) for saved in self.sessions]
            return ReplayingFork(real, self.calls, sessions)

    async def close(self) -> None:
        """Close the sandbox; its forks stay open."""
        await self.sandbox.close()


async def take_snapshot(box: RecordingSandbox, log: Log) -> Snapshot:
    """Snapshot the current state of `box`, which is not changed.

    Raises:
        NotExactError: forks would differ from it.
    """
    if log.unrepeatable or log.pending:
        raise NotExactError(log.unrepeatable or "a command is still running")
    async with _time_limit():
        sessions = [await _saved(opened) for opened in box.opened]
        async with _closed_on_error(await box.real.fork()) as twin:
            if twin.workdir != box.workdir:
                raise NotExactError(
                    f"a fork's workspace has a different path: {twin.workdir}, not {box.workdir}"
                )
            snapshot = Snapshot(sandbox=twin, calls=tuple(log.calls), sessions=sessions)
            made = [await _reopen(twin, saved) for saved in sessions]
            await _compare(box.real, twin)
            for session in made:
                if session is not None:
                    await session.close()
            return snapshot


async def initial_shell_state(session: Session) -> ShellState | None:
    """The state of a new session's shell; None if it can't be read."""
    try:
        return await read(session, TIME_LIMIT_S)
    except UnknownStateError:
        return None


async def _saved(opened: Opened) -> SavedSession | None:
    if opened.session.closed:
        return None
    if opened.fresh is None:
        raise NotExactError("a session's shell state can't be read: it is not bash")
    now = await read(opened.session, TIME_LIMIT_S)
    return SavedSession(change=now.since(opened.fresh), env=opened.env, cwd=opened.cwd)


async def _reopen(box: Sandbox, saved: SavedSession | None) -> Session | None:
    """Reopen a session with the saved state, and verify it."""
    if saved is None:
        return None
    session = await box.session(env=saved.env, cwd=saved.cwd)
    fresh = await read(session, TIME_LIMIT_S)
    await session.run(saved.change.script, timeout_s=TIME_LIMIT_S)
    part = (await read(session, TIME_LIMIT_S)).since(fresh).differs(saved.change)
    if part:
        raise NotExactError(f"a session's shell state could not be restored: {part}")
    return session


async def _compare(box: Sandbox, twin: Sandbox) -> None:
    for look in range(_INSPECTIONS):
        ours, theirs = await _inspect(box), await _inspect(twin)
        if ours == theirs:
            return
        if look + 1 < _INSPECTIONS:
            await asyncio.sleep(_PAUSE_S)
    if ours[0] == theirs[0]:
        lost = Counter(ours[1]) - Counter(theirs[1]) or Counter(theirs[1]) - Counter(ours[1])
        raise NotExactError(f"processes are still running: {', '.join(sorted(lost))}")
    raise NotExactError("there are files that forks do not copy: in /dev/shm or on a volume")


async def _inspect(box: Sandbox) -> tuple[Sequence[str], Sequence[str]]:
    """The output of `_INSPECT`: lines about files, and the names of processes."""
    result = await box.exec(_INSPECT, timeout_s=TIME_LIMIT_S, cwd="/")
    if result.exit_code != 0 or result.truncated:
        raise NotExactError("processes and mounts can't be inspected in this sandbox")
    files, _, processes = result.stdout.decode(errors="replace").rpartition("processes\n")
    return sorted(files.splitlines()), sorted(processes.splitlines())


@asynccontextmanager
async def _closed_on_error(sandbox: Sandbox) -> AsyncIterator[Sandbox]:
    """Close the sandbox if the block raises."""
    try:
        yield sandbox
    except BaseException:
        await asyncio.shield(asyncio.ensure_future(sandbox.close()))
        raise


@asynccontextmanager
async def _time_limit() -> AsyncIterator[None]:
    scope = asyncio.timeout(TIME_LIMIT_S)
    try:
        async with scope:
            yield
    except TimeoutError:
        if not scope.expired():
            raise
        raise NotMadeError(f"no fork could be made within {TIME_LIMIT_S:g} s") from None
    except UnknownStateError as error:
        raise NotExactError(str(error)) from None
    except (SandboxError, UnsupportedError) as error:
        raise NotMadeError(f"no fork could be made: {error}") from error
