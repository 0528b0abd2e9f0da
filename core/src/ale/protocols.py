"""What comes through a door: the protocols that every plugin's products keep.

`ale.testing` has a contract kit for each; a product that passes it works with every other part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from attrs import field, frozen

if TYPE_CHECKING:
    # Only named in annotations: building the records would double the time of `ale --help`.
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from ale.types import (
        Batch,
        Capabilities,
        Chunk,
        Completion,
        CompletionRequest,
        Conversation,
        Credit,
        Episode,
        ExecResult,
        Group,
        Limits,
        LLMCapabilities,
        Message,
        PolicySnapshot,
        SandboxInfo,
        SandboxSpec,
        Score,
        StepReport,
        Stop,
        Task,
        Trajectory,
        Turn,
    )

DEFAULT_OUTPUT_BYTES = 1 << 20


@runtime_checkable
class TaskSource(Protocol):
    """Where tasks come from."""

    def load(self) -> Iterable[Task]:
        """The tasks, in a fixed order.

        Raises:
            InputError: with every problem of every task that can't be read.
        """
        ...


@runtime_checkable
class Session(Protocol):
    """A persistent shell: ``cd``, variables and background jobs last from command to command."""

    async def run(
        self,
        command: str,
        *,
        timeout_s: float | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run one command and wait for its end, not for that of its background jobs.

        A command that ends the shell (``exit 3``) gives its code and closes the session; one that
        runs out of time is killed with all it started, the session is closed with it, and the
        result has `timed_out` set. The next command needs a new session.

        Args:
            timeout_s: seconds; None waits for ever.
            max_output_bytes: of stdout and of stderr each; head and tail are kept.

        Raises:
            SandboxError: the session is closed, or the sandbox is gone.
        """
        ...

    @property
    def closed(self) -> bool:
        """True once the shell has ended."""
        ...

    async def close(self) -> None:
        """End the shell and what it started. May be called again."""
        ...


