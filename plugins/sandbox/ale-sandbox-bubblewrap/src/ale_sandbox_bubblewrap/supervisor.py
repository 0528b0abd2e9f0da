"""The supervisor of one sandbox: starts commands in it and reports how they end.

It lives in the sandbox's mount, network and other namespaces, without capabilities and behind the
same seccomp filter as everything inside; but not in its process namespace: only what it starts is
there. So nothing inside can see it, signal it or impersonate it, and the exit codes that it
collects are the kernel's. Commands are started by vfork, at the cost of a bare spawn.

Standard library only, and nothing may be imported once the sandbox is its root.
"""

import contextlib
import errno
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Mapping
from typing import Any

from ale_sandbox_bubblewrap import creation, file_requests, launch, wire

_OOM_SCORE = b"900"
"""Commands are killed for memory before the processes that hold the sandbox."""
_TIMEOUT_S = 10.0


def run_supervisor(plan: launch.Plan, request: Mapping[str, Any], sock: socket.socket) -> None:
    """Make a sandbox and serve it until the host closes the socket.

    Args:
        request: ``layers`` (topmost first; the topmost is made here), ``control`` (folder of the
            host's pipes), ``network``, ``tag`` (soft and hard RLIMIT_RSS).
    """
    try:
        inside = creation.make(plan, request, sock)
    except (creation.CreationError, OSError) as error:
        with contextlib.suppress(BrokenPipeError):  # the host process has ended
            wire.send(sock, {"failed": str(error)})
        return
    wire.send(sock, {"ready": True})
    supervisor = Supervisor(inside, sock)
    try:
        supervisor.serve()
    finally:
        supervisor.end()


