"""Jobs in a sandbox, from the client's side; see ``inside/jobs.sh`` for the other."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from importlib.resources import files

from attrs import frozen

from ale.errors import SandboxDamagedError, SandboxError
from ale.types import ExecResult
from ale_sandboxing.remote.client import PART, BrokenAnswerError, Client
from ale_sandboxing.remote.service import Remote
from ale_sandboxing.shell.capture import KILLED, Capture, result_of
from ale_sandboxing.shell.text import LONGEST_ARGUMENT

KEEP = "ALE_KEEP"
"""Variable of everything in a container that is not a command's."""
INLINE = 1 << 16
"""Bytes that an answer itself carries; more is read as a file."""
_SCRIPT = files("ale_sandboxing.remote").joinpath("inside/jobs.sh").read_text()
# Answers with the folder and user that the image has, and bash, where there is one. Processes that
# run already are the machine's own (by number and start), and in a virtual machine so are those of
# the kernel, of which the second process is the parent.
_INSTALL = """\
umask 077
mkdir -p "$1" && printf '%s' "$2" >"$1/new" && mv "$1/new" "$1/jobs.sh" || exit
[ -f "$1/before" ] || {
  read -r name </proc/2/comm && [ "$name" = kthreadd ] && printf ' kernel.2 '
  for process in /proc/[0-9]*; do
    read -r state <"$process/stat" || continue
    (set -- ${state##*) } && printf ' %s.%s ' "${process#/proc/}" "${20}")
  done
} >"$1/before" 2>/dev/null
workdir=${3:-$(pwd)}
case $workdir in /) workdir=$4 ;; /*) ;; *) workdir=$(pwd)/$workdir ;; esac
umask 022
mkdir -p -- "$workdir" && cd -- "$workdir" || exit
printf '%s\\n' "$(id -u)" "$(id -g)" "$(command -v bash)" "$(pwd -P)" installed
"""


@frozen(kw_only=True)
class Place:
    """Facts about a container."""

    uid: int
    gid: int
    bash: str | None
    workdir: str


@frozen(kw_only=True)
class Outcome:
    """How a job has ended."""

    code: int
    ended: bool
    """The shell that it ran in has ended with it."""
    stdout: Capture
    stderr: Capture

    def result(self, *, timed_out: bool, duration_s: float) -> ExecResult:
        """What the caller gets."""
        return result_of(
            self.code, self.stdout, self.stderr, timed_out=timed_out, duration_s=duration_s
        )


