"""Fakes for tests of other components: a sandbox, models, a chunker, a scheme, a trainer, a clock.

`FolderSandbox` runs real commands in a real folder, without any isolation.
"""

import asyncio
import contextlib
import math
import os
import secrets
import shlex
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from ale.errors import SandboxError, UnsupportedError
from ale.protocols import DEFAULT_OUTPUT_BYTES, LLM
from ale.sandboxes import BaseSandbox, Command
from ale.types import (
    Batch,
    Capabilities,
    Chunk,
    Completion,
    CompletionRequest,
    Credit,
    ExecResult,
    Group,
    LLMCapabilities,
    Message,
    PolicySnapshot,
    SandboxInfo,
    SandboxSpec,
    StepReport,
    TokenTrace,
    Trajectory,
    Turn,
    Usage,
    whole_turn,
)

_PREFIX = "ale-folder-"


class ManualClock:
    """A clock that advances by `tick` seconds at each call."""

    def __init__(self, start: float = 1_700_000_000.0, tick: float = 0.0) -> None:
        self.now = start
        self.tick = tick

    def __call__(self) -> float:
        """The time, in seconds."""
        self.now += self.tick
        return self.now


class ListRecorder:
    """A recorder that holds the turns in a list."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def append(self, turn: Turn) -> None:
        """Record a turn."""
        self.turns.append(turn)


class FakeLLM:
    """Answers with the given completions, one after the other, and records the requests.

    An exception in the list is raised instead; a callable is called with the request.
    """

    def __init__(
        self,
        answers: Iterable[Completion | Exception | Callable[[CompletionRequest], Completion]],
        *,
        tools: bool = True,
    ) -> None:
        self.capabilities = LLMCapabilities(tools=tools, deterministic=True)
        self.requests: list[CompletionRequest] = []
        self._answers = iter(answers)

    async def complete(self, request: CompletionRequest) -> Completion:
        """The next answer."""
        self.requests.append(request)
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    async def aclose(self) -> None:
        """Does nothing."""


class FakePolicy:
    """A `Policy` without weights, whose tokens are UTF-8 bytes.

    Args:
        answer: gives the answer to a request, instead of sampling.
    """

    capabilities = LLMCapabilities(tools=True, token_ids=True, logprobs=True, deterministic=True)

    def __init__(self, answer: Callable[[CompletionRequest], Message]) -> None:
        self.policy_version = 0
        self.requests: list[CompletionRequest] = []
        """The requests to `complete`."""
        self.loaded: list[PolicySnapshot] = []
        self._answer = answer

    async def load_policy(self, snapshot: PolicySnapshot) -> None:
        """Take the version; there are no weights."""
        self.loaded.append(snapshot)
        self.policy_version = snapshot.version

    async def complete(self, request: CompletionRequest) -> Completion:
        """The answer of the given function."""
        self.requests.append(request)
        return self._completion(request, self._answer(request), forced=False)

    async def force(self, request: CompletionRequest, answer: Message) -> Completion:
        """`answer`, marked as forced."""
        return self._completion(request, answer, forced=True)

    def _completion(
        self, request: CompletionRequest, answer: Message, *, forced: bool
    ) -> Completion:
        prompt = b"".join(map(_text, request.messages))
        output = _text(answer)
        n = len(output)
        return Completion(
            message=answer,
            finish_reason="tool_calls" if answer.tool_calls else "stop",
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=n),
            model="fake",
            tokens=TokenTrace(
                prompt_ids=tuple(prompt),
                output_ids=tuple(output),
                # A uniform distribution over bytes.
                logprobs=(-math.log(256),) * n,
                policy_versions=(self.policy_version,) * n,
            ),
            forced=forced,
        )

    async def aclose(self) -> None:
        """Does nothing."""


class FakeChunker:
    """One chunk per turn."""

    def split(self, trajectory: Trajectory) -> Sequence[Chunk]:
        """All turns, with their tokens if recorded."""
        return [
            Chunk(index=i, kind="turn", spans=(whole_turn(i, turn),))
            for i, turn in enumerate(trajectory.turns)
        ]


@frozen(kw_only=True)
class FakeCreditScheme:
    """The weight of each chunk is the episode's reward times `scale`."""

    scale: float = 1.0
    name: str = "fake"

    def assign(self, group: Group) -> Sequence[Credit]:
        """No reward per chunk; the return is the episode's reward."""
        return [
            Credit(
                episode_id=rollout.episode.id,
                scheme=self.name,
                rewards=(0.0,) * len(rollout.chunks),
                returns=(rollout.episode.reward or 0.0,) * len(rollout.chunks),
                weights=(self.scale * (rollout.episode.reward or 0.0),) * len(rollout.chunks),
            )
            for rollout in group.rollouts
        ]


