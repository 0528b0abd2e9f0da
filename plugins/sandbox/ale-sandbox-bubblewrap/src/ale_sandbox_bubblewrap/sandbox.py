"""One sandbox: the host's side of its supervisor."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from attrs import frozen

from ale.errors import SandboxError
from ale.types import EgressLedger, SandboxSpec
from ale_sandbox_bubblewrap import base
from ale_sandbox_bubblewrap.client import Job, SupervisorClient
from ale_sandbox_bubblewrap.control import Control
from ale_sandbox_bubblewrap.judging import BubblewrapJudge
from ale_sandbox_bubblewrap.session import BubblewrapSession
from ale_sandbox_bubblewrap.store import BubblewrapRecord
from ale_sandbox_bubblewrap.transfer import Files, place
from ale_sandbox_bubblewrap.wire import text_of
from ale_sandboxing.process import process_tags
from ale_sandboxing.process.backend import HostBackend
from ale_sandboxing.process.sandbox import HostSandbox, Launch
from ale_sandboxing.process.shell import HostShell
from ale_sandboxing.shell.text import as_bytes

_TIMEOUT_S = 20.0
_TRIES = 10
"""To end processes that leave no place for the one that ends them."""


Judges = Callable[
    ["BubblewrapSandbox", Collection[str]], AbstractAsyncContextManager[BubblewrapJudge]
]


@frozen(kw_only=True)
class Beginning:
    """The beginning of the agent's work."""

    at: float
    """Seconds since 1970, as the kernel's clock has it, which stamps files."""
    below: Sequence[str]
    """The layers under the one in which the agent began."""


class BubblewrapSandbox(HostSandbox[Job]):
    """Runs commands in namespaces.

    Args:
        limits: ``ulimit`` commands; each ends in ``;``.
        bash: sessions are of bash; else of sh.
        network: it shares the host's.
        judges: opens a judge.
    """

    def __init__(
        self,
        backend: HostBackend[Any, Any],
        record: BubblewrapRecord,
        spec: SandboxSpec,
        client: SupervisorClient,
        control: Control,
        *,
        limits: str,
        bash: bool,
        network: bool,
        judges: Judges,
    ) -> None:
        self.record = record
        self._network = network
        self.spec = spec
        self.client = client
        self.sessions: list[BubblewrapSession] = []
        self.began: Beginning | None = None
        self.layering = asyncio.Lock()
        """Held while a fork or snapshot is made of it."""
        self._control = control
        self._judges = judges
        self._limits = limits
        super().__init__(
            backend,
            record,
            base.WORKSPACE,
            files=Files(client, self.gate_opened),
            pipes=control,
            env={"HOME": base.HOME, "USER": base.USER, **spec.env},
            bash=bash,
        )

    async def idle_sessions(self) -> Sequence[BubblewrapSession] | None:
        """The open sessions, if nothing runs but their shells; None otherwise."""
        self.sessions = [session for session in self.sessions if not session.closed]
        if self._running or not all(one.idle and one.started for one in self.sessions):
            return None
        answer, _ = await self.client.ask(do="count")
        return self.sessions if answer["count"] == len(self.sessions) else None

    def limits(self, number: int, *, bash: bool) -> str:
        """The limits that the supervisor itself must not have."""
        return self._limits

    def launch(self, launch: Launch) -> Job:
        """Ask the supervisor to start a process."""
        tag = self._tag.values(launch.number)
        message = {
            "program": base.BASH if launch.bash else base.SHELL,
            "argv": [text_of(word) for word in launch.argv],
            "env": {text_of(as_bytes(k)): text_of(as_bytes(v)) for k, v in launch.env.items()},
            "cwd": text_of(as_bytes(place(launch.cwd or ""))),
            "elsewhere": launch.elsewhere,
            "soft": None if tag is None else tag[0],
        }
        return self.client.run(message, launch.files)

    def kill_command(self, number: int, running: Job) -> None:
        """Kill what a command has started, unless all has ended with the sandbox."""
        if not running.answered.done():
            running.answered.add_done_callback(lambda _: self.kill_command(number, running))
        elif not self.client.gone.done():
            super().kill_command(number, running)

    async def end_command(self, number: int, running: Job) -> None:
        """Kill what a command has started, and wait.

        Its first process ends in any case, so that its time limit holds; one that has no tag any
        more ends with the sandbox.
        """
        await asyncio.shield(running.answered)
        if not running.ended.done():
            await self.client.ask(do="kill", command=running.number)
        await super().end_command(number, running)

    def session_of(self, shell: HostShell, running: Job) -> BubblewrapSession:
        """A session that forks can move."""
        session = BubblewrapSession(
            shell, running, self.gate, bash=self._bash, monotonic=self._monotonic
        )
        self.sessions = [one for one in self.sessions if not one.closed] + [session]
        return session

    async def end_processes(self) -> int:
        """Kill every process of the sandbox, sessions included; the number killed."""
        self.check_open()
        killed = 0
        for _ in range(_TRIES):
            try:
                answer, _ = await self.client.ask(do="end")
            except BlockingIOError:
                # The process limit is reached: end some, so that the one that kills can start.
                async with self.gate:
                    await self.client.started()
                    killed += await asyncio.to_thread(self._kill_commands)
            except TimeoutError:
                raise await self.client.give_up("its processes do not end") from None
            else:
                return killed + int(answer["count"])
        # Those that hide from their command's tag, and use whatever place a killed one leaves.
        raise await self.client.give_up("its processes leave no place for one that ends them")

    async def prepare_judge(self) -> None:
        """Note when the agent began. See `ale.protocols.OpensJudge`."""
        self.check_open()
        if self.began is None:
            self.began = Beginning(at=time.time(), below=self.record.layers[1:])

    def egress(self) -> EgressLedger:
        """Nothing without a network; the host's is not watched.

        See `ale.protocols.RecordsEgress`.
        """
        return EgressLedger(unrecorded="what passed through the host's network" * self._network)

    def open_judge(
        self, without: Collection[str] = ()
    ) -> AbstractAsyncContextManager[BubblewrapJudge]:
        """A sandbox with this one's changes. See `ale.protocols.OpensJudge`."""
        self.check_open()
        return self._judges(self, without)

    async def left_running(self) -> int:
        """How many processes commands have left. See `ale.protocols.OpensJudge`."""
        self.check_open()
        answer, _ = await self.client.ask(do="count")
        open_ones = sum(not session.closed for session in self.sessions)
        return max(0, int(answer["count"]) - open_ones)

    def _kill_commands(self) -> int:
        return sum(len(process_tags.kill(self._tag, n)) for n in range(1, self._commands + 1))

    async def release(self) -> None:
        """End the sandbox with everything in it, and remove what it has left."""
        async with self.layering:
            try:
                await end(self.client, self.id)
            finally:
                self.drains.close()
                self._control.close()
                await self._backend.remove(self.record)


async def end(client: SupervisorClient, id: str) -> None:
    """Tell a supervisor to end its sandbox, and wait.

    Raises:
        SandboxError: it does not end in time.
    """
    client.close()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await asyncio.shield(client.gone)
    except TimeoutError as error:
        raise SandboxError(f"sandbox {id} did not end") from error