class Jobs:
    """The jobs of one sandbox."""

    def __init__(self, client: Client, remote: Remote) -> None:
        self.closed = False
        """Set when the sandbox is closed: nothing is asked of it any more."""
        self._client = client
        self._remote = remote
        self._root = f"/tmp/.ale-{secrets.token_hex(8)}"  # noqa: S108  in the sandbox
        self._finished: list[str] = []

    def path(self, name: str) -> str:
        """Of a file among the jobs'."""
        return f"{self._root}/{name}"

    async def install(self, workdir: str | None, default: str) -> Place:
        """Put the script into the sandbox and make the workspace.

        Args:
            workdir: absolute, or relative to the image's own; None for that itself.
            default: where the image has none but ``/``.

        Raises:
            SandboxError: this failed, or did not answer.
        """
        argv = ["/bin/sh", "-c", _INSTALL, "sh", self._root, _SCRIPT, workdir or "", default]

        async def call() -> list[str]:
            answer = await self._remote.exec(argv)
            lines = answer.decode(errors="replace").splitlines()
            if lines[-1:] != ["installed"]:
                raise BrokenAnswerError(f"no folder {workdir or default} could be made: {lines}")
            return lines

        uid, gid, bash, place, _ = await self._client.again(call, "set a sandbox up")
        return Place(uid=int(uid), gid=int(gid), bash=bash or None, workdir=place)

    async def ask(self, action: str, *words: str) -> tuple[list[str], bytes]:
        """The first line of an action's answer, as words, and the rest.

        Raises:
            SandboxError: the sandbox is closed or gone, or does not answer.
        """
        forgotten = self._finished[:50]
        argv = ["/bin/sh", self.path("jobs.sh"), action, " ".join(forgotten), *words]

        async def call() -> tuple[list[str], bytes]:
            if self.closed:
                raise SandboxError(f"sandbox {self._remote.id} is closed")
            answer = await self._remote.exec(argv)
            line, newline, rest = answer.partition(b"\n")
            if not newline:
                raise BrokenAnswerError("no answer")
            head = line.decode(errors="replace").split()
            _check_length(head, rest)
            return head, rest

        try:
            answer = await self._client.again(call, f"{action} in sandbox {self._remote.id}")
        except SandboxError as error:
            if not self.closed:
                await self._check_damage(error)
            raise
        self._finished = [token for token in self._finished if token not in forgotten]
        return answer

    async def _check_damage(self, error: SandboxError) -> None:
        """Raise a SandboxDamagedError where the sandbox answers, and only starts no shell."""
        if not self._client.was_answered(error):
            return
        try:
            script = await self._client.read(self._remote, self.path("jobs.sh"))
        except SandboxError:
            return  # with its files, or they were removed as well: nobody can tell
        if script.decode(errors="replace") == _SCRIPT:
            raise SandboxDamagedError(
                f"sandbox {self._remote.id} can be read and runs no command any more: {error}"
            ) from error

    async def end(self, token: str) -> None:
        """Kill what a job has started. It ends, if it has not, and never starts if it had not."""
        await self.ask("end", token)

    async def end_all(self) -> int:
        """Kill the processes of all jobs; how many."""
        (_, count), _ = await self.ask("end_all")
        return int(count)

    def forget(self, *tokens: str) -> None:
        """Let what is kept of jobs be removed, with the next call."""
        self._finished += tokens

    async def store(self, name: str, data: bytes) -> str:
        """Put bytes into a file; its path."""
        await self._client.write(self._remote, self.path(name), data)
        return self.path(name)

    async def argument(self, text: bytes) -> str | None:
        """The file with a text that can't be an argument: too long, or not UTF-8; else None."""
        if len(text) <= LONGEST_ARGUMENT and _is_text(text):
            return None
        return await self.store(new_token(), text)

    async def parts(self, path: str, size: int, *, whole: bool = True) -> AsyncIterator[bytes]:
        """The first bytes of a file, in parts.

        Args:
            whole: it has no more, so that the service may give it at once.

        Raises:
            SandboxError: it became shorter meanwhile.
        """
        if size <= PART and whole:
            yield (await self._client.read(self._remote, path))[:size]
            return
        token = new_token()
        for at in range(0, size, PART):
            await self.ask("part", path, self.path(token), str(PART), str(at // PART))
            part = await self._client.read(self._remote, self.path(token))
            if len(part) < min(PART, size - at):
                raise SandboxError(f"{path} became shorter while it was read")
            yield part[: size - at]
        self.forget(token)

    async def fetch(self, path: str, size: int, *, whole: bool = True) -> bytes:
        """The first bytes of a file. Arguments and errors as of `parts`."""
        return b"".join([part async for part in self.parts(path, size, whole=whole)])

    async def run(
        self,
        action: str,
        limit: int,
        words: Callable[[str], Awaitable[Sequence[str]]],
        tokens: list[str],
    ) -> Outcome:
        """Run a job, and wait for its end; again under another name where it was never started.

        Args:
            limit: bytes of each stream to give back.
            words: more arguments of the action, for the name of the job.
            tokens: gets each name; the last is that of the job.
        """
        while True:
            token = new_token()
            tokens.append(token)
            outcome = await self._outcome(action, token, limit, await words(token))
            self.forget(token)
            if outcome is not None:
                return outcome

    async def _outcome(
        self, action: str, token: str, limit: int, words: Sequence[str]
    ) -> Outcome | None:
        """The end of a job; None where it was not started and never will be."""
        mark = f"ale-end-{secrets.token_hex(16)}"
        head = ["running"]
        while head[0] == "running":
            head, rest = await self.ask(action, token, str(limit), mark, *words)
        if head[0] == "lost":
            return None
        sizes = int(head[3]), int(head[4])
        if sum(sizes) <= INLINE:
            streams = (rest[: sizes[0]], rest[sizes[0] :])
        else:
            whole = [self.path(f"{token}/{name}") for name in head[5:7]]
            streams = (await self.fetch(whole[0], sizes[0]), await self.fetch(whole[1], sizes[1]))
        out, err = (_captured(data, mark.encode(), limit) for data in streams)
        return Outcome(code=int(head[1]), ended=head[2] == "ended", stdout=out, stderr=err)

    async def limited(
        self, running: "asyncio.Task[Outcome]", timeout_s: float | None, end: Callable[[], str]
    ) -> tuple[Outcome, bool]:
        """Wait for a job; kill it on timeout or cancellation.

        Args:
            end: the token of what is to be killed then.

        Returns:
            The outcome, and whether the time limit has killed it.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(running), False
        except TimeoutError:
            try:
                await self.end(end())
            except SandboxError:
                running.cancel()
                raise
            outcome = await running
            return outcome, outcome.code == KILLED
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self._abandon(running, end())))
            raise

    async def _abandon(self, running: "asyncio.Task[Outcome]", token: str) -> None:
        running.cancel()
        await asyncio.wait([running])
        await self.end(token)
        self.forget(token)


def new_token() -> str:
    """A name that nothing else has."""
    return secrets.token_hex(12)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_length(head: Sequence[str], rest: bytes) -> None:
    """An answer may be cut short, and end like a whole one."""
    size = 0
    if head[:1] == ["done"]:
        size = int(head[3]) + int(head[4])
    elif head[:1] == ["file"]:
        size = int(head[1])
    if size <= INLINE and len(rest) < size:
        raise BrokenAnswerError(f"{len(rest)} of {size} bytes arrived")


def _captured(data: bytes, mark: bytes, limit: int) -> Capture:
    """What was written before the mark."""
    capture = Capture(limit)
    capture.add(data.partition(mark + b"\n")[0])
    return capture
