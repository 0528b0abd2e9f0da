"""One container: commands through its workers, files through its engine."""

import asyncio
import posixpath
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from attrs import evolve, field, frozen

from ale.errors import SandboxDamagedError, SandboxError, UnsupportedError
from ale.judging import opened_judge
from ale.protocols import ServiceContainer
from ale.sandboxes import BaseSandbox, Command
from ale.types import Capabilities, EgressLedger, ExecResult, SandboxSpec, replace
from ale_sandboxing.container import judging, script
from ale_sandboxing.container.commands import Commands, Running
from ale_sandboxing.container.engine import Image, Plan
from ale_sandboxing.container.files import Files
from ale_sandboxing.container.mounted import Mounted
from ale_sandboxing.container.names import changed_by_engine
from ale_sandboxing.container.network import Network, narrowed
from ale_sandboxing.container.plan import with_group
from ale_sandboxing.container.pool import NoProcessError
from ale_sandboxing.container.records import Record
from ale_sandboxing.container.session import (
    HOLD,
    HOLD_AND_RUN,
    HOLDER_BYTES,
    ContainerSession,
    NotStartedError,
)
from ale_sandboxing.container.stacks import Composed
from ale_sandboxing.container.stream import STDERR, STDOUT
from ale_sandboxing.container.tarball import Ownership
from ale_sandboxing.shell.capture import result_of
from ale_sandboxing.shell.text import LONGEST_ARGUMENT, as_bytes

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ale_sandboxing.container.judging import ContainerJudge, ReadyJudge

SHELL = b"/bin/sh"
_BASH_OPTIONS = (b"--norc", b"--noprofile")
_PATH = "/usr/bin:/bin"
_LOOK_UP = (
    *("sh", "-c"),
    'while IFS=: read -r a b c d; do [ "$c" != "$1" ] || exit 0; done </etc/passwd; exit 1',
    "sh",
)
"""Is a number one of the container's users?"""
_NO_PROCESS = 126
_NOT_STARTED = (126, 127)
"""Codes with which a shell says that it could not start a program."""
_TOO_MANY = b"no process could be started: the sandbox has as many as it may\n"
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHELLS_OWN = frozenset(
    {"BASHOPTS", "BASH_VERSINFO", "EUID", "IFS", "LINENO", "OPTIND", "PPID", "SHELLOPTS", "UID"}
)
"""Variables that a shell does not let be set like any other."""


@frozen(kw_only=True)
class Origin:
    """The image that a sandbox starts from."""

    image: Image
    shell: str
    """Id of the image whose shell the supervisor runs; the original, where this is a fork."""
    workdir: str | None = None
    """Of what this is a copy of; None where it is no copy."""
    owned: str | None = None
    """Tag of an image that was made for this sandbox alone, and goes with it."""
    composed: Composed | None = None
    """Where it is one of several containers."""
    restored: bool = False
    """The image is a snapshot, so that no layer tells the agent's changes from the task's."""


@frozen(kw_only=True)
class Box:
    """One container, its plan and record."""

    starting: asyncio.Lock = field(factory=asyncio.Lock)
    """See `WorkerPool`."""
    judges: "list[Future[None]]" = field(factory=list)
    """Removals of containers that use its network."""
    beside: "Box | None" = None
    """The one whose network it uses."""

    spec: SandboxSpec
    origin: Origin
    record: Record
    plan: Plan

    @property
    def name(self) -> str:
        """Of the container."""
        return self.plan.name


class _Backend(Protocol):
    """The members of a backend that its sandboxes use."""

    capabilities: Capabilities
    limits: str
    monotonic: Callable[[], float]

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager["ContainerSandbox"]: ...
    def judge(
        self, box: Box, how: judging.JudgeOpening, ready: judging.ReadyJudge | None
    ) -> AbstractAsyncContextManager["ContainerJudge"]: ...
    async def ready_judge(self, box: Box, user: str | None) -> judging.ReadyJudge: ...
    async def names(self, box: Box) -> Mapping[str, bytes]: ...
    async def service(self, box: Box, name: str) -> ServiceContainer: ...
    async def fork(self, box: Box, spec: SandboxSpec, network: Network) -> "ContainerSandbox": ...
    async def snapshot(self, box: Box, network: Network) -> str: ...
    async def release(self, box: Box) -> None: ...


