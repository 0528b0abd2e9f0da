"""Starts the processes in which the answer runs, and ends them with all that they left."""

from __future__ import annotations

import _socket
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ale_criteria_python.inside.wire import Plan

if __name__ != "ale_grading":
    from ale_criteria_python.inside.candidate import become_candidate
    from ale_criteria_python.inside.channel import (
        PR_SET_CHILD_SUBREAPER,
        Channel,
        Closed,
        control,
        silence,
    )


class Spawner:
    """A process, forked before the tests are read, that forks a process for the answer."""

    def __init__(self, plan: Plan, folder: str) -> None:
        ours, theirs = _socket.socketpair()
        self.link = ours
        self.answer = 0
        """Process id of the last process of the answer."""
        self.pid = os.fork()
        if self.pid == 0:
            try:
                ours.close()
                silence()
                spawn(theirs, plan, folder)
            finally:
                os._exit(1)
        theirs.close()

    def start(self) -> Channel:
        """A fresh process for the answer; what the last one left is killed. Raises `Closed`."""
        try:
            self.link.sendall(b"s")
            data, ancillary, _, _ = self.link.recvmsg(8, 64)
        except OSError as error:
            raise Closed("the process that starts the answer is gone") from error
        if not ancillary:
            raise Closed("the process that starts the answer is gone")
        self.answer = int.from_bytes(data, "big")
        fd = int.from_bytes(ancillary[0][2][:4], sys.byteorder)
        return Channel(_socket.socket(fileno=fd))


def spawn(link: Any, plan: Plan, folder: str) -> None:
    """Fork a process for the answer at each request."""
    control(PR_SET_CHILD_SUBREAPER, 1)
    while link.recv(1):
        end_children()
        ours, theirs = _socket.socketpair()
        pid = os.fork()
        if pid == 0:
            link.close()
            ours.close()
            become_candidate(theirs, plan, folder)
        theirs.close()
        rights = ours.fileno().to_bytes(4, sys.byteorder)
        link.sendmsg([pid.to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        ours.close()


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, its threads and the children that it has waited for; 0 if gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            times = file.read().rpartition(b")")[2].split()[11:15]
        return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return 0.0


def end_children() -> None:
    """Kill what was started; a loop, because orphans are reparented to us and may fork."""
    for _ in range(1000):
        found = children()
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
            except (ProcessLookupError, PermissionError, ChildProcessError):
                continue


def children() -> list[int]:
    """Process ids of our children."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123
            return [int(word) for word in file.read().split()]
    except OSError:
        return children_of_all()


def children_of_all() -> list[int]:
    """The same, where the kernel keeps no list."""
    ours = []
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                    ours.append(int(name))
        except (OSError, ValueError, IndexError):
            continue
    return ours
