"""Goes through the tasks of a config: assigns, waits, grades, says why."""

import asyncio
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from attrs import define, evolve, frozen

from ale.errors import AleError, GradingError, InputError, LLMError, Problem, SandboxError
from ale.plugin import BuildContext
from ale.protocols import LLM, Criterion, SandboxBackend
from ale.runs import Registry, build_choice, read_sections
from ale.strict import from_plain
from ale.text import counted
from ale.types import ENVIRONMENT_KINDS, Task
from ale_proxy.assignment import Result
from ale_proxy.bridge.forms import TaskId
from ale_proxy.manager.client import WAIT_S, BridgeClient
from ale_proxy.manager.gain import GainError, Trained, told, trained
from ale_proxy.manager.grading import Grader
from ale_proxy.running import key_in, server_url

_NAMED = 3
"""How many of the other tasks with a problem are named."""


@frozen(kw_only=True)
class ManagerOptions:
    """What ``ale workers manage`` is started with."""

    config: Path
    bridge: str
    name: str | None = None
    rollouts: int = 1
    at_once: int = 16
    timeout_s: float = 3600.0
    worker: str | None = None
    details: bool = False
    key_env: str | None = None
    gain: bool = False
    """Train the manager: see `gain`."""
    proxy_key_env: str | None = None


@define
class Counts:
    """What came of the assignments."""

    graded: int = 0
    total: float = 0.0
    """Of the scores."""
    late: int = 0
    ended: int = 0
    """Without a score, before this manager saw a result."""
    not_graded: int = 0
    gains: int = 0
    total_gain: float = 0.0


def run(options: ManagerOptions, registry: Registry, say: Callable[[str], None]) -> None:
    """Assign every task, and grade what comes back.

    Raises:
        InputError: the config has no tasks, or nothing that could grade one.
        AleError: the bridge does not answer, results could not be graded, or there was none.
    """
    server_url(options.bridge, "--bridge", "http://127.0.0.1:8100")
    _check_name(options.name)
    key = key_in(options.key_env, "--key-env")
    tasks, grader, trained = _built(options, registry)
    _report(asyncio.run(_managing(options, key, tasks, grader, say, trained)), say)


def _check_name(name: str | None) -> None:
    try:
        msgspec.convert(name, TaskId | None)
    except msgspec.ValidationError:
        message = "expected letters, digits and . _ : - with a letter or digit first, at most 80"
        raise InputError.of(f"{message}, found '{name}'", path="--name") from None


def _report(counts: Counts, say: Callable[[str], None]) -> None:
    """Say what came of it. Raises `AleError` if that is no score, or a result without one."""
    mean = f", mean score {counts.total / counts.graded:.3f}" if counts.graded else ""
    late = f", {counts.late} without a result in time" if counts.late else ""
    ended = f", {counts.ended} ended without a score" if counts.ended else ""
    say(f"{counts.graded} graded{mean}{late}{ended}")
    if counts.gains:
        say(f"{counts.gains} gains, mean {counts.total_gain / counts.gains:+.3f}")
    if counts.not_graded:
        raise AleError(
            f"{counted(counts.not_graded, 'result')} could not be graded and still waits; "
            "the same command with the same --name tries again"
        )
    if not counts.graded:
        raise AleError("no assignment has a score; is a worker running, and is --timeout-s enough?")


async def _managing(
    options: ManagerOptions,
    key: str | None,
    tasks: Sequence[Task],
    grader: Grader,
    say: Callable[[str], None],
    trained: Trained | None = None,
) -> Counts:
    if trained is not None:
        await trained.check()
    bridge = BridgeClient(options.bridge, key, report=say)
    manager = _Manager(options, bridge, grader, say, trained)
    try:
        async with asyncio.TaskGroup() as group:
            for rollout in range(options.rollouts):
                for task in tasks:
                    group.create_task(manager.manage(task, rollout))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None  # the others are of the same bridge
    finally:
        await manager.aclose()
    return manager.counts