class ContainerSandbox(BaseSandbox):
    """Runs commands in a container. See `ale.protocols.Sandbox` for what each method promises.

    Args:
        bash: its path in the container; None where the image has none.
        made_workdir: the image has no such folder.
    """

    files: Files

    def __init__(
        self,
        backend: _Backend,
        box: Box,
        commands: Commands,
        files: Files,
        network: Network,
        *,
        bash: str | None,
        made_workdir: bool,
    ) -> None:
        files = evolve(files, mounted=Mounted(self.exec, files.owner))
        super().__init__(box.record.id, box.record.workdir, backend.capabilities, files)
        self._backend = backend
        self._box = box
        self._commands = commands
        self._own_files = files
        self._network = network
        self._bash = bash
        self._made_workdir = made_workdir
        self._user: str | None = None
        self._switched = False
        self._began: float | None = None
        self._names: Mapping[str, bytes] = {}
        self._ready: asyncio.Future[ReadyJudge] | None = None
        self._known_users: set[str] = set()
        self._sessions: list[ContainerSession] = []

    def _argv(self, command: str | Sequence[str], env: Mapping[str, str]) -> list[bytes]:
        prefix = _prefix(env)
        if isinstance(command, str):
            return [*prefix, SHELL, b"-c", as_bytes(command)]
        # Through a shell, which says what is missing and ends with 127 as shells do; after it what
        # sets variables, which the shell would drop.
        return [SHELL, b"-c", b'exec "$@"', b"sh", *prefix, *map(as_bytes, command)]

    def _script(self, number: int, env: Mapping[str, str]) -> bytes:
        """What a command's process does to itself before it becomes the command."""
        plain = {name: value for name, value in env.items() if _exportable(name)}
        tagged = f"ulimit -m {script.tag(number)}&&{self._backend.limits}&&".encode()
        return tagged + script.exports(plain) + b":"

    def _cwd(self, cwd: str | None) -> str:
        return self.workdir if cwd is None else posixpath.join(self.workdir, cwd)

    async def execute(self, command: Command) -> ExecResult:
        """Run one command. See `ale.protocols.Sandbox.exec`."""
        user = self._user
        if command.user is not None:
            user = await self._checked_user(command.user, command.timeout_s)
        started = self._backend.monotonic()
        argv = self._argv(command.command, command.env)
        text: bytes | None = None
        if isinstance(command.command, str) and len(argv[-1]) > LONGEST_ARGUMENT:
            argv[-1], text = b". /dev/fd/4", argv[-1] + b"\n"
        try:
            running = await self._commands.start(
                user,
                lambda number, mark: script.command(
                    mark,
                    argv,
                    setup=self._script(number, command.env),
                    cwd=as_bytes(self._cwd(command.cwd)),
                    stdin=command.stdin,
                    text=text,
                ),
                command.max_output_bytes,
                keep=True,
                ends_s=command.timeout_s,
            )
        except NoProcessError:
            await self._check_count()
            return ExecResult(exit_code=_NO_PROCESS, stdout=b"", stderr=_TOO_MANY)
        code, timed_out = await self._commands.outcome(running, command.timeout_s)
        if code in _NOT_STARTED:
            await self._check_shell(command.user)
        return result_of(
            code,
            running.job.output[STDOUT],
            running.job.output[STDERR],
            timed_out=timed_out,
            duration_s=self._backend.monotonic() - started,
        )

    async def _check_count(self) -> None:
        """Raise a SandboxDamagedError where it is not for their number that no process starts."""
        limit, count = self._box.plan.processes, await self._commands.threads()
        if limit is None or 2 * count < limit:
            raise SandboxDamagedError(
                f"no process can be started in sandbox {self.id}, which has {count}: what one "
                "needs to start, such as the C library, is gone"
            )

    async def _check_shell(self, user: str | None) -> None:
        """Raise a SandboxDamagedError where ``/bin/sh`` runs no more: a command says only that."""
        argv = [SHELL, b"-c", b"exit 0"]
        running = await self._commands.start(
            self._user if user is None else user,
            lambda number, mark: script.command(
                mark, argv, setup=self._script(number, {}), cwd=b"/"
            ),
            HOLDER_BYTES,
            keep=True,
        )
        code, _ = await self._commands.outcome(running, None)
        if code in _NOT_STARTED:
            said = running.job.output[STDERR].value().decode(errors="replace").strip()
            raise SandboxDamagedError(f"/bin/sh of sandbox {self.id} can't be run any more: {said}")

    async def open_session(self, env: Mapping[str, str], cwd: str | None) -> ContainerSession:
        """Open a shell: bash where the image has one, else ``/bin/sh``.

        Where the workspace is gone, it is opened in ``/``, and its first command says so.
        """
        try:
            return await self._open_session(env, self._cwd(cwd), "")
        except NotStartedError as error:
            if cwd is not None:
                raise
            gone = error
        note = f"can't enter {self.workdir} any more; this shell is in /\n"
        try:
            return await self._open_session(env, "/", note)
        except NotStartedError:
            raise SandboxDamagedError(
                f"sandbox {self.id} starts no shell any more: {gone}"
            ) from gone

    async def _open_session(self, env: Mapping[str, str], cwd: str, note: str) -> ContainerSession:
        argv = [SHELL] if self._bash is None else [self._bash.encode(), *_BASH_OPTIONS]
        user = self._user

        async def shell(words: Sequence[bytes], env: Mapping[str, str], cwd: bytes) -> Running:
            return await self._commands.start(
                user,
                lambda number, mark: script.shell(
                    mark, words, setup=self._script(number, env), cwd=cwd
                ),
                HOLDER_BYTES,
                keep=False,
            )

        holding = [SHELL, b"-c", HOLD_AND_RUN, b"sh", *_prefix(env), *argv]
        session = ContainerSession(
            self._commands,
            await shell(holding, env, as_bytes(cwd)),
            lambda: shell([SHELL, b"-c", HOLD], {}, b"/"),
            resets_lines=self._bash is not None,
            monotonic=self._backend.monotonic,
            note=note.encode(),
        )
        await session.start()
        self._sessions = [*self.sessions, session]
        return session

    @property
    def sessions(self) -> Sequence[ContainerSession]:
        """Those that are open, the oldest first."""
        return [session for session in self._sessions if not session.closed]

    async def switch_user(self, user: str | None) -> None:
        """Switch the user of commands and files. See `ale.protocols.SwitchesUser`."""
        self.check_open()
        self.files, self._user, self._switched = self._own_files, None, True
        if user is None:
            return
        name, _, group = user.partition(":")
        said = await self._ids(name)
        numbers = said.stdout.split() if said.exit_code == 0 else [name.encode()] * 2
        if not numbers[0].isdigit():
            raise _no_user(user, said)
        gid = int(group) if group.isdigit() else int(numbers[1])
        owner = Ownership(uid=int(numbers[0]), gid=gid)
        mounted = Mounted(self.exec, owner)
        checked = await self._checked_user(user, None)
        self.files, self._user = evolve(self._own_files, owner=owner, mounted=mounted), checked

    async def _checked_user(self, user: str, timeout_s: float | None) -> str:
        """The user as the engine is told it. Raises a SandboxError if it is a name of no user.

        Engines only start no process then, as if the sandbox had as many as it may.
        """
        name = user.partition(":")[0]
        if user.isdigit():
            look = [*_LOOK_UP, user]
            known = await self.exec(look, env={"PATH": _PATH}, timeout_s=timeout_s)
            return with_group(user, [user] if known.exit_code == 0 else [])
        if name.isdigit() or name in self._known_users:
            return user
        said = await self._ids(name, timeout_s)
        if said.exit_code == 1:  # of `id` itself; others mean that it could not look
            raise _no_user(user, said)
        self._known_users.add(name)
        return user

    async def _ids(self, name: str, timeout_s: float | None = None) -> ExecResult:
        """Numbers of a user and of its group, one a line."""
        command = ["sh", "-c", 'id -u -- "$1" && id -g -- "$1"', "sh", name]
        return await self.exec(command, env={"PATH": _PATH}, timeout_s=timeout_s)

    async def agent_started(self, user: str | None) -> None:
        """Switch to the agent's user. See `ale.protocols.HasAgentUser`."""
        if self._began is None:
            self._names = await self._backend.names(self._box)
            self._began = time.time()  # as the kernel's clock has it, which stamps files
        await self.switch_user(user)
        if user is not None and self._made_workdir:
            await self.files.threads.call(self.files.own_workdir)

    async def set_network(self, network: bool, hosts: Sequence[str] = ()) -> Mapping[str, str]:
        """Connect to the network or to hosts alone. See `ale.protocols.ChangesNetwork`."""
        self.check_open()
        before = await self._backend.names(self._box) if self._names else {}
        variables = await self._network.set(network, hosts)
        if self._names:
            after = await self._backend.names(self._box)
            self._names = changed_by_engine(self._names, before, after)
        return variables

    def egress(self) -> EgressLedger:
        """The ledger of its proxy. See `ale.protocols.RecordsEgress`."""
        return self._network.egress()

    def open_sibling(self, spec: SandboxSpec) -> AbstractAsyncContextManager["ContainerSandbox"]:
        """Open another sandbox. See `ale.protocols.OpensSiblings`."""
        self.check_open()
        tags = {**self._box.spec.tags, **spec.tags}
        spec = narrowed(spec, cut=self._network.cut, hosts=self._network.hosts)
        return self._backend.open(replace(spec, tags=tags))

    def open_judge(
        self, without: Collection[str] = ()
    ) -> AbstractAsyncContextManager["ContainerJudge"]:
        """A fresh container with this one's changes. See `ale.protocols.OpensJudge`."""
        return opened_judge(self._judge, without)

    async def prepare_judge(self) -> None:
        """Start a judge in the background. See `ale.protocols.OpensJudge`."""
        self.check_open()
        if self._ready is None and not self._box.origin.restored:
            starting = self._backend.ready_judge(self._box, self._user)
            self._ready = asyncio.ensure_future(starting)
            self._ready.add_done_callback(judging.seen)

    @asynccontextmanager
    async def _judge(self, without: Collection[str]) -> "AsyncIterator[ContainerJudge]":
        self.check_open()
        if self._box.origin.restored:
            raise UnsupportedError("a snapshot does not tell the agent's changes from the image")
        how = judging.JudgeOpening(
            container=self._box.name,
            since=self._began or 0.0,
            still=not await self._commands.running(),
            without=without,
            names=self._names,
        )
        async with self._backend.judge(self._box, how, await self._taken()) as judge:
            if self._switched:
                await judge.sandbox.switch_user(self._user)
            yield judge

    async def _taken(self) -> "ReadyJudge | None":
        """The judge that was prepared; None where there is none."""
        ready, self._ready = self._ready, None
        if ready is None:
            return None
        try:
            return await ready
        except SandboxError:
            return None

    async def left_running(self) -> int:
        """How many processes commands have left. See `ale.protocols.OpensJudge`."""
        self.check_open()
        own = sum(session.processes for session in self.sessions)
        return max(0, await self._commands.running() - own)

    async def service(self, name: str) -> ServiceContainer:
        """Another container of the task, by the name of its service.

        Raises:
            SandboxError: there is none.
        """
        self.check_open()
        return await self._backend.service(self._box, name)

    async def end_processes(self) -> int:
        """Kill every process but the supervisor's, sessions included; the number killed.

        Where a program inside holds the supervisor up, the container itself is ended and started
        again; what is in memory only (``/tmp`` where `tmp_mb` is set) is then lost.
        """
        self.check_open()
        return await self._commands.end_all()

    async def fork(self) -> "ContainerSandbox":
        """A container from a new layer that holds this one's files, with its user and network."""
        self.check_open()
        spec = self._box.spec
        if self._switched:
            spec = replace(spec, agent_user=self._user)
        return await self._backend.fork(self._box, spec, self._network)

    async def snapshot(self) -> str:
        """Keep the files as an image, for the backend's `restore`."""
        self.check_open()
        return await self._backend.snapshot(self._box, self._network)

    async def release(self) -> None:
        """End the container and remove all that belongs to it."""
        if self._ready is not None:
            ready = await self._taken()
            if ready is not None:
                await ready.sandbox.close()
        self._commands.close()
        self._network.close()
        await self._backend.release(self._box)


def _no_user(user: str, said: ExecResult) -> SandboxError:
    why = said.stderr.decode(errors="replace").strip()
    return SandboxError(f"the sandbox has no user {user!r}: {why}")


def _prefix(env: Mapping[str, str]) -> list[bytes]:
    """What sets the variables that a shell can't set."""
    odd = [f"{name}={value}" for name, value in env.items() if not _exportable(name)]
    return [b"env", *map(as_bytes, odd)] if odd else []


def _exportable(name: str) -> bool:
    return _PLAIN_NAME.fullmatch(name) is not None and name not in _SHELLS_OWN
