"""One episode: open, set up, let the agent work, grade, close. Whatever goes wrong is recorded."""

import math
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from attrs import field, frozen

from ale._config import RunOptions
from ale._run.expert_guided import ExpertGuidedLLM
from ale._run.parts import Parts, TaskToRun
from ale._run.plan import Work
from ale._run.waiting import UNWIND_S, OverdueError, Waiting, opened
from ale._store.codec import fault_of
from ale.errors import AleError, GradingError, SetupError
from ale.plugin import BuildContext
from ale.protocols import (
    LLM,
    AgentContext,
    Criterion,
    HasAgentUser,
    Policy,
    Restoring,
    RestoringScheme,
    Sandbox,
)
from ale.types import (
    Completion,
    CompletionRequest,
    Constraints,
    Conversation,
    CriterionSpec,
    Episode,
    ExecResult,
    Failure,
    Limits,
    LLMCapabilities,
    SandboxSpec,
    Score,
    Stage,
    Stop,
    Task,
    Trajectory,
    Turn,
    replace,
)

N = TypeVar("N", int, float)

_EXCERPT = 2000
"""Bytes of a failed setup step's output that are kept."""


@frozen(kw_only=True)
class EpisodeRunner:
    """Runs episodes, any number at once."""

    parts: Parts
    options: RunOptions
    context: BuildContext
    entered: Callable[[Work, Stage], None]
    """Told whenever an episode enters a stage."""
    waiting: Waiting = field(factory=Waiting)

    async def run(self, work: Work) -> Episode:
        """Run one, again where it breaks and retries are left.

        Never raises but for cancellation: what breaks is in the result.
        """
        failures: list[Failure] = []
        while True:
            episode = await _Attempt(self, work).run()
            if episode.failure is None or len(failures) >= self.options.retries:
                return replace(episode, earlier_failures=tuple(failures))
            failures.append(episode.failure)


