"""Clients of the fork server and of supervisors, in the event loop."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ale
import ale_sandboxing
from ale.errors import SandboxDamagedError, SandboxError, SandboxLostError
from ale_sandbox_bubblewrap import wire
from ale_sandbox_bubblewrap.cgroups import Group
from ale_sandbox_bubblewrap.control import Controls
from ale_sandboxing.process.sandbox import NotStartedError

Answer = tuple[Mapping[str, Any], list[int]]
"""A message, and descriptors, which are the caller's to close."""


class Channel:
    """Sends messages in order without blocking. May be used in more than one event loop."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._queue: deque[tuple[dict[str, Any], list[int]]] = deque()
        sock.setblocking(False)

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send, now or when the socket has space. The caller keeps its descriptors.

        Raises:
            OSError: the other end is gone.
        """
        if not self._queue:
            try:
                wire.send(self._sock, message, descriptors)
            except BlockingIOError:
                asyncio.get_running_loop().add_writer(self._sock, self._flush)
            else:
                return
        self._queue.append((message, [os.dup(one) for one in descriptors]))

    def _flush(self) -> None:
        while self._queue:
            message, descriptors = self._queue[0]
            try:
                wire.send(self._sock, message, descriptors)
            except BlockingIOError:
                return
            except OSError:  # the other end is closed; the next receive reports it
                self._drop()
                break
            self._queue.popleft()
            _close_all(descriptors)
        asyncio.get_running_loop().remove_writer(self._sock)

    def _drop(self) -> None:
        for _, descriptors in self._queue:
            _close_all(descriptors)
        self._queue.clear()

    async def receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """The next message, before `listen` is called; None at the end."""
        readable = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._sock, readable.set)
        try:
            await readable.wait()
        finally:
            asyncio.get_running_loop().remove_reader(self._sock)
        return wire.receive(self._sock)

    def close(self) -> None:
        """Close the socket. May be called again."""
        if self._sock.fileno() >= 0:
            self._drop()
            asyncio.get_running_loop().remove_reader(self._sock)
            asyncio.get_running_loop().remove_writer(self._sock)
            self._sock.close()


def _close_all(descriptors: Sequence[int]) -> None:
    for one in descriptors:
        os.close(one)


class Job:
    """A command in the sandbox. See `ale_sandboxing.process.sandbox.Running`."""

    def __init__(self, number: int, cwd: str) -> None:
        self.number = number
        """Number of its request."""
        self._cwd = cwd
        self.note = ""
        """What the first output has to say: it was started elsewhere."""
        self.pid: int | None = None
        """On the host, once it is known."""
        loop = asyncio.get_running_loop()
        self.answered: asyncio.Future[None] = loop.create_future()
        """Done when the supervisor has started it or failed to. Until then the supervisor itself
        may carry the tag of the command, and must not be taken for one of its processes."""
        self.ended: asyncio.Future[int] = loop.create_future()

    def take(self, answer: Mapping[str, Any]) -> bool:
        """Take an answer about it; True when it was the last."""
        self._answer()
        if "pid" in answer:
            self.pid = answer["pid"]
            if "elsewhere" in answer:
                why = os.strerror(answer["elsewhere"])
                self.note = f"can't enter {self._cwd} any more: {why}; this shell is in /\n"
        elif "errno" in answer:
            why = os.strerror(answer["errno"])
            self.fail(
                NotStartedError(f"can't enter {self._cwd}: {why}" if "cwd" in answer else why)
            )
        elif not self.ended.done():
            self.ended.set_result(answer["ended"])
        return "pid" not in answer

    def fail(self, error: Exception) -> None:
        """No more answers will come."""
        self._answer()
        if not self.ended.done():
            self.ended.set_exception(error)
            self.ended.exception()  # whoever awaits it gets it; nobody has to

    def _answer(self) -> None:
        if not self.answered.done():
            self.answered.set_result(None)