class _Manager:
    def __init__(
        self,
        options: ManagerOptions,
        bridge: BridgeClient,
        grader: Grader,
        say: Callable[[str], None],
        trained: Trained | None,
    ) -> None:
        self.counts = Counts()
        self._options = options
        self._bridge = bridge
        self._grader = grader
        self._say = say
        self._trained = trained
        self._name = options.name or secrets.token_hex(4)
        self._at_once = asyncio.Semaphore(options.at_once)

    async def manage(self, task: Task, rollout: int) -> None:
        """One assignment, from its start to its score."""
        async with self._at_once:
            id = f"{self._name}.{task.id}.{rollout}"
            found = await self._done(id, task, task.goal, task.id)
            if found is None:
                return
            if found["state"] == "graded":
                self._count(found["reward"])
            elif self._trained is None:
                await self._grade(id, task, rollout, found)
            else:
                await self._gain(self._trained, id, task, rollout, found)

    async def _done(
        self, id: str, task: Task, prompt: str, task_id: str | None
    ) -> dict[str, Any] | None:
        """An assignment that has a result or a score; None where it has none, which is counted.

        Args:
            task_id: None for that of the prompt.
        """
        worker = self._options.worker
        form = {
            "prompt": prompt,
            "id": id,
            "environment": task.environment_kind or "chat",
            "tags": list(task.tags),
            **({"task_id": task_id} if task_id else {}),
            **({"worker": worker} if worker else {}),
        }
        await self._bridge.assign(**form)
        found = await self._answered(id)
        if found is None:
            await self._bridge.end(id)
            self.counts.late += 1
            self._say(f"late    {id}")
        elif found["state"] not in ("answered", "graded"):
            self.counts.ended += 1
            self._say(f"ended   {id}")
            return None
        return found

    def _count(self, score: float) -> None:
        self.counts.graded += 1
        self.counts.total += score

    async def _answered(self, id: str) -> dict[str, Any] | None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._options.timeout_s
        while True:
            found = await self._bridge.waited(id, min(WAIT_S, max(until - loop.time(), 0)))
            if found["state"] not in ("assigned", "taken"):
                return found
            if loop.time() >= until:
                return None

    async def _grade(self, id: str, task: Task, rollout: int, found: dict[str, Any]) -> None:
        try:
            grade = await self._grader.grade(task, _result(found), rollout)
        except (GradingError, LLMError, SandboxError) as error:
            self._failed(id, error)
            return
        await self._bridge.say(id, grade.score, grade.text, author=self._name)
        self._count(grade.score)
        self._say(f"score   {grade.score:<7.3g} {id}: {' '.join(grade.text.split())}"[:200])

    def _failed(self, id: str, error: Exception) -> None:
        self.counts.not_graded += 1
        self._say(f"error   {id}: {error}")

    async def _gain(
        self, manager: Trained, id: str, task: Task, rollout: int, found: dict[str, Any]
    ) -> None:
        """Measure what feedback on a first result is worth. That is graded last: with a score it is
        done, and not before. A manager that is started again asks for other feedback.
        """
        session = f"{id}.{secrets.token_hex(3)}"
        try:
            feedback = await manager.feedback(session, task, _result(found), seed=id)
            told_score, control = await asyncio.gather(
                self._scored(f"{session}.told", task, rollout, told(task, feedback)),
                self._scored(f"{id}.control", task, rollout, task.goal),
            )
            if told_score is None or control is None:
                return
            gain = await manager.reward(session, told_score, control)
        except (GradingError, LLMError, SandboxError, GainError) as error:
            self._failed(id, error)
            return
        self.counts.gains += 1
        self.counts.total_gain += gain
        self._say(f"gain    {gain:<+7.3g} {id}: {' '.join(feedback.split())}"[:200])
        await self._grade(id, task, rollout, found)

    async def _scored(self, id: str, task: Task, rollout: int, prompt: str) -> float | None:
        """The score of another attempt; None where it has no result, which is counted."""
        found = await self._done(id, task, prompt, task.id if prompt == task.goal else None)
        if found is None or found["state"] == "graded":
            return None if found is None else float(found["reward"])
        grade = await self._grader.grade(task, _result(found), rollout)
        await self._bridge.say(id, grade.score, grade.text, author=self._name)
        return grade.score

    async def aclose(self) -> None:
        """Close the bridge's connections and the model's."""
        await self._bridge.aclose()
        if self._grader.llm is not None:
            await self._grader.llm.aclose()