class FakeTrainer:
    """A trainer without weights: each step is a new version of the policy."""

    def __init__(self) -> None:
        self.version = 0
        self.llm: LLM | None = None
        """The attached model."""
        self.batches: list[Batch] = []
        """The batches that the steps were given."""

    @property
    def seen(self) -> dict[int, list[str]]:
        """Ids of the episodes, by step."""
        return {
            batch.step: [rollout.episode.id for g in batch.groups for rollout in g.group.rollouts]
            for batch in self.batches
        }

    def attach(self, llm: LLM | None) -> None:
        """Any model will do, or none."""
        self.llm = llm

    async def step(self, batch: Batch) -> StepReport:
        """Count the step."""
        self.batches.append(batch)
        self.version += 1
        return StepReport(step=batch.step, policy_version=self.version)

    def snapshot(self) -> PolicySnapshot:
        """The version; there are no weights."""
        return PolicySnapshot(version=self.version)

    def save(self, directory: Path) -> None:
        """Write the version."""
        (directory / "version").write_text(str(self.version))

    def load(self, directory: Path) -> None:
        """Read the version."""
        self.version = int((directory / "version").read_text())


def _text(message: Message) -> bytes:
    calls = [f"<call {call.name} {call.arguments}>" for call in message.tool_calls]
    return f"<{message.role}>{message.content}{''.join(calls)}\n".encode()


def _truncate(data: bytes, limit: int) -> bytes:
    if len(data) <= limit:
        return data
    head = limit // 2
    return data[:head] + data[len(data) - (limit - head) :]


def _result(code: int, stdout: bytes, stderr: bytes, limit: int, timed_out: bool) -> ExecResult:
    return ExecResult(
        exit_code=code,
        stdout=_truncate(stdout, limit),
        stderr=_truncate(stderr, limit),
        timed_out=timed_out,
        truncated=max(len(stdout), len(stderr)) > limit,
    )


class FolderSession:
    """A bash that runs commands one after the other, with their output going to files."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.closed = False

    async def run(
        self,
        command: str,
        *,
        timeout_s: float | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run one command in the shell."""
        if self.closed:
            raise SandboxError("the session is closed")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        mark = secrets.token_hex(16)
        # Cancelled, it may leave the shell writing to it.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            script, out, err = (Path(folder) / name for name in ("script", "out", "err"))
            script.write_text(command + "\n")
            quoted = [shlex.quote(str(path)) for path in (script, out, err)]
            self._process.stdin.write(
                ". {} >{} 2>{} </dev/null\necho {} $?\n".format(*quoted, mark).encode()
            )
            timed_out = False
            try:
                line = await asyncio.wait_for(self._process.stdout.readline(), timeout_s)
            except TimeoutError:
                timed_out, line = True, b""
                await self.close()
            if line:
                code = int(line.split()[1])
            else:
                self.closed = True
                code = 137 if timed_out else await self._process.wait()
            stdout, stderr = (path.read_bytes() if path.exists() else b"" for path in (out, err))
        return _result(code, stdout, stderr, max_output_bytes, timed_out)

    async def close(self) -> None:
        """Kill the shell and its group."""
        self.closed = True
        await _end(self._process)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        # On some kernels a child that is just being forked survives the signal, and `wait` would
        # wait for it, as it holds the pipes.
        for _ in range(100):
            os.killpg(process.pid, signal.SIGKILL)
            await asyncio.sleep(0.01)
    await process.wait()


