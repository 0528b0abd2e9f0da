"""`ale` from a process that has imported what a run needs: most of a start is imports.

    python tests/e2e/preloaded.py DESCRIPTOR MODULE...

imports the modules, reads requests from a socket, one after the other, and forks for each. What a
fork runs is the whole command with the folder, environment and output that the request names.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from attrs import field, frozen

LONGEST = 1 << 20
"""Bytes of a request."""

RUN = (
    "ale._cli.plan",
    "ale._cli.run",
    "ale._front",
    "ale_agent_iflow.loop",
    "ale_chunkers.turns",
    "ale_credit.chunk_schemes",
    "ale_criteria_shell.commands",
    "ale_llm_openai.client",
    "ale_llm_scripted.model",
    "ale_observe_console.observer",
    "ale_sandbox_local.backend",
    "ale_tasks_tbp.source",
)
"""What a run of scripted answers needs."""

POLICY = (*RUN, "ale_llm_policy.build", "ale_trainer_policy.trainer")
"""What a run that trains a policy needs."""


@frozen
class Forked:
    """A command that was forked, with what the tests use of `subprocess.Popen`."""

    args: Sequence[str]
    pid: int
    status: IO[bytes]
    """Gives the exit status once the process has ended."""
    ended: list[int] = field(factory=list)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; negative: the signal that killed it.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        if not self.ended:
            if not select.select([self.status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.ended.append(os.waitstatus_to_exitcode(int(self.status.readline())))
            self.status.close()
        return self.ended[0]

    def poll(self) -> int | None:
        """As `wait`; None where it still runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Kill it."""
        os.kill(self.pid, signal.SIGKILL)


class Preloaded:
    """The process with the imports."""

    def __init__(self, modules: Sequence[str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, __file__, str(theirs.fileno()), *modules]
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}  # torch reads it when it is imported
        self.process = subprocess.Popen(command, env=environ, pass_fds=[theirs.fileno()])
        theirs.close()
        self.socket = ours

    def start(
        self,
        arguments: Sequence[str],
        folder: Path,
        environ: dict[str, str],
        out: IO[bytes],
        err: IO[bytes],
    ) -> Forked:
        """Start `ale`, leader of a process group."""
        reading, writing = os.pipe()
        request = {"arguments": [*arguments], "folder": str(folder), "environ": environ}
        descriptors = [out.fileno(), err.fileno(), writing]
        socket.send_fds(self.socket, [json.dumps(request).encode()], descriptors)
        os.close(writing)
        status = os.fdopen(reading, "rb")
        pid = status.readline()
        assert pid, "the process with the imports has ended"
        return Forked(arguments, int(pid), status)

    def close(self) -> None:
        """End it."""
        self.socket.close()
        self.process.wait()


def serve(requests: socket.socket) -> None:
    """Fork for each request until there are no more."""
    watching: list[int] = []
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, LONGEST, 3)
        watching = [pid for pid in watching if os.waitpid(pid, os.WNOHANG)[0] == 0]
        if not message:
            break
        watching.append(os.fork())
        if watching[-1] == 0:
            requests.close()
            watch(json.loads(message), *descriptors)
        for each in descriptors:
            os.close(each)
    for pid in watching:
        os.waitpid(pid, 0)


def watch(request: dict[str, Any], out: int, err: int, status: int) -> None:
    """Report the process id, and the exit status once it has ended."""
    running = os.fork()
    if running == 0:
        os.close(status)
        run(request, out, err)
    os.setpgid(running, running)
    os.write(status, b"%d\n" % running)
    os.write(status, b"%d\n" % os.waitpid(running, 0)[1])
    os._exit(0)


def run(request: dict[str, Any], out: int, err: int) -> None:
    """`ale`, as its script runs it."""
    from ale._cli.main import main

    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    for source, target in ((out, 1), (err, 2)):
        os.dup2(source, target)
        os.close(source)
    sys.argv = [str(Path(sys.executable).with_name("ale")), *request["arguments"]]
    sys.exit(main())


if __name__ == "__main__":
    from ale._registry import Registry

    for module in sys.argv[2:]:
        importlib.import_module(module)
    Registry.installed()
    gc.freeze()  # no fork has to traverse, and so copy, what all of them share
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    serve(socket.socket(fileno=int(sys.argv[1])))