def _result(found: dict[str, Any]) -> Result:
    return Result(text=found["result"], steps=tuple(found["steps"]))


def _built(
    options: ManagerOptions, registry: Registry
) -> tuple[list[Task], Grader, Trained | None]:
    """The tasks of a config, what grades them, and the model that is trained."""
    config = options.config
    root = read_sections(
        config, registry, command="ale workers manage", uses=("tasks", "llm", "sandbox")
    )
    context = BuildContext(environ=dict(os.environ))
    backend: SandboxBackend | None = None
    if (place := root.get("sandbox")) is not None:  # also where no criterion needs one
        backend = build_choice(place, "sandbox", registry, context)[1]
    tasks = list(build_choice(root.section("tasks"), "tasks", registry, context)[1].load())
    llm: LLM | None = None
    manager: Trained | None = None
    if options.gain:
        key = key_in(options.proxy_key_env, "--proxy-key-env")
        manager = trained(root.get("llm"), registry, context, key)
    elif (chosen := root.get("llm")) is not None:
        llm = build_choice(chosen, "llm", registry, context)[1]
    problems = _each_once(problem for task in tasks for problem in _problems(task, llm, config))
    if problems:
        raise InputError(problems)
    criteria = {
        task.id: [
            (spec.weight, _criterion(spec.type, dict(spec.options), config, registry, context))
            for spec in task.criteria
        ]
        for task in tasks
    }
    if backend is None and any(criteria.values()):
        chosen = from_plain({"type": "auto"}, file=str(config))
        backend = build_choice(chosen, "sandbox", registry, context)[1]
    grader = Grader(criteria=criteria, backend=backend, llm=llm, details=options.details)
    return tasks, grader, manager


def _criterion(
    type: str, options: dict[str, Any], config: Path, registry: Registry, context: BuildContext
) -> Criterion:
    node = from_plain({"type": type, **options}, file=str(config))
    made: Criterion = build_choice(node, "criterion", registry, context)[1]
    return made


def _each_once(problems: Iterable[Problem]) -> list[Problem]:
    """The first task with each message, how many others have it, and the names of some."""
    by_message: dict[str, list[Problem]] = {}
    for problem in problems:
        by_message.setdefault(problem.message, []).append(problem)
    return [
        evolve(first, message=f"{message} ({_others(others)})") if others else first
        for message, (first, *others) in by_message.items()
    ]


def _others(problems: Sequence[Problem]) -> str:
    names = ", ".join(str(problem.path).removeprefix("task ") for problem in problems[:_NAMED])
    more = ", ..." if len(problems) > _NAMED else ""
    return f"{counted(len(problems), 'other task')} too: {names}{more}"


def _problems(task: Task, llm: LLM | None, config: Path) -> list[Problem]:
    """Why this task can't be given to a worker elsewhere and graded here."""
    problem = partial(Problem, file=task.origin or str(config), path=f"task {task.id}")
    kind = task.metadata.get("environment")
    found = []
    if task.steps or task.setup_steps or task.agent_setup_steps or task.files:
        message = "it has files, setup or steps, which a worker elsewhere does not get"
        found.append(problem(message=message))
    if not task.criteria and llm is None:
        message = "it has no criteria, and no model could grade it"
        expected = "criteria; or a section llm, without --gain"
        found.append(problem(message=message, expected=expected))
    if kind is not None and task.environment_kind is None:
        expected = f"one of {', '.join(ENVIRONMENT_KINDS)}"
        found.append(problem(message=f"unknown environment '{kind}'", expected=expected))
    return found
