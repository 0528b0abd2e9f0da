"""A lane: a shell that waits in the container, runs one command at a time and tells its end."""

import asyncio

from attrs import frozen

from ale.errors import SandboxError
from ale_sandbox_container.door import Door
from ale_sandbox_container.script import LEAVE, PRELUDE
from ale_sandbox_shell.channel import Lines, Writer


@frozen(kw_only=True)
class Hello:
    """What a lane has found out about its container."""

    uid: int
    gid: int
    sealed: bool
    """Other programs of the same user can't look into the supervisor."""
    own_groups: bool
    """There is a ``setsid`` to give each command a process group of its own."""
    bash: str | None
    """Its path."""

    @classmethod
    def parse(cls, line: bytes) -> "Hello":
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
    """What a lane was asked to do."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[bool] = loop.create_future()
        """True once a command runs and carries its mark; False where it never came to that."""
        self.ended: asyncio.Future[tuple[int, ...] | None] = loop.create_future()
        """The numbers that the lane answered; None when something killed the lane."""

    def begin(self) -> None:
        """The command runs."""
        if not self.begun.done():
            self.begun.set_result(True)

    def end(self, numbers: tuple[int, ...] | None) -> None:
        """The lane has answered, or is no more."""
        if not self.begun.done():
            self.begun.set_result(False)
        if not self.ended.done():
            self.ended.set_result(numbers)


class Lane:
    """The host's side of one lane, from before it starts.

    Args:
        base: names of its pipes, without their last letter.
    """

    def __init__(self, door: Door, base: str) -> None:
        loop = asyncio.get_running_loop()
        self._door = door
        self._names = (f"{base}c", f"{base}r")
        self._control = Writer(door.writer(self._names[0]))
        self._report = Lines(door.reader(self._names[1]), self._on_line, self._on_end)
        self._job: Job | None = None
        self.hello: asyncio.Future[Hello] = loop.create_future()
        self.hello.add_done_callback(lambda hello: hello.exception())  # not everybody waits for it
        self.gone: asyncio.Future[None] = loop.create_future()
        """Done when the shell has ended."""
        self._control.send(PRELUDE)

    @property
    def ready(self) -> bool:
        """It has answered, and is still there."""
        return self.hello.done() and self.hello.exception() is None and not self.gone.done()

    def ask(self, frame: bytes) -> Job:
        """Give it something to do. It must have nothing else to do."""
        assert self._job is None or self._job.ended.done()
        self._job = Job()
        if self.gone.done():
            self._job.end(None)
        else:
            self._control.send(frame)
        return self._job

    def _on_line(self, line: bytes) -> None:
        kind, *words = line.split()
        if kind == b"hello":
            self._door.forget(*self._names)
            self._greet(line)
        elif self._job is not None and kind == b"s":
            self._job.begin()
        elif self._job is not None:
            self._job.end(tuple(map(int, words)))

    def _greet(self, line: bytes) -> None:
        if self.hello.done():
            return
        try:
            self.hello.set_result(Hello.parse(line))
        except SandboxError as error:
            self.hello.set_exception(error)

    def _on_end(self) -> None:
        self.close()

    def dismiss(self) -> None:
        """Let go of it, and of it alone: where the shell has started, it ends no command."""
        if not self.gone.done():
            self._control.send(LEAVE)
        self.close()

    def close(self) -> None:
        """Let go of it: the shell finds the end of its script, and ends all commands.

        May be called again.
        """
        if self.gone.done():
            return
        self._door.forget(*self._names)
        self._control.close()
        self._report.close()
        self.gone.set_result(None)
        if not self.hello.done():
            self.hello.set_exception(SandboxError("a supervisor has ended before it was ready"))
        if self._job is not None:
            self._job.end(None)
