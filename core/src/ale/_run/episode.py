"""One episode: open a sandbox, set it up, run the agent, grade, tear down; record failures."""

import asyncio
import math
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from ale._config import RunOptions
from ale._run.agent import (
    GRACE_S,
    ExpertGuidedLLM,
    check_answered,
    effective_limits,
    model_for,
    run_agent,
)
from ale._run.grading import Damage, Places, check_works, grade, opens_judge, reward
from ale._run.keeping import Keeping
from ale._run.parts import PreparedTask, WorkerParts
from ale._run.timeouts import CLEANUP_S, Supervisor, open_in_time
from ale._store.codec import invalid_record, plain
from ale._store.index import SUCCESS
from ale.errors import AleError, LLMError, LLMLostError, SetupError
from ale.middleware import Rewriting, RewritingLLM
from ale.plugin import BuildContext
from ale.protocols import (
    AgentContext,
    HasAgentUser,
    KnowsTokenizer,
    ListsSessions,
    MiddlewareContext,
    OpensJudge,
    RecordsEgress,
    Restoring,
    RestoringScheme,
    Sandbox,
    SparesSandbox,
    Start,
)
from ale.types import (
    Conversation,
    EgressLedger,
    Episode,
    ExecResult,
    Failure,
    Job,
    Limits,
    SandboxSpec,
    Score,
    Stage,
    Stop,
    Task,
    Trajectory,
    Turn,
    replace,
)

BROKEN = Stop(reason="agent_error", detail="the episode broke while the agent ran")
_NOT_STARTED = Stop(reason="agent_error", detail="the agent was never started")


class StageTimer:
    """The stage that an attempt is in, and how long each stage took."""

    def __init__(self, monotonic: Callable[[], float], on_stage: Callable[[Stage], None]) -> None:
        """Start in the stage ``queued``, which is not timed.

        Args:
            on_stage: called whenever a stage is entered.
        """
        self.current: Stage = "queued"
        self.seconds: dict[str, float] = {}
        self._monotonic = monotonic
        self._on_stage = on_stage
        self._since = 0.0

    def enter(self, stage: Stage) -> None:
        """End the current stage and start another."""
        self.stop()
        self.current = stage
        self._on_stage(stage)

    def stop(self) -> None:
        """Add the time since the last call to the current stage."""
        now = self._monotonic()
        if self.current != "queued":
            spent = self.seconds.get(self.current, 0.0) + now - self._since
            self.seconds[self.current] = round(spent, 6)
        self._since = now


@define
class EpisodeRecord:
    """Turns, scores and errors of one attempt. The agent's recorder."""

    turns: list[Turn] = field(factory=list)
    stop: Stop = _NOT_STARTED
    scores: tuple[Score, ...] = ()
    turns_when_graded: dict[str, int] = field(factory=dict)
    """The number of turns recorded when a task step was graded, by the step's id."""
    teardown_errors: list[str] = field(factory=list)
    kept: str | None = None
    """The reference of the state that the agent left."""
    egress: EgressLedger | None = None
    """None if the sandbox records none."""
    workdir: str | None = None
    """The workspace's path as commands saw it; their output may contain it."""
    tokenizer: str | None = None
    """Identity of the model's tokenizer; None if it is not known."""
    damage: Damage = field(factory=Damage)
    ended: int = 0
    """How many processes of the agent were ended before the last step was graded."""
    retryable: bool = True
    """False after an error that another attempt would only repeat."""
    restoring: Restoring | None = None
    expert_guided: ExpertGuidedLLM | None = None
    rewritings: list[Rewriting] = field(factory=list)
    """The middleware's rewritings, one per task step so far; empty without middleware."""
    on_turn: Callable[[], None] = lambda: None

    def append(self, turn: Turn) -> None:
        """Record a turn.

        Raises:
            AleError: the agent passed something else.
        """
        if not isinstance(turn, Turn):
            raise AleError(f"the agent recorded {turn!r} instead of a Turn")
        self.turns.append(self.rewritings[-1].turn(turn) if self.rewritings else turn)
        self.on_turn()

    @property
    def trajectory(self) -> Trajectory:
        """The turns so far, and why the agent stopped."""
        return Trajectory(turns=tuple(self.turns), stop=self.stop)

    def episode(self, job: Job, start: Start, failure: Failure | None, **fields: Any) -> Episode:
        """The episode as it is stored.

        A record that could not be read back would make the whole run's file unreadable. Such an
        episode is stored as a failure, without what the plugins recorded.
        """
        episode = self._episode(job, start, failure, **fields)
        problem = invalid_record(episode)
        if problem is None:
            return episode
        self.turns, self.scores, self.stop = [], (), Stop(reason="agent_error")
        message = f"a plugin recorded a value that can't be stored: {problem}"
        failure = Failure(stage="agent", kind="InvalidRecord", message=message)
        return self._episode(job, start, failure, **fields)

    def _episode(self, job: Job, start: Start, failure: Failure | None, **fields: Any) -> Episode:
        return job.episode(
            reward=None if failure else reward(self.scores),
            scores=self.scores,
            trajectory=self.trajectory,
            failure=failure,
            metadata=self._metadata(job, start),
            **fields,
        )

    def _metadata(self, job: Job, start: Start) -> Mapping[str, Any]:
        rewritten = [fact for each in self.rewritings for fact in each.facts]
        known = {
            "workdir": self.workdir,
            "tokenizer": self.tokenizer,
            "steps": self.turns_when_graded if job.task.steps else None,
            "middleware": rewritten if self.rewritings else None,
            "damaged": self.damage.message,
            "kept": self.kept,
            "egress": None if self.egress is None else plain(self.egress),
            "teardown": self.teardown_errors or None,
            "expert_turns": start.expert_turns,
            "expert_next": self.expert_guided and self.expert_guided.expert_next,
        }
        restored = {} if self.restoring is None else self.restoring.facts
        return {**{key: fact for key, fact in known.items() if fact is not None}, **restored}


