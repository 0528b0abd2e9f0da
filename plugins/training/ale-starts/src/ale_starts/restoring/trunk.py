"""The state at a start, kept in a sandbox of its own that rollouts are forked from.

A fork has the files. Whether it has everything else that a command could notice is looked at, not
assumed: sessions are made anew and compared, and so are the processes, and the files that lie
outside the layers that a fork copies.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from attrs import field, frozen

from ale.errors import SandboxError, UnsupportedError
from ale.protocols import Sandbox, Session
from ale_starts.restoring.playing import Played
from ale_starts.restoring.recording import Call, Log, Opened, Recorded
from ale_starts.restoring.shell_state import Change, ShellState, UnknownStateError, read

PATIENCE_S = 120.0
"""For all that making or forking a trunk takes; longer is no gain."""
_LOOKS = 3
"""A process that is just ending is no difference."""
_PAUSE_S = 0.1

# In the process group and session of the first process are the sandbox's own helpers, which come
# and go; a command has a group of its own. Where this one has not, all processes count.
_LOOK = r"""
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
keeper="$3 $4"
read -r line </proc/$$/stat || exit 3
set -- ${line##*) }
[ "$3 $4" = "$keeper" ] && keeper=
for process in /proc/[0-9]*; do
  read -r line <"$process/stat" && read -r name <"$process/comm" || continue
  set -- ${line##*) }
  [ "$3 $4" = "$keeper" ] && continue
  case $1 in Z*) ;; *) echo "$name" ;; esac
done 2>/dev/null
exit 0
"""


class NotExactError(Exception):
    """A fork would not be what a replay is; the text says where."""


class NotMadeError(NotExactError):
    """No fork was made, this time; the text says why."""


@frozen(kw_only=True)
class KeptSession:
    """How to open a session again."""

    change: Change
    env: Mapping[str, str] | None
    cwd: str | None


@frozen(kw_only=True)
class Trunk:
    """What a rollout needs to begin at a start without running the commands before it."""

    sandbox: Sandbox
    calls: Sequence[Call] = field(repr=False)
    sessions: Sequence[KeptSession | None] = field(repr=False)
    """By number; None where one had ended."""

    async def fork(self) -> Played:
        """A sandbox at the start.

        Raises:
            NotExactError: a session in it is not as it was.
            NotMadeError: the sandbox failed.
        """
        async with _patience(), _given_up(await self.sandbox.fork()) as real:
            sessions = [await _again(real, kept) for kept in self.sessions]
            return Played(real, self.calls, sessions)

    async def close(self) -> None:
        """Let go of the sandbox; its forks go on."""
        await self.sandbox.close()


async def freeze(box: Recorded, log: Log) -> Trunk:
    """What `box` is now, as something to fork. `box` itself is as before.

    Raises:
        NotExactError: forks would not be the same.
    """
    if log.unrepeatable or log.pending:
        raise NotExactError(log.unrepeatable or "a command was still running")
    async with _patience():
        sessions = [await _kept(opened) for opened in box.opened]
        async with _given_up(await box.real.fork()) as twin:
            if twin.workdir != box.workdir:
                raise NotExactError(
                    f"a fork's workspace has another path: {twin.workdir}, not {box.workdir}"
                )
            trunk = Trunk(sandbox=twin, calls=tuple(log.calls), sessions=sessions)
            made = [await _again(twin, kept) for kept in sessions]
            await _compare(box.real, twin)
            for session in made:
                if session is not None:
                    await session.close()
            return trunk


async def fresh_state(session: Session) -> ShellState | None:
    """What a new session's shell holds; None where that can't be read."""
    try:
        return await read(session, PATIENCE_S)
    except UnknownStateError:
        return None


async def _kept(opened: Opened) -> KeptSession | None:
    if opened.session.closed:
        return None
    if opened.fresh is None:
        raise NotExactError("a session's shell can't be read: it is no bash")
    now = await read(opened.session, PATIENCE_S)
    return KeptSession(change=now.since(opened.fresh), env=opened.env, cwd=opened.cwd)


async def _again(box: Sandbox, kept: KeptSession | None) -> Session | None:
    """A session that is as the kept one was, which is checked."""
    if kept is None:
        return None
    session = await box.session(env=kept.env, cwd=kept.cwd)
    fresh = await read(session, PATIENCE_S)
    await session.run(kept.change.script, timeout_s=PATIENCE_S)
    part = (await read(session, PATIENCE_S)).since(fresh).differs(kept.change)
    if part:
        raise NotExactError(f"a session's shell could not be made as it was: {part}")
    return session


async def _compare(box: Sandbox, twin: Sandbox) -> None:
    for look in range(_LOOKS):
        ours, theirs = await _look(box), await _look(twin)
        if ours == theirs:
            return
        if look + 1 < _LOOKS:
            await asyncio.sleep(_PAUSE_S)
    if ours[0] == theirs[0]:
        lost = Counter(ours[1]) - Counter(theirs[1]) or Counter(theirs[1]) - Counter(ours[1])
        raise NotExactError(f"processes are still running: {', '.join(sorted(lost))}")
    raise NotExactError("files lie where forks do not copy them: in /dev/shm or on a volume")


async def _look(box: Sandbox) -> tuple[Sequence[str], Sequence[str]]:
    """Lines about files that may not be copied, and the names of all processes."""
    result = await box.exec(_LOOK, timeout_s=PATIENCE_S, cwd="/")
    if result.exit_code != 0 or result.truncated:
        raise NotExactError("processes and mounts can't be looked at in this sandbox")
    files, _, processes = result.stdout.decode(errors="replace").rpartition("processes\n")
    return sorted(files.splitlines()), sorted(processes.splitlines())


@asynccontextmanager
async def _given_up(sandbox: Sandbox) -> AsyncIterator[Sandbox]:
    """Close a sandbox where something goes wrong before it is handed on."""
    try:
        yield sandbox
    except BaseException:
        await asyncio.shield(asyncio.ensure_future(sandbox.close()))
        raise


@asynccontextmanager
async def _patience() -> AsyncIterator[None]:
    scope = asyncio.timeout(PATIENCE_S)
    try:
        async with scope:
            yield
    except TimeoutError:
        if not scope.expired():
            raise
        raise NotMadeError(f"no fork could be made within {PATIENCE_S:g} s") from None
    except UnknownStateError as error:
        raise NotExactError(str(error)) from None
    except (SandboxError, UnsupportedError) as error:
        raise NotMadeError(f"no fork could be made: {error}") from error