class _Attempt:
    """One attempt at an episode."""

    def __init__(self, runner: EpisodeRunner, work: Work) -> None:
        self.turns: list[Turn] = []
        self._runner = runner
        self._work = work
        self._task = work.ready.task
        self._steps = work.ready.steps or (work.ready,)
        self._graded: dict[str, int] = {}
        self._stage: Stage = "queued"
        self._since = 0.0
        self._seconds: dict[str, float] = {}
        self._stop = Stop(reason="agent_error", detail="the agent was never started")
        self._scores: tuple[Score, ...] = ()
        self._left_behind: list[str] = []
        self._way: Restoring | None = None
        self._expert_guided: ExpertGuidedLLM | None = None

    def append(self, turn: Turn) -> None:
        """Keep a turn: the recorder that the agent is given is this attempt."""
        if not isinstance(turn, Turn):
            raise AleError(f"the agent recorded {turn!r} instead of a Turn")
        self.turns.append(turn)

    async def run(self) -> Episode:
        started = datetime.fromtimestamp(self._runner.context.clock(), UTC)
        failure = None
        try:
            async with self._restoring() as self._way:
                await self._runner.waiting.result(self._walk(), self._longest(), "the episode")
        except Exception as error:
            failure = _failure(self._stage, error)
        self._leave()
        episode = self._episode(started.isoformat(timespec="milliseconds"), failure)
        fault = fault_of(episode)
        if fault is None:
            return episode
        # What can't be read again would spoil the whole run's file: only the fact of it is kept.
        self.turns, self._scores, self._stop = [], (), Stop(reason="agent_error")
        message = f"what a plugin recorded can't be stored: {fault}"
        failure = Failure(stage="agent", kind="InvalidRecord", message=message)
        return self._episode(episode.started_at, failure)

    def _episode(self, started_at: str, failure: Failure | None) -> Episode:
        return Episode(
            id=self._work.id,
            task_id=self._task.id,
            split=self._work.split,
            step=self._work.step,
            start=self._work.start.name,
            rollout=self._work.rollout,
            seed=self._work.seed,
            reward=None if failure else reward(self._scores),
            scores=self._scores,
            trajectory=Trajectory(turns=tuple(self.turns), stop=self._stop),
            failure=failure,
            sandbox=self._runner.parts.backend.name,
            started_at=started_at,
            seconds=self._seconds,
            metadata=self._metadata(),
        )

    def _metadata(self) -> Mapping[str, Any]:
        made: dict[str, Any] = {}
        if self._task.steps:
            made["steps"] = self._graded
        if self._left_behind:
            made["teardown"] = self._left_behind
        if self._work.start.expert_turns is not None:
            made["expert_turns"] = self._work.start.expert_turns
        if self._expert_guided is not None and self._expert_guided.expert_next is not None:
            made["expert_next"] = self._expert_guided.expert_next
        return made if self._way is None else {**made, **self._way.facts}

    def _restoring(self) -> AbstractAsyncContextManager[Restoring | None]:
        scheme, start = self._runner.parts.starts, self._work.start
        if start.expert is None or start.demonstration or not isinstance(scheme, RestoringScheme):
            return nullcontext()
        return scheme.restoring(start)

    def _longest(self) -> float | None:
        """Seconds after which the attempt is given up, should every bound in it have failed."""
        options, longest = self._runner.options, self._until_ready() + 2 * UNWIND_S
        for step in self._steps:
            limit = self._limits(step.task).time_limit_s
            if limit is None:
                return None
            n_steps = len(step.task.setup_steps) + len(step.task.agent_setup_steps) + 1
            longest += n_steps * options.setup_timeout_s
            longest += limit + options.grace_s + len(step.criteria) * options.grading_timeout_s
        return longest

    def _until_ready(self) -> float:
        """Seconds that opening and closing a sandbox and setting it up may take."""
        options, n_steps = self._runner.options, len(self._task.setup_steps) + 1
        return 2 * options.open_timeout_s + n_steps * options.setup_timeout_s

    def _limits(self, task: Task) -> Limits:
        return tighten(self._runner.parts.agent.limits, task.constraints)

    @asynccontextmanager
    async def _fresh(self) -> AsyncIterator[Sandbox]:
        """A sandbox at the task's own beginning."""
        parts, options = self._runner.parts, self._runner.options
        spec = sandbox_spec(self._task, {**self._runner.context.tags, "episode": self._work.id})
        opening = opened(parts.backend.open(spec), options.open_timeout_s, self._left_behind)
        async with opening as sandbox:
            self._enter("setup")
            await _set_up(self._task, sandbox, options.setup_timeout_s)
            yield sandbox

    async def _walk(self) -> None:
        self._enter("sandbox")
        opening = self._fresh()
        if self._way is not None:
            bound = self._until_ready() + UNWIND_S
            opening = opened(self._way.opened(self._fresh), bound, self._left_behind)
        async with opening as sandbox:
            for step in self._steps:
                await self._take(step, sandbox)
                if any(score.ends_task for score in self._scores):
                    break
            self._enter("teardown")

    async def _take(self, step: TaskToRun, sandbox: Sandbox) -> None:
        """One step, or all of a task that has none."""
        if step.task is not self._task:
            self._enter("setup")
            await _set_up(step.task, sandbox, self._runner.options.setup_timeout_s)
        self._enter("agent")
        self._stop = await self._drive(step.task, sandbox)
        if not self._task.keep_processes:
            # What the agent left running must not decide the verdict.
            await sandbox.end_processes()
        self._enter("grading")
        scores = await self._grade(step, sandbox)
        before = self._scores
        if self._task.steps_reward == "last":
            before = tuple(replace(score, weight=0.0) for score in before)
        self._scores = (*before, *scores)
        self._graded[step.task.id] = len(self.turns)

    async def _drive(self, task: Task, sandbox: Sandbox) -> Stop:
        agent = self._runner.parts.agent
        limits = self._limits(task)
        context = AgentContext(
            task=task,
            sandbox=sandbox,
            llm=self._model(),
            limits=limits,
            conversation=Conversation(
                episode_id=self._work.id,
                task_id=task.id,
                rollout=self._work.rollout,
                seed=self._work.seed,
            ),
            recorder=self,
        )
        limit = limits.time_limit_s
        cut = None if limit is None else limit + self._runner.options.grace_s
        try:
            stop = await self._runner.waiting.result(agent.run(context), cut, "the agent")
        except OverdueError as error:
            return Stop(reason="time_limit", detail=f"cut off: {error}")
        if not isinstance(stop, Stop):
            raise AleError(f"the agent returned {stop!r} instead of a Stop")
        return stop

    def _model(self) -> LLM:
        llm, start = self._runner.parts.llm, self._work.start
        if llm is None:
            return _Absent()
        if start.expert is None and start.next_action is None:
            return llm
        assert isinstance(llm, Policy)  # the parts have been checked
        self._expert_guided = ExpertGuidedLLM(
            llm, start, None if self._way is None else self._way.arrived
        )
        return self._expert_guided

    async def _grade(self, step: TaskToRun, sandbox: Sandbox) -> tuple[Score, ...]:
        trajectory = Trajectory(turns=tuple(self.turns), stop=self._stop)
        seconds = self._runner.options.grading_timeout_s
        scores = []
        for spec, criterion in step.criteria:
            grading = criterion.grade(step.task, trajectory, sandbox)
            name = f"criterion '{spec.type}'"
            try:
                score = await self._runner.waiting.result(grading, seconds, name)
            except OverdueError as error:
                raise GradingError(str(error)) from error
            scores.append(_checked(score, spec, criterion))
        return tuple(scores)

    def _enter(self, stage: Stage) -> None:
        self._leave()
        self._stage = stage
        self._runner.entered(self._work, stage)

    def _leave(self) -> None:
        now = self._runner.context.monotonic()
        if self._stage != "queued":
            spent = self._seconds.get(self._stage, 0.0) + now - self._since
            self._seconds[self._stage] = round(spent, 6)
        self._since = now