def failure_from(stage: Stage, error: Exception) -> Failure:
    """The failure as which an exception in this stage is recorded; its notes say where it was."""
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return Failure(
        stage=stage,
        kind=type(error).__name__,
        message=(str(error) or type(error).__name__) + notes,
        traceback="".join(traceback.format_exception(error)),
    )


class CancelledByUserError(AleError):
    """A person has cancelled the episode: it says nothing about the agent."""


@define
class Running:
    """An episode that runs."""

    given_up: "asyncio.Future[AleError]"
    since: float
    """Start, on the monotonic clock."""
    stage: Stage = "queued"


MOST_GRADED = 256
"""Number of episodes of one process that are graded at once."""


@frozen(kw_only=True)
class EpisodeRunner:
    """Runs episodes, any number of them at once."""

    parts: WorkerParts
    options: RunOptions
    context: BuildContext
    supervisor: Supervisor = field(factory=Supervisor)
    on_turn: Callable[[str], None] = lambda id: None
    """Is called with the id of an episode whose agent has finished a turn."""
    grading: asyncio.Semaphore = field(factory=lambda: asyncio.Semaphore(MOST_GRADED), init=False)
    """One slot for each episode that may be graded at once: where thousands end together, those
    that wait need nothing new, and those that are graded come to an end and are stored."""
    running: dict[str, Running] = field(factory=dict, init=False)
    """By the episode's id."""

    def cancel(self, id: str) -> None:
        """End a running episode, which is then broken, and not tried again."""
        given_up = self.running[id].given_up
        if not given_up.done():
            given_up.set_result(CancelledByUserError("a person cancelled it, with 'ale steer'"))

    async def run(
        self,
        job: Job,
        prepared: PreparedTask,
        start: Start,
        on_stage: Callable[[Job, Stage], None],
    ) -> Episode:
        """Run a job's episode; repeat it while it is broken and retries are left.

        Raises nothing but `CancelledError`: a failure is in the result.

        Args:
            prepared: the job's task, with its criteria.
            start: the start that the job names.
            on_stage: called whenever the episode enters a stage.
        """
        given_up = asyncio.get_running_loop().create_future()
        self.running[job.id] = Running(given_up, self.context.monotonic())
        try:
            return await self._attempts(job, prepared, start, on_stage)
        finally:
            del self.running[job.id]

    async def _attempts(
        self,
        job: Job,
        prepared: PreparedTask,
        start: Start,
        on_stage: Callable[[Job, Stage], None],
    ) -> Episode:
        running, failures = self.running[job.id], list[Failure]()

        def entered(stage: Stage) -> None:
            running.stage = stage
            on_stage(job, stage)

        while True:
            stages = StageTimer(self.context.monotonic, entered)
            record = EpisodeRecord(
                damage=Damage(self.options.lost_sandbox), on_turn=partial(self.on_turn, job.id)
            )
            where = self.context.run_directory
            attempt = _Attempt(
                runner=self,
                job=job,
                prepared=prepared,
                start=start,
                stages=stages,
                given_up=running.given_up,
                record=record,
                keeping=Keeping.of(self.options.keep, job.task, where, job.id),
            )
            episode = await attempt.run()
            last = len(failures) >= self.options.retries or not attempt.record.retryable
            if episode.failure is None or last:
                return replace(episode, earlier_failures=tuple(failures))
            failures.append(episode.failure)


