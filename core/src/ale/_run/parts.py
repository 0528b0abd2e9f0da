"""Build the parts that a config picked, and read and check the tasks."""

import math
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from ale._config import RunConfig, Selected
from ale._config.load import select
from ale._registry import Registry
from ale._run.hooks import faults_of
from ale.errors import AleError, InputError, Problem
from ale.plugin import BuildContext
from ale.protocols import (
    LLM,
    Agent,
    Chunker,
    CreditScheme,
    Criterion,
    Policy,
    SandboxBackend,
    StartScheme,
    TaskSource,
    Trainer,
)
from ale.strict import from_plain
from ale.types import CriterionSpec, Split, Task


@frozen(kw_only=True)
class Parts:
    """What a run is made of, built."""

    source: TaskSource
    evaluation: TaskSource | None
    backend: SandboxBackend
    llm: LLM | None
    agent: Agent
    chunker: Chunker
    credit: CreditScheme
    starts: StartScheme | None
    trainer: Trainer | None
    observers: tuple[object, ...]


@frozen(kw_only=True)
class TaskToRun:
    """A task and its criteria, built."""

    task: Task
    criteria: tuple[tuple[CriterionSpec, Criterion], ...]
    steps: tuple["TaskToRun", ...] = ()


Tasks = Mapping[Split, Sequence[TaskToRun]]


def build(selected: Selected, context: BuildContext) -> Any:
    """Build one part.

    Raises:
        InputError: it can't be built with these options on this machine.
    """
    component, part = (
        selected.registration.component,
        f"{selected.registration.kind} '{selected.name}'",
    )
    try:
        product = component.build(selected.options, context)
    except InputError:
        raise
    except (AleError, ImportError) as error:
        found = selected.registration.probe()
        hint = None if found is None else found.remedy
        raise InputError([Problem(message=f"{part} can't be used: {error}", hint=hint)]) from error
    except Exception as error:
        message = f"{part} of {selected.registration.distribution} failed to build"
        raise InputError([Problem(message=f"{message}:\n{_told(error)}")]) from error
    faults = ["its build returned None"] if product is None else []
    if selected.registration.kind == "observer" and product is not None:
        faults = faults_of(product)
    if faults:
        owner = selected.registration.distribution
        raise InputError([Problem(message=f"{part} of {owner}: {fault}") for fault in faults])
    return product


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def build_parts(config: RunConfig, context: BuildContext) -> Parts:
    """Build them all.

    Raises:
        InputError: with what was wrong with each.
    """
    problems: list[Problem] = []

    def make(selected: Selected | None) -> Any:
        try:
            return None if selected is None else build(selected, context)
        except InputError as error:
            problems.extend(error.problems)
            return None

    made = {
        "source": make(config.tasks),
        "evaluation": make(None if config.evaluation is None else config.evaluation.tasks),
        "backend": make(config.sandbox),
        "llm": make(config.llm),
        "agent": make(config.agent),
        "chunker": make(config.chunker),
        "credit": make(config.credit),
        "starts": make(config.starts),
        "trainer": make(config.trainer),
    }
    observers = tuple(make(observer) for observer in config.observers)
    if problems:
        raise InputError(problems)
    parts = Parts(**made, observers=observers)
    if parts.starts is not None and not isinstance(parts.llm, Policy):
        message = "an expert's beginning can only be given to a model that can be made to say it"
        expected = "a section 'llm' whose model is trained in this run, such as {type: policy}"
        raise InputError([Problem(message=message, path="starts", expected=expected)])
    if parts.trainer is not None:
        parts.trainer.attach(parts.llm)
    return parts


def read_tasks(parts: Parts, registry: Registry, context: BuildContext) -> Tasks:
    """Load every task and build its criteria.

    Raises:
        InputError: with every problem of every task; none is run then.
    """
    held_out = parts.evaluation
    tasks: Tasks = {
        "train": _read_tasks(parts.source, registry, context),
        "evaluation": [] if held_out is None else _read_tasks(held_out, registry, context),
    }
    problems = [
        problem
        for split in tasks.values()
        for ready in split
        for problem in missing_features(ready.task, parts.backend)
    ]
    if problems:
        raise InputError(problems)
    return tasks


def missing_features(task: Task, backend: SandboxBackend) -> list[Problem]:
    """The features that a task or one of its steps requires and the sandboxes lack, if any."""
    required: set[str] = set()
    for part in (task, *task.steps):
        required |= {*part.environment.requires}
        if part.environment.agent_user is not None:
            required.add("agent-user")
    lacking = ", ".join(sorted(required - {*backend.capabilities.features}))
    if not lacking:
        return []
    message = f"task '{task.id}' requires of its sandbox: {lacking}; '{backend.name}' lacks this"
    return [Problem(message=message, file=task.origin or None, path="sandbox")]


def _read_tasks(
    source: TaskSource, registry: Registry, context: BuildContext
) -> Sequence[TaskToRun]:
    """Those of one source.

    Raises:
        InputError: with every problem of every task; none is run then.
    """
    problems: list[Problem] = []
    ready: list[TaskToRun] = []
    origins: dict[str, str] = {}
    try:
        for task in _loaded(source):
            if task.id in origins:
                message = f"the task id '{task.id}' stands twice, first in {origins[task.id]}"
                problems.append(Problem(message=message, file=task.origin or None))
            origins[task.id] = task.origin
            try:
                ready.append(prepare(task, registry, context))
            except InputError as error:
                problems += error.problems
    except InputError as error:
        problems += error.problems
    if not ready and not problems:
        problems.append(Problem(message="there is no task to run", path="tasks"))
    if problems:
        raise InputError(problems)
    return ready


def _loaded(source: TaskSource) -> Iterator[Task]:
    """What the source gives, one by one; whatever else it does is a problem with its name on it."""
    try:
        for task in source.load():
            yield _as_task(task)
    except InputError:
        raise
    except Exception as error:
        message = f"the task source failed:\n{_told(error)}"
        raise InputError([Problem(message=message, path="tasks")]) from error


def _as_task(given: object) -> Task:
    if not isinstance(given, Task):
        raise InputError([Problem(message=f"the source gave {given!r}, not a Task", path="tasks")])
    return given


def prepare(task: Task, registry: Registry, context: BuildContext) -> TaskToRun:
    """Build a task's criteria. Raises `InputError` with every problem."""
    if task.steps:
        steps = tuple(prepare(step, registry, context) for step in task.steps)
        return TaskToRun(task=task, criteria=(), steps=steps)
    if not task.criteria:
        message = f"task '{task.id}' has no criteria: it could not be graded"
        raise InputError([Problem(message=message, file=task.origin or None)])
    problems: list[Problem] = []
    criteria: list[tuple[CriterionSpec, Criterion]] = []
    for number, spec in enumerate(task.criteria):
        if not 0 < spec.weight < math.inf:
            message = f"expected a weight above 0, found {spec.weight:g}"
            path = f"success_criteria[{number}].weight"
            problems.append(Problem(message=message, file=spec.file, line=spec.line, path=path))
        try:
            criteria.append((spec, _criterion(spec, number, registry, context)))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return TaskToRun(task=task, criteria=tuple(criteria))


def _criterion(
    spec: CriterionSpec, number: int, registry: Registry, context: BuildContext
) -> Criterion:
    node = from_plain({**spec.options, "type": spec.type}, file=spec.file, line=spec.line)
    selected = select(node, "criterion", registry, path=f"success_criteria[{number}]")
    made: Criterion = build(selected, context)
    return made
