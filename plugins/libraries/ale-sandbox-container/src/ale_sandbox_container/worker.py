"""The host's side of a worker shell, which runs one command at a time in the container."""

import asyncio

from attrs import frozen

from ale.errors import SandboxError
from ale_sandbox_container.pipes import PipeFolder
from ale_sandbox_container.script import LEAVE, PRELUDE
from ale_sandbox_shell.channel import Lines, Writer


@frozen(kw_only=True)
class Handshake:
    """The first message of a worker shell: facts about its container."""

    uid: int
    gid: int
    sealed: bool
    """Other programs of the same user can't read the supervisor's memory."""
    own_groups: bool
    """There is a ``setsid`` to give each command a process group of its own."""
    bash: str | None
    """Its path."""

    @classmethod
    def parse(cls, line: bytes) -> "Handshake":
        """Read the line that the prelude ends with."""
        _, uid, gid, seal, base, *rest = line.decode().split()
        if base != "unlimited":
            raise SandboxError(
                "the engine limits the resident set (RLIMIT_RSS) of containers; that limit is "
                "needed to tell commands apart. Remove it from the engine's default ulimits"
            )
        return cls(
            uid=int(uid),
            gid=int(gid),
            sealed=seal == "sealed",
            own_groups="setsid" in rest,
            bash=next((word for word in rest if word.startswith("/")), None),
        )


class Job:
    """One request to a worker shell."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[bool] = loop.create_future()
        """True once the command runs and carries its mark; False where it never started."""
        self.ended: asyncio.Future[tuple[int, ...] | None] = loop.create_future()
        """The numbers in the worker shell's answer; None when it was killed."""

    def begin(self) -> None:
        """The command runs."""
        if not self.begun.done():
            self.begun.set_result(True)

    def end(self, numbers: tuple[int, ...] | None) -> None:
        """The worker shell has answered, or has ended."""
        if not self.begun.done():
            self.begun.set_result(False)
        if not self.ended.done():
            self.ended.set_result(numbers)


class Worker:
    """One worker shell; made before the shell itself starts.

    Args:
        base: names of its pipes, without their last letter.
    """

    def __init__(self, pipes: PipeFolder, base: str) -> None:
        loop = asyncio.get_running_loop()
        self._pipes = pipes
        self._names = (f"{base}c", f"{base}r")
        self._control = Writer(pipes.writer(self._names[0]))
        self._report = Lines(pipes.reader(self._names[1]), self._on_line, self._on_end)
        self._job: Job | None = None
        self.handshake: asyncio.Future[Handshake] = loop.create_future()
        self.handshake.add_done_callback(
            lambda handshake: handshake.exception()
        )  # not everybody waits for it
        self.gone: asyncio.Future[None] = loop.create_future()
        """Done when the shell has ended."""
        self._control.send(PRELUDE)

    @property
    def ready(self) -> bool:
        """It has answered, and is still there."""
        return self.handshake.done() and self.handshake.exception() is None and not self.gone.done()

    def ask(self, frame: bytes) -> Job:
        """Send a request. The previous one must have ended."""
        assert self._job is None or self._job.ended.done()
        self._job = Job()
        if self.gone.done():
            self._job.end(None)
        else:
            self._control.send(frame)
        return self._job

    def _on_line(self, line: bytes) -> None:
        kind, *words = line.split()
        if kind == b"handshake":
            self._pipes.forget(*self._names)
            self._take_handshake(line)
        elif self._job is not None and kind == b"s":
            self._job.begin()
        elif self._job is not None:
            self._job.end(tuple(map(int, words)))

    def _take_handshake(self, line: bytes) -> None:
        if self.handshake.done():
            return
        try:
            self.handshake.set_result(Handshake.parse(line))
        except SandboxError as error:
            self.handshake.set_exception(error)

    def _on_end(self) -> None:
        self.close()

    def dismiss(self) -> None:
        """Close this worker shell alone: its end kills no command."""
        if not self.gone.done():
            self._control.send(LEAVE)
        self.close()

    def close(self) -> None:
        """Close its pipes: the shell reads end of file, and kills all commands.

        May be called again.
        """
        if self.gone.done():
            return
        self._pipes.forget(*self._names)
        self._control.close()
        self._report.close()
        self.gone.set_result(None)
        if not self.handshake.done():
            self.handshake.set_exception(SandboxError("a supervisor has ended before it was ready"))
        if self._job is not None:
            self._job.end(None)