class SupervisorClient:
    """Sends requests to a supervisor and dispatches its answers.

    Args:
        sock: our end.
        name: of the sandbox, for errors.
        log: gives what the supervisor wrote before it failed.
    """

    def __init__(self, sock: socket.socket, name: str, log: Callable[[], str]) -> None:
        self._channel = Channel(sock)
        self._sock = sock
        self._name = name
        self._log = log
        self._numbers = 0
        self._why: str | None = None
        self._closed = False
        self._given_up = False
        self._group: Group | None = None
        self._kind: type[SandboxError] = SandboxError
        """Of the errors of what is asked of a sandbox that has ended."""
        self._jobs: dict[int, Job] = {}
        self._requests: dict[int, asyncio.Future[Answer]] = {}
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        """Done when the supervisor has ended, and everything in the sandbox with it."""

    async def opened(self, group: Group, fill: Callable[[int], Awaitable[None]] | None) -> None:
        """Wait until the sandbox is ready.

        Args:
            group: the supervisor is put into it before it starts a command.
            fill: puts files into the new layer, given its open folder.

        Raises:
            SandboxError: it could not be made.
        """
        self._group = group
        answer, (upper,) = await self._step("made")
        # This is slow in the kernel; it runs while the sandbox is being made.
        grouping = asyncio.ensure_future(asyncio.to_thread(group.add, answer["made"]))
        try:
            if fill is not None:
                await fill(upper)
            self._channel.send({"go": True})
            await self._step("ready")
        finally:
            os.close(upper)
            await asyncio.shield(grouping)
        self._loop.add_reader(self._sock, self._ready)

    async def _step(self, expected: str) -> tuple[dict[str, Any], list[int]]:
        received = await self._channel.receive()
        if received is None:
            raise SandboxError(f"sandbox {self._name} could not be opened: {self._log()}")
        if expected not in received[0]:
            raise SandboxError(f"sandbox {self._name} could not be opened: {received[0]['failed']}")
        return received

    def _ready(self) -> None:
        while True:
            try:
                received = wire.receive(self._sock)
            except BlockingIOError:
                return
            if received is None:
                self._end()
                return
            self._take(*received)

    def _take(self, answer: dict[str, Any], descriptors: list[int]) -> None:
        number = answer.get("n")
        if number is None:  # it is over, or was still being opened
            self._why = answer.get("over")
            _close_all(descriptors)
            return
        job = self._jobs.get(number)
        if job is not None:
            if job.take(answer):
                del self._jobs[number]
            return
        future = self._requests.pop(number)
        if future.done():
            _close_all(descriptors)
        else:
            future.set_result((answer, descriptors))

    def _end(self) -> None:
        self._channel.close()
        if self._given_up:
            self._kind = SandboxDamagedError
        elif not self._closed:
            self._kind = SandboxLostError
            if self._group is not None and self._group.out_of_memory():
                self._kind = SandboxDamagedError
                self._why = f"{self._why or 'its supervisor was killed'}: out of memory"
        error = self._kind(self._has_ended())
        for job in self._jobs.values():
            job.fail(error)
        for request in self._requests.values():
            if not request.done():
                request.set_exception(error)
        self._jobs.clear()
        self._requests.clear()
        if not self.gone.done():
            self.gone.set_result(None)

    def _has_ended(self) -> str:
        """With the reason: what it said last, or what it wrote as it failed."""
        why = self._why or ("" if self._closed else self._log())
        return f"sandbox {self._name} has ended" + (f": {why}" if why else "")

    def _send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> int:
        if self.gone.done():
            raise self._kind(self._has_ended())
        self._numbers += 1
        try:
            self._channel.send({**message, "n": self._numbers}, descriptors)
        except OSError as error:
            raise self._kind(f"{self._has_ended()} ({error})") from error
        return self._numbers

    def run(self, message: dict[str, Any], descriptors: Sequence[int]) -> Job:
        """Start a command."""
        number = self._send({**message, "do": "run"}, descriptors)
        job = self._jobs[number] = Job(number, message["cwd"])
        return job

    async def started(self) -> None:
        """Wait until every command that was asked for has been started, or can't be."""
        await asyncio.gather(*(asyncio.shield(job.answered) for job in self._jobs.values()))

    async def ask(self, **message: Any) -> Answer:
        """The answer to a request.

        Raises:
            OSError: what was asked for failed.
            SandboxError: the sandbox is gone.
        """
        number = self._send(message)
        request = self._requests[number] = self._loop.create_future()
        answer, descriptors = await request
        if "errno" in answer:
            code = answer["errno"]
            raise OSError(code, os.strerror(code), message.get("path"))
        return answer, descriptors

    async def give_up(self, why: str) -> SandboxError:
        """End the sandbox, since what ran in it keeps it from being used; the error for that."""
        self._given_up, self._why = True, why
        self._disconnect()
        await asyncio.shield(self.gone)
        return self._kind(self._has_ended())

    def close(self) -> None:
        """Close the connection: the supervisor ends the sandbox, then `gone` is done."""
        self._closed = True
        self._disconnect()

    def _disconnect(self) -> None:
        if not self.gone.done():
            with contextlib.suppress(OSError):  # the other end is closed; `gone` reports it
                self._sock.shutdown(socket.SHUT_WR)
            self._loop.add_reader(self._sock, self._ready)