@runtime_checkable
class Sandbox(Protocol):
    """A place to run commands. Nothing that was started in it outlives `close`."""

    @property
    def id(self) -> str: ...

    @property
    def workdir(self) -> str:
        """Absolute path of the workspace, as a command sees it."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        timeout_s: float | None = None,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run one command in a process group of its own.

        Args:
            command: a line for ``/bin/sh -c``, or an argument vector.
            timeout_s: seconds, after which the whole tree is killed; None waits for ever.
            stdin: bytes to feed; None closes it.
            env: added to the sandbox's environment.
            cwd: relative to the workspace, or absolute.
            user: name or number; only where the backend can.
            max_output_bytes: of stdout and of stderr each; head and tail are kept.

        Returns:
            The true exit code (128 + n for signal n; 127 for a missing command) after any
            duration. When a child keeps the output open, the result comes with the command's end.

        Raises:
            SandboxError: the sandbox is closed or gone.
            UnsupportedError: `user` where the backend can't switch.
        """
        ...

    async def session(
        self, *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> Session:
        """Open a persistent shell.

        Raises:
            SandboxError: the sandbox is closed or gone.
        """
        ...

    async def read(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """A file's bytes. Relative paths are relative to the workspace.

        Raises:
            FileNotFoundError, IsADirectoryError, PermissionError: as their names say.
            SandboxError: the path leads out of the sandbox, or the sandbox is gone.
        """
        ...

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Write a file whole, making parent folders. Raises as `read`."""
        ...

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host file or folder in, modes and links kept. Raises as `read`."""
        ...

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or folder out, modes kept; links that lead out are not followed."""
        ...

    async def end_processes(self) -> int:
        """Kill every process in the sandbox, sessions included; the number killed.

        The run calls it after the agent, before grading, unless the task asks for a server.
        """
        ...

    async def fork(self) -> Sandbox:
        """An independent copy of the files as they stand. Close it as any sandbox.

        Raises:
            UnsupportedError: `capabilities.fork` is ``replay``.
        """
        ...

    async def snapshot(self) -> str:
        """Keep the files as they stand; the reference is for `SandboxBackend.restore`.

        Raises:
            UnsupportedError: `capabilities.snapshot` is False.
        """
        ...

    async def close(self) -> None:
        """Remove all of it. May be called again."""
        ...


@runtime_checkable
class SandboxBackend(Protocol):
    """Opens sandboxes of one kind."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """A fresh sandbox, removed on exit, cancellation included.

        Raises (on entry):
            SandboxError: it could not be opened; the message says what would help.
            UnsupportedError: the spec asks for what the backend can't give.
        """
        ...

    def restore(self, ref: str, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """A fresh sandbox with the files of a snapshot. Raises as `open`."""
        ...

    async def list(self) -> Sequence[SandboxInfo]:
        """Every sandbox of this backend on this machine, of live runs and of dead ones."""
        ...

    async def prune(self) -> Sequence[SandboxInfo]:
        """Remove what runs that are no longer alive have left; what was removed."""
        ...

    async def aclose(self) -> None:
        """Let go of connections and helpers. May be called again."""
        ...


@runtime_checkable
class LLM(Protocol):
    """A language model."""

    @property
    def capabilities(self) -> LLMCapabilities: ...

    async def complete(self, request: CompletionRequest) -> Completion:
        """One answer. Called by many episodes at once.

        Raises:
            ContextLengthError: the conversation is too long for the model.
            LLMError: no answer could be had, after the retries that the options allow.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections. May be called again."""
        ...


@runtime_checkable
class Policy(LLM, Protocol):
    """A language model that can be trained: it is exact to the token, and its weights change."""

    @property
    def policy_version(self) -> int:
        """Of the weights that the next token is sampled from."""
        ...

    async def load_policy(self, snapshot: PolicySnapshot) -> None:
        """Sample from these weights: every token from now on carries their version.

        Answers that are under way go on with the new weights; `TokenTrace.policy_versions` says
        which token came from which.

        Raises:
            AleError: they don't fit this model, or it has no way to them.
        """
        ...

    async def force(self, request: CompletionRequest, answer: Message) -> Completion:
        """The completion that says `answer`, token by token as this model would write it.

        Nothing is sampled. `forced` is set, and the log-probabilities are those that the model
        gives these tokens now. For demonstrations, and for replaying an expert's beginning.

        Raises:
            ContextLengthError, LLMError: as `complete`.
        """
        ...


class Recorder(Protocol):
    """Where an agent puts each turn as soon as it is over, so that a cut-off loses none."""

    @property
    def turns(self) -> Sequence[Turn]: ...

    def append(self, turn: Turn) -> None: ...


@frozen(kw_only=True)
class AgentContext:
    """All that an agent works with."""

    task: Task
    sandbox: Sandbox
    llm: LLM
    limits: Limits
    """The agent's own limits, tightened by the task's constraints."""
    conversation: Conversation
    recorder: Recorder = field(repr=False)


@runtime_checkable
class Agent(Protocol):
    """Lets a model act in a sandbox until the task is done or a limit is reached."""

    @property
    def limits(self) -> Limits:
        """What its options allow."""
        ...

    async def run(self, context: AgentContext) -> Stop:
        """Work on the task, appending each turn to the recorder.

        Ends by itself at each limit. The run cancels it some seconds after `time_limit_s`; what was
        recorded until then is kept and graded.

        Raises:
            LLMError, SandboxError: infrastructure; the episode is broken.
            Exception: a bug of the agent; the episode is broken and the traceback is kept.
        """
        ...


@runtime_checkable
class Criterion(Protocol):
    """Judges what an agent left behind."""

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        """Look and judge; the sandbox is still open, the agent has ended.

        Whatever the agent left (files, processes, a changed PATH) is hostile until proven
        otherwise. `Score.weight` is set by the run.

        Raises:
            GradingError: it could not be judged. The episode is then broken, never 0.
            SandboxError: likewise.
        """
        ...


@runtime_checkable
class Chunker(Protocol):
    """Cuts a trajectory into the steps of the decision process. Pure."""

    def split(self, trajectory: Trajectory) -> Sequence[Chunk]:
        """Chunks in order, a partition of the trajectory (see `Span`).

        Raises:
            ChunkError: the trajectory lacks what this cut needs.
        """
        ...


@runtime_checkable
class CreditScheme(Protocol):
    """Gives every chunk of a group its credit. Pure."""

    def assign(self, group: Group) -> Sequence[Credit]:
        """One credit per rollout, in the order of the group. Finite numbers only."""
        ...


class Expert(Protocol):
    """Knows how a task is done, and says it in the model's place."""

    def answer(self, request: CompletionRequest) -> Message | None:
        """What the model is made to say here; None from where on it is on its own.

        A turn may be asked again, as after an agent has shortened its context.

        Raises:
            ReplayError: what has been observed is not what the expert saw. The episode is broken.
        """
        ...


@frozen(kw_only=True)
class Start:
    """Where some rollouts of a task begin."""

    task_id: str
    rollouts: int
    """How many, side by side: a group."""
    name: str = ""
    """Empty for the task's own beginning; else one word, which stands in the episodes' ids."""
    expert: Callable[[], Expert] | None = None
    """Makes the one that speaks first, anew for each rollout."""
    demonstration: bool = False
    """The expert speaks to the end: nothing is sampled."""
    expert_chunks: int | None = None
    """K*: chunks of the expert's whole episode, of which the first are replayed. A trainer finds
    it in `Episode.metadata`."""


@runtime_checkable
class StartScheme(Protocol):
    """Chooses where rollouts begin. Deterministic: a resumed run asks again and must hear the same.

    Source: chunk-level initialised resampling (arXiv:2512.24873, 3.2.4.4).
    """

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        """The starts of one training step.

        Args:
            step: 0-based.
            tasks: those drawn for this step; a start's task is one of them.
            rollouts: episodes that the config wants of each.
        """
        ...

    def learn(self, step: int, episodes: Iterable[Episode]) -> None:
        """Look at the graded episodes of a step, after all of them are there.

        Called for each step in order; after a resume for those on disk first.
        """
        ...


@runtime_checkable
class Trainer(Protocol):
    """Learns from credited episodes."""

    def attach(self, llm: LLM | None) -> None:
        """Learn which model the episodes come from. Called once, before all else.

        A trainer in the model's process may take the model itself; the run hands every `snapshot`
        to `Policy.load_policy` after a step.

        Raises:
            InputError: this model can't be trained here: it gives no token ids, say.
        """
        ...

    async def step(self, batch: Batch) -> StepReport:
        """Learn from one batch."""
        ...

    def snapshot(self) -> PolicySnapshot:
        """The policy as it stands, never changed afterwards."""
        ...

    def save(self, directory: Path) -> None:
        """Write all that `load` needs to go on as if never stopped."""
        ...

    def load(self, directory: Path) -> None:
        """Go on from what `save` wrote.

        Raises:
            StoreError: it is not a checkpoint of this trainer.
        """
        ...