class Supervisor:
    """Serves one request after the other; the host does what takes time."""

    def __init__(self, inside: creation.Inside, sock: socket.socket) -> None:
        self._inside = inside
        self._sock = sock
        self._running: dict[int, tuple[int, int]] = {}
        """pidfd: process id and number of the request."""
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._poll.register(inside.bwrap, select.POLLIN)
        self._tag = resource.getrlimit(resource.RLIMIT_RSS)

    def serve(self) -> None:
        """Serve until the host or the sandbox's first process ends."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._inside.bwrap:
                    self._report_end()
                    return
                if descriptor == self._sock.fileno():
                    if not self._next():
                        return
                elif descriptor in self._running:
                    self._reap(descriptor)

    def _report_end(self) -> None:
        """Say how bubblewrap ended; nothing inside can end it."""
        result = os.waitid(os.P_PIDFD, self._inside.bwrap, os.WEXITED)
        how = "an exit code" if result and result.si_code == os.CLD_EXITED else "a signal"
        with contextlib.suppress(BrokenPipeError):
            number = result.si_status if result else "?"
            wire.send(self._sock, {"over": f"bubblewrap ended with {how}, {number}"})

    def _next(self) -> bool:
        received = wire.receive(self._sock)
        if received is None:
            return False
        message, descriptors = received
        answer: dict[str, Any] = {"n": message["n"]}
        reply_fds: list[int] = []
        try:
            result = self._do(message, descriptors, reply_fds)
            answer.update(result)
        except OSError as error:
            answer["errno"] = error.errno
        except ValueError:  # a NUL byte, or text that is none
            answer["errno"] = errno.EINVAL
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        try:
            wire.send(self._sock, answer, reply_fds)
        except BrokenPipeError:
            return False
        finally:
            for descriptor in reply_fds:
                if descriptor not in self._inside:
                    os.close(descriptor)
        return True

    def _do(
        self, message: dict[str, Any], descriptors: list[int], reply_fds: list[int]
    ) -> dict[str, Any]:
        task = message["do"]
        if task == "run":
            return self._run(message, descriptors)
        if task == "end":
            return {"count": self._end_processes()}
        if task == "kill":
            self._kill(message["command"])
            return {}
        if task == "count":
            return {"count": self._count()}
        if task == "descriptors":
            reply_fds += [getattr(self._inside, name) for name in message["names"]]
            return {}
        return file_requests.do(message, reply_fds)

    def _run(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Start a command; its end is reported later, under the same number."""
        elsewhere: dict[str, Any] = {}
        try:
            os.chdir(message["cwd"])
        except OSError as error:
            if not message["elsewhere"]:
                return {"errno": error.errno, "cwd": True}
            os.chdir("/")
            elsewhere = {"elsewhere": error.errno}
        # The child inherits the number of the command; this process keeps its own.
        if message["soft"] is not None:
            resource.setrlimit(resource.RLIMIT_RSS, (message["soft"], self._tag[1]))
        try:
            pid = os.posix_spawn(
                message["program"],
                [wire.bytes_of(word) for word in message["argv"]],
                {wire.bytes_of(k): wire.bytes_of(v) for k, v in message["env"].items()},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, descriptor, number)
                    for number, descriptor in enumerate(descriptors)
                ],
                setsid=True,
                setsigdef=creation.RESTORED,
            )
        finally:
            resource.setrlimit(resource.RLIMIT_RSS, self._tag)
            with contextlib.suppress(PermissionError):  # what was started has forbidden it already
                os.chdir("/")
        handle = os.pidfd_open(pid)
        self._running[handle] = pid, message["n"]
        self._poll.register(handle, select.POLLIN)
        self._prefer_for_killing(pid)
        return {"pid": pid, **elsewhere}

    def _prefer_for_killing(self, pid: int) -> None:
        try:
            score = os.open(f"{pid}/oom_score_adj", os.O_WRONLY, dir_fd=self._inside.host_processes)
        except OSError:  # it has ended, or is not accessible
            return
        try:
            os.write(score, _OOM_SCORE)
        except ProcessLookupError:
            return
        finally:
            os.close(score)

    def _reap(self, handle: int) -> None:
        pid, number = self._running.pop(handle)
        self._poll.unregister(handle)
        os.close(handle)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(BrokenPipeError):  # the next receive notices it
            wire.send(self._sock, {"n": number, "ended": code if code >= 0 else 128 - code})

    def _kill(self, number: int) -> None:
        """Kill the process of a request, whatever it has done to what it is known by."""
        for handle, (_, of) in self._running.items():
            if of == number:
                with contextlib.suppress(ProcessLookupError):  # it ends just now
                    signal.pidfd_send_signal(handle, signal.SIGKILL)

    def _count(self) -> int:
        """Processes inside, without the first and without those that have ended.

        Listed again where all that were new had ended: they may have started others meanwhile.
        """
        ended: set[str] = set()
        while True:
            listed = os.listdir(self._inside.processes)  # noqa: PTH208 - a descriptor
            names = {name for name in listed if name.isdigit() and name != "1"}
            count = sum(map(self._is_alive, names))
            if count or names <= ended:
                return count
            ended = names

    def _is_alive(self, name: str) -> bool:
        try:
            file = os.open(f"{name}/stat", os.O_RDONLY, dir_fd=self._inside.processes)
        except FileNotFoundError:
            return False
        try:
            text = os.read(file, 1024)
        except ProcessLookupError:
            return False
        finally:
            os.close(file)
        return text.rpartition(b") ")[2][:1] not in (b"Z", b"X")

    def _end_processes(self) -> int:
        """Kill them all; how many there were.

        Raises:
            OSError: EAGAIN: no process is left for the one that kills the others.
                ETIMEDOUT: some did not end.
        """
        count = self._count()
        if not count:
            return 0
        killer = os.fork()
        if killer == 0:
            # Runs inside, where -1 is every process but the first and the killer itself.
            try:
                os.kill(-1, signal.SIGKILL)
            finally:  # also where the last one has just ended
                os._exit(0)
        os.waitpid(killer, 0)
        deadline = time.monotonic() + _TIMEOUT_S
        while self._count():
            for handle, _ in self._poll.poll(1):
                if handle in self._running:
                    self._reap(handle)
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "processes did not end")
        return count

    def end(self) -> None:
        """End the sandbox and everything in it."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._inside.first, signal.SIGKILL)
        # The first process ends after all others inside; reap those that are our children.
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