@frozen(kw_only=True)
class _Attempt:
    """One attempt at an episode."""

    runner: EpisodeRunner
    job: Job
    prepared: PreparedTask
    start: Start
    stages: StageTimer
    given_up: "asyncio.Future[AleError]"
    record: EpisodeRecord
    keeping: Keeping | None

    async def run(self) -> Episode:
        started = datetime.fromtimestamp(self.runner.context.clock(), UTC)
        failure = None
        try:
            async with self._restoring() as self.record.restoring:
                supervisor, limit = self.runner.supervisor, self._longest_s()
                await supervisor.run(self._pipeline(), limit, "the episode", self.given_up)
        except Exception as error:
            failure = failure_from(self.stages.current, error)
            # The model component itself retries as often as its own options allow.
            lost = isinstance(error, LLMLostError)
            final = isinstance(error, LLMError | CancelledByUserError)
            self.record.retryable = lost or not final
        self.stages.stop()
        return self.record.episode(
            self.job,
            self.start,
            failure,
            sandbox=self.runner.parts.sandbox.name,
            started_at=started.isoformat(timespec="milliseconds"),
            seconds=self.stages.seconds,
        )

    async def _pipeline(self) -> None:
        self.stages.enter("sandbox")
        async with self._watched_sandbox() as sandbox:
            if not self.runner.options.deterministic:
                # Unlike everything else that is stored, this may depend on the machine.
                self.record.workdir = sandbox.workdir
            agent, tasks = self.runner.parts.agent, [self._task]
            used = not isinstance(agent, SparesSandbox) or agent.uses_sandbox
            places = Places(sandbox, used, lambda: self._prepared_sandbox(tasks))
            for step in self._task_steps():
                await self._step(step, places, tasks)
                if any(score.ends_task for score in self.record.scores):
                    break
            self.stages.enter("teardown")
        if self.record.damage.message is not None:
            await self._check_fresh(self.record.damage.message)

    @asynccontextmanager
    async def _watched_sandbox(self) -> AsyncIterator[Sandbox]:
        """The episode's sandbox; what has left it is noted before it is closed."""
        async with self._open_sandbox() as sandbox:
            try:
                yield sandbox
            finally:
                if isinstance(sandbox, RecordsEgress):
                    self.record.egress = sandbox.egress()

    async def _step(self, step: PreparedTask, places: Places, tasks: list[Task]) -> None:
        """One step of the task, or a task without steps."""
        damage = self.record.damage
        if damage.message is not None:  # no agent can work on this step
            self._add_scores(step, tuple(damage.score(spec) for spec, _ in step.criteria))
            return
        try:
            await self._work(step, places, tasks)
        except Exception as error:
            if not damage.caused(error):
                raise
            if self.record.stop is BROKEN:
                self.record.stop = damage.stop()
        if self.keeping is not None:
            self.record.kept = await self.keeping.keep(places.own, self.record.teardown_errors)
        async with self.runner.grading:
            self.stages.enter("grading")
            await self._grade(step, places)
            if self.keeping is not None and reward(self.record.scores) == SUCCESS:
                self.record.kept = self.keeping.after_success(self.record.kept)

    async def _work(self, step: PreparedTask, places: Places, tasks: list[Task]) -> None:
        """Set up a step, which is added to the `tasks` that were set up, and run the agent."""
        sandbox = places.own
        if self._task.steps:  # each has a setup of its own
            self.stages.enter("setup")
            await set_up(step.task, sandbox, self.runner.options.setup_timeout_s)
            tasks.append(step.task)
        self.stages.enter("agent")
        judged = places.used and any(opens_judge(criterion) for _, criterion in step.criteria)
        if judged and isinstance(sandbox, OpensJudge):
            await sandbox.prepare_judge()
        await self._run_agent(step.task, sandbox)

    async def _check_fresh(self, damage: str) -> None:
        """Check that the agent did the damage: no set-up, image or engine does it without it."""
        async with self._fresh_sandbox() as fresh:
            await check_works(fresh, damage)
            self.stages.enter("teardown")

    def _restoring(self) -> AbstractAsyncContextManager[Restoring | None]:
        scheme, start = self.runner.parts.starts, self.start
        if start.expert is None or start.demonstration or not isinstance(scheme, RestoringScheme):
            return nullcontext()
        return scheme.restoring(start)

    def _open_sandbox(self) -> AbstractAsyncContextManager[Sandbox]:
        restoring = self.record.restoring
        if restoring is None:
            return self._fresh_sandbox()
        limit = self._setup_limit_s() + CLEANUP_S
        opening = restoring.open(self._fresh_sandbox)
        return open_in_time(opening, limit, self.record.teardown_errors)

    @asynccontextmanager
    async def _fresh_sandbox(self) -> AsyncIterator[Sandbox]:
        """A new sandbox, set up for the task."""
        async with self._opened_sandbox() as sandbox:
            self.stages.enter("setup")
            await set_up(self._task, sandbox, self.runner.options.setup_timeout_s)
            yield sandbox

    @asynccontextmanager
    async def _prepared_sandbox(self, tasks: Sequence[Task]) -> AsyncIterator[Sandbox]:
        """A new sandbox for a criterion, set up for the task and its steps so far."""
        async with self._opened_sandbox() as sandbox:
            for task in tasks:
                await set_up(task, sandbox, self.runner.options.setup_timeout_s)
            yield sandbox

    def _opened_sandbox(self) -> AbstractAsyncContextManager[Sandbox]:
        kept = {} if self.keeping is None else self.keeping.tags
        tags = {**self.runner.context.tags, "episode": self.job.id, **kept}
        opening = self.runner.parts.sandbox.open(sandbox_spec(self._task, tags))
        limit_s, errors = self.runner.options.open_timeout_s, self.record.teardown_errors
        return open_in_time(opening, limit_s, errors)

    async def _run_agent(self, task: Task, sandbox: Sandbox) -> None:
        parts, record, job = self.runner.parts, self.record, self.job
        llm = model_for(parts.llm, job, self.start, record.restoring)
        if isinstance(llm, ExpertGuidedLLM):
            record.expert_guided = llm
        if isinstance(parts.llm, KnowsTokenizer):
            record.tokenizer = parts.llm.tokenizer_id
        conversation = Conversation(
            episode_id=job.id, task_id=task.id, rollout=job.rollout, seed=job.seed
        )
        if parts.middleware:
            about = MiddlewareContext(task=task, conversation=conversation)
            record.rewritings.append(Rewriting(parts.middleware, about))
            llm = RewritingLLM(llm, record.rewritings[-1])
        context = AgentContext(
            task=task,
            sandbox=sandbox,
            llm=llm,
            limits=self._limits(task),
            conversation=conversation,
            recorder=record,
        )
        record.stop, n_turns = BROKEN, len(record.turns)
        record.damage.began = True
        record.stop = await run_agent(parts.agent, context, self.runner.supervisor)
        if parts.llm is not None and len(record.turns) == n_turns:
            check_answered(record.stop)
        if not self._task.keep_processes:
            # Processes that the agent left running must not affect the verdict.
            record.ended = await _end_processes(sandbox)

    async def _grade(self, step: PreparedTask, places: Places) -> None:
        places.ended = self.record.ended
        record, timeout_s = self.record, self.runner.options.grading_timeout_s
        supervisor, trajectory = self.runner.supervisor, record.trajectory
        scores = await grade(step, trajectory, places, supervisor, timeout_s, record.damage)
        self._add_scores(step, scores)

    def _add_scores(self, step: PreparedTask, scores: tuple[Score, ...]) -> None:
        record = self.record
        earlier = record.scores
        if self._task.steps_reward == "last":
            earlier = tuple(replace(score, weight=0.0) for score in earlier)
        record.scores = (*earlier, *scores)
        record.turns_when_graded[step.task.id] = len(record.turns)

    @property
    def _task(self) -> Task:
        return self.job.task

    def _task_steps(self) -> tuple[PreparedTask, ...]:
        """The task's steps; for a task without steps, the task itself."""
        return self.prepared.steps or (self.prepared,)

    def _limits(self, task: Task) -> Limits:
        return effective_limits(self.runner.parts.agent.limits, task.constraints)

    def _longest_s(self) -> float | None:
        """Seconds after which the attempt is cancelled, in case every inner time limit failed."""
        options = self.runner.options
        # Twice: where the agent damages the sandbox, another one is looked at.
        longest = 2 * (self._setup_limit_s() + CLEANUP_S)
        turns = math.ceil(options.most_at_once / MOST_GRADED)  # an episode may wait to be graded
        for step in self._task_steps():
            limit = self._limits(step.task).time_limit_s
            if limit is None:
                return None
            n_steps = len(step.task.setup_steps) + len(step.task.agent_setup_steps) + 1
            longest += n_steps * options.setup_timeout_s
            longest += limit + GRACE_S
            # A criterion may need a sandbox of its own, and three tries to come to a verdict.
            n_set_ups = len(step.task.setup_steps) + len(step.task.agent_setup_steps)
            opening = self._setup_limit_s() + n_set_ups * options.setup_timeout_s
            longest += turns * len(step.criteria) * (3 * options.grading_timeout_s + opening)
        return longest

    def _setup_limit_s(self) -> float:
        """Seconds that opening, setting up and closing a sandbox may take."""
        options, n_steps = self.runner.options, len(self._task.setup_steps) + 1
        return 2 * options.open_timeout_s + n_steps * options.setup_timeout_s