def python(code: str) -> list[str]:
    """Command line of a Python that has the standard library and modules of the fork server."""
    here = (__file__, ale_sandboxing.__file__, ale.__file__)
    sources = [str(Path(file).parents[1]) for file in here]
    return [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sources!r}; {code}"]


class ForkServer:
    """Client of the process that supervisors are forked from."""

    def __init__(self, channel: Channel, log: int, process: "subprocess.Popen[bytes]") -> None:
        self._channel = channel
        self.controls = Controls(-1, None)
        """The folders of the pipes to its sandboxes, once it is ready."""
        self._log = log
        self._process = process

    @classmethod
    async def start(cls, settings: dict[str, Any], lock_fd: int) -> "ForkServer":
        """Start one.

        Args:
            lock_fd: a descriptor that it and all that it forks keep open.

        Raises:
            SandboxError: it could not prepare the lowest layers.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log = os.memfd_create("fork server")
        call = f"main({theirs.fileno()}, {lock_fd})"
        with theirs:
            process = subprocess.Popen(  # noqa: ASYNC220 - vfork; it returns at once
                python(f"from ale_sandbox_bubblewrap.fork_server import main; {call}"),
                env={},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd="/",
                pass_fds=[theirs.fileno(), lock_fd],
                start_new_session=True,
            )
        fork_server = cls(Channel(ours), log, process)
        try:
            fork_server._channel.send(settings)
            answer = await fork_server._channel.receive()
        except BaseException:  # a cancellation
            fork_server.close()
            raise
        if answer is None or "failed" in answer[0]:
            why = fork_server.log() if answer is None else answer[0]["failed"]
            fork_server.close()
            raise SandboxError(f"can't prepare bubblewrap sandboxes: {why}")
        owner = None if settings["uid"] == os.geteuid() else settings["uid"]
        fork_server.controls = Controls(answer[1][0], owner)
        return fork_server

    def log(self) -> str:
        """What it and its children wrote before they failed."""
        size = os.fstat(self._log).st_size
        return os.pread(self._log, 4000, max(0, size - 4000)).decode(errors="replace").strip()

    def fork(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> socket.socket:
        """Fork a child for a task; our end of its socket.

        Raises:
            SandboxError: the fork server is gone.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._channel.send(message, [theirs.fileno(), *descriptors])
            except OSError as error:
                ours.close()
                raise SandboxError(f"the fork server has ended: {self.log() or error}") from error
        return ours

    async def run_task(self, message: dict[str, Any], descriptors: Sequence[int]) -> bool:
        """Fork a child for a task, and wait for it.

        Raises:
            SandboxError: it failed.
        """
        channel = Channel(self.fork(message, descriptors))
        try:
            answer = await channel.receive()
        finally:
            channel.close()
        if answer is None or "failed" in answer[0]:
            raise SandboxError(self.log() if answer is None else answer[0]["failed"])
        return bool(answer[0]["done"])

    def close(self) -> None:
        """End it and every sandbox it has left. May be called again."""
        self.controls.close()
        self._channel.close()
        self._process.wait()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1