class FolderSandbox(BaseSandbox):
    """Runs commands in a temporary folder, without isolation.

    Args:
        env: variables of every command, such as TMPDIR.
    """

    capabilities = Capabilities(
        isolation="none",
        network_isolation=False,
        filesystem_isolation=False,
        process_isolation=False,
        fork="copy",
        snapshot=False,
        images=False,
    )

    def __init__(self, folder: Path | None = None, *, env: Mapping[str, str] | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX)) if folder is None else folder
        self._env = env or {}
        self._processes: list[asyncio.subprocess.Process] = []
        name = f"folder-{secrets.token_hex(4)}"
        super().__init__(name, str(self._folder), self.capabilities, FolderFiles(self._folder))

    async def _start(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str] | None,
        cwd: str | None,
        stdin: int = asyncio.subprocess.PIPE,
    ) -> asyncio.subprocess.Process:
        start = asyncio.create_subprocess_exec(
            *arguments,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": self.workdir,
                **self._env,
                **(env or {}),
            },
            cwd=self._folder / (cwd or "."),
            start_new_session=True,
        )
        # If cancelled midway, asyncio leaves pipes open, and nobody would know the process.
        starting = asyncio.ensure_future(start)
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                self._processes.append(await starting)
            raise
        self._processes.append(process)
        return process

    async def execute(self, command: Command) -> ExecResult:
        """Run one command and wait for the end of its output."""
        given = command.command
        arguments = ["/bin/sh", "-c", given] if isinstance(given, str) else list(given)
        # With nothing to write, uvloop would still write, and fail where the command has ended.
        stdin = asyncio.subprocess.PIPE if command.stdin else asyncio.subprocess.DEVNULL
        try:
            process = await self._start(arguments, command.env, command.cwd, stdin)
        except FileNotFoundError as error:
            return ExecResult(exit_code=127, stdout=b"", stderr=str(error).encode())
        timed_out = False
        try:
            output = process.communicate(command.stdin or None)
            out, err = await asyncio.wait_for(output, command.timeout_s)
        except TimeoutError:
            timed_out, out, err = True, b"", b""
            await _end(process)
        except asyncio.CancelledError:
            await _end(process)
            raise
        code = await process.wait()
        code = code if code >= 0 else 128 - code
        return _result(code, out, err, command.max_output_bytes, timed_out)

    async def open_session(self, env: Mapping[str, str], cwd: str | None) -> FolderSession:
        """A persistent bash."""
        return FolderSession(await self._start(["bash", "--norc", "--noprofile"], env, cwd))

    async def end_processes(self) -> int:
        """Kill the processes that are still running."""
        running = [process for process in self._processes if process.returncode is None]
        for process in running:
            await _end(process)
        return len(running)

    async def fork(self) -> "FolderSandbox":
        """A copy of the folder."""
        target = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._folder.parent))
        await asyncio.to_thread(shutil.copytree, self._folder, target, True, dirs_exist_ok=True)
        return FolderSandbox(target, env=self._env)

    async def release(self) -> None:
        """Kill what is running, including leftovers of ended commands, and remove the folder."""
        for process in self._processes:
            await _end(process)
        shutil.rmtree(self._folder, ignore_errors=True)


class FolderFiles:
    """Files below a folder; nothing prevents a path from leading out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def read(self, path: str, max_bytes: int | None) -> bytes:
        """A file's bytes."""
        with (self._folder / path).open("rb") as file:
            return file.read(-1 if max_bytes is None else max_bytes)

    async def write(self, path: str, data: bytes, mode: int | None) -> None:
        """Write a file, making its folders."""
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        if mode is not None:
            target.chmod(mode)

    async def upload(self, source: Path, target: str) -> None:
        """Copy in."""
        await asyncio.to_thread(_copy, source, self._folder / target)

    async def download(self, source: str, target: Path) -> None:
        """Copy out."""
        await asyncio.to_thread(_copy, self._folder / source, target)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


class FolderBackend:
    """Opens `FolderSandbox`es.

    Args:
        parent: where the folders are made; by default among the temporary files. Those of a process
            that was killed stay there.
    """

    name = "folder"
    capabilities = FolderSandbox.capabilities

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = parent

    @contextlib.asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[FolderSandbox]:
        """A fresh folder."""
        sandbox = FolderSandbox(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent)))
        try:
            yield sandbox
        finally:
            await sandbox.close()

    @contextlib.asynccontextmanager
    async def restore(self, ref: str, spec: SandboxSpec) -> AsyncIterator[FolderSandbox]:
        """Not supported."""
        raise UnsupportedError("a folder has no snapshots")
        yield FolderSandbox()

    async def list(self) -> Sequence[SandboxInfo]:
        """Sandboxes are not tracked."""
        return ()

    async def prune(self) -> Sequence[SandboxInfo]:
        """Sandboxes are not tracked."""
        return ()

    async def aclose(self) -> None:
        """Does nothing."""