class _Absent:
    """Stands where a config names no model; an agent that asks anyway is told so."""

    capabilities: LLMCapabilities = LLMCapabilities(tools=False)

    async def complete(self, request: CompletionRequest) -> Completion:
        raise AleError("the agent asked a model, but the config has no section 'llm'")

    async def aclose(self) -> None: ...


def sandbox_spec(task: Task, tags: Mapping[str, str]) -> SandboxSpec:
    """What the task wants of its sandbox."""
    wants = task.environment
    return SandboxSpec(
        image=wants.image,
        build=wants.build,
        workdir=wants.workdir,
        network=task.constraints.network,
        allowed_hosts=task.constraints.allowed_hosts,
        env=wants.env,
        cpus=wants.cpus,
        memory_mb=wants.memory_mb,
        storage_mb=wants.storage_mb,
        user=wants.user,
        agent_user=wants.agent_user,
        tags=tags,
    )


async def _set_up(task: Task, sandbox: Sandbox, timeout_s: float) -> None:
    if task.files is not None:
        await sandbox.upload(Path(task.files), ".")
    await _run_commands(task.setup_steps, sandbox, timeout_s)
    # Of a task with steps, each step's agent starts after its own set-up.
    if not task.steps:
        if isinstance(sandbox, HasAgentUser):
            await sandbox.agent_started(task.environment.agent_user)
        await _run_commands(task.agent_setup_steps, sandbox, timeout_s)


async def _run_commands(commands: Sequence[str], sandbox: Sandbox, timeout_s: float) -> None:
    for command in commands:
        result = await sandbox.exec(command, timeout_s=timeout_s)
        if result.exit_code != 0 or result.timed_out:
            raise SetupError(_said(command, result))


def _said(command: str, result: ExecResult) -> str:
    how = "ran out of time" if result.timed_out else f"exited with {result.exit_code}"
    output = (result.stdout + result.stderr)[-_EXCERPT:].decode(errors="backslashreplace")
    return f"setup step `{command}` {how}\n{output}".rstrip()


def tighten(limits: Limits, constraints: Constraints) -> Limits:
    """The agent's limits and the task's, the stricter of each."""
    return replace(
        limits,
        time_limit_s=_stricter(limits.time_limit_s, constraints.time_limit_s),
        max_steps=_stricter(limits.max_steps, constraints.max_steps),
        max_turns=_stricter(limits.max_turns, constraints.max_turns),
    )


def _stricter(one: N | None, other: N | None) -> N | None:
    given = [value for value in (one, other) if value is not None]
    return min(given, default=None)


def reward(scores: tuple[Score, ...]) -> float:
    """Mean of the criteria's values, by weight."""
    total = math.fsum(score.weight for score in scores)
    return math.fsum(score.weight * score.value for score in scores) / total


def _checked(score: Score, spec: CriterionSpec, criterion: Criterion) -> Score:
    valid = isinstance(score, Score) and math.isfinite(score.value)
    valid = valid and (score.unbounded or 0.0 <= score.value <= 1.0)
    if not valid or score.passed != (score.value == 1.0):
        name = type(criterion).__qualname__
        raise GradingError(f"criterion '{spec.type}' ({name}) gave no valid score: {score!r}")
    return replace(score, weight=spec.weight)


def _failure(stage: Stage, error: Exception) -> Failure:
    return Failure(
        stage=stage,
        kind=type(error).__name__,
        message=str(error) or type(error).__name__,
        traceback="".join(traceback.format_exception(error)),
    )