async def _end_processes(sandbox: Sandbox) -> int:
    """End all processes; how many of them were no shells that are known."""
    if isinstance(sandbox, OpensJudge):
        count = await sandbox.left_running()
        await sandbox.end_processes()
        return count
    shells = len(sandbox.sessions) if isinstance(sandbox, ListsSessions) else 0
    return max(0, await sandbox.end_processes() - shells)


_EXCERPT_BYTES = 2000
"""Bytes of a failed setup step's output that the error quotes."""


def sandbox_spec(task: Task, tags: Mapping[str, str]) -> SandboxSpec:
    """The sandbox that a task requires."""
    required = task.environment
    environments = [part.environment for part in (task, *task.steps)]
    return SandboxSpec(
        image=required.image,
        build=required.build,
        workdir=required.workdir,
        network=task.constraints.network,
        allowed_hosts=task.constraints.allowed_hosts,
        env=required.env,
        cpus=required.cpus,
        memory_mb=required.memory_mb,
        storage_mb=required.storage_mb,
        user=required.user,
        agent_user=required.agent_user,
        requires=tuple({name: None for one in environments for name in one.requires}),
        tags=tags,
    )


async def set_up(task: Task, sandbox: Sandbox, timeout_s: float) -> None:
    """Copy the task's files into the workspace, run its setup steps and hand over to the agent.

    Args:
        timeout_s: time limit for each step, in seconds.

    Raises:
        SetupError: a step failed.
    """
    if task.files is not None:
        await sandbox.upload(Path(task.files), ".")
    await _run_commands(task.setup_steps, sandbox, timeout_s)
    # In a task with steps, each step's agent starts after that step's own setup.
    if not task.steps:
        if isinstance(sandbox, HasAgentUser):
            await sandbox.agent_started(task.environment.agent_user)
        await _run_commands(task.agent_setup_steps, sandbox, timeout_s)


async def _run_commands(commands: Sequence[str], sandbox: Sandbox, timeout_s: float) -> None:
    for command in commands:
        result = await sandbox.exec(command, timeout_s=timeout_s)
        if result.exit_code != 0 or result.timed_out:
            raise SetupError(_message(command, result))


def _message(command: str, result: ExecResult) -> str:
    how = "ran out of time" if result.timed_out else f"exited with {result.exit_code}"
    output = (result.stdout + result.stderr)[-_EXCERPT_BYTES:].decode(errors="backslashreplace")
    return f"setup step `{command}` {how}\n{output}".rstrip()
