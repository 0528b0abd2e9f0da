"""Build the parts that a config selects, check them, and read and check its tasks."""

import inspect
import math
import re
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pluggy
from attrs import evolve, frozen

from ale import hookspecs
from ale._config import RunConfig, Selected
from ale._config.load import select
from ale._config.model import PARTS
from ale._registry import Registry
from ale.errors import AleError, InputError, Problem, nearest
from ale.plugin import PROJECT, BuildContext
from ale.protocols import (
    LLM,
    Agent,
    Chunker,
    CreditScheme,
    Criterion,
    CriticCredit,
    CriticTrainer,
    Executor,
    Launcher,
    Middleware,
    Objective,
    Policy,
    ReadsScores,
    SandboxBackend,
    StartScheme,
    StepScorer,
    TaskSource,
    Trainer,
    missing,
)
from ale.strict import Node, from_plain, read_yaml
from ale.strict.structuring import Problems
from ale.types import FEEDBACK, Capabilities, CriterionSpec, Split, Task

PROTOCOLS: Mapping[str, type] = {
    "tasks": TaskSource,
    "sandbox": SandboxBackend,
    "llm": LLM,
    "agent": Agent,
    "criterion": Criterion,
    "scorer": StepScorer,
    "chunker": Chunker,
    "credit": CreditScheme,
    "starts": StartScheme,
    "trainer": Trainer,
    "objective": Objective,
    "executor": Executor,
    "launch": Launcher,
    "middleware": Middleware,
}
"""Protocols by component kind. An observer has no protocol, but hooks of its choice."""

EVENTS = [
    name
    for name, hook in vars(hookspecs).items()
    if name.startswith("ale_") and "event" in inspect.signature(hook).parameters
]
"""Names of the hooks that observers may have."""


def build(selected: Selected, context: BuildContext) -> Any:
    """Build the component that a config selected.

    Raises:
        InputError: it can't be built with these options on this machine, or what it built does not
            implement the protocol of its kind.
    """
    registration = selected.registration
    part, package = f"{registration.kind} '{selected.name}'", registration.distribution
    try:
        product = registration.component.build(built_options(selected, context), context)
    except InputError:
        raise
    except (AleError, ImportError) as error:
        found = registration.probe()
        hint = None if found is None else found.remedy
        raise InputError.of(f"{part} can't be used: {error}", hint=hint) from error
    except Exception as error:
        message = f"{part} of {package} failed to build:\n{stack_trace(error)}"
        raise InputError.of(message) from error
    if errors := _product_errors(product, registration.kind):
        raise InputError([Problem(message=f"{part} of {package}: {error}") for error in errors])
    return product


def built_options(selected: Selected, context: BuildContext) -> Any:
    """The options of a component, with the product of each component that one of them selects."""
    inner = {name: build(each, context) for name, each in selected.inner.items()}
    return attrs.evolve(selected.options, **inner) if inner else selected.options


def not_pruned(sandbox: str, error: Exception) -> str:
    """A message that a backend could not prune, with a traceback unless the error says why."""
    if isinstance(error, AleError):
        return f"sandbox '{sandbox}' could not prune: {error}"
    return f"sandbox '{sandbox}' could not prune:\n{stack_trace(error)}"


def stack_trace(error: BaseException) -> str:
    """The traceback of an exception as text."""
    return "".join(traceback.format_exception(error)).rstrip()


def _product_errors(product: object, kind: str) -> list[str]:
    if product is None:
        return ["its build returned None"]
    if isinstance(product, type):
        return [f"its build returned the class {product.__qualname__}, not an instance"]
    if kind == "observer":
        return observer_errors(product)
    protocol = PROTOCOLS[kind]
    if lacking := missing(product, protocol):
        found = f"an object of type {type(product).__qualname__}, which is no {protocol.__name__}"
        return [f"its build returned {found}: {', '.join(lacking)} missing"]
    if isinstance(product, SandboxBackend) and not isinstance(product.capabilities, Capabilities):
        return [
            f"its capabilities are {product.capabilities!r}, expected an ale.types.Capabilities"
        ]
    return []


def observer_errors(product: object) -> list[str]:
    """Mistakes in an observer's hooks that would keep events from reaching it."""
    errors = []
    for name in (name for name in dir(product) if name.startswith("ale_")):
        method = getattr(product, name)
        if not hasattr(method, f"{PROJECT}_impl"):
            errors.append(f"{name} is not marked with hookimpl")
        elif name not in EVENTS:
            hint = nearest(name, EVENTS)
            errors.append(f"{name} is not an event hook" + (f"; {hint}" if hint else ""))
        elif inspect.iscoroutinefunction(method):
            errors.append(f"{name} is a coroutine function, which would never be awaited")
        elif set(inspect.signature(method).parameters) - {"event"}:
            errors.append(f"{name} takes {inspect.signature(method)}, expected (event)")
    if not errors and not _has_event_hook(product):
        errors.append(f"it has no event hook (hookimpl) of {', '.join(EVENTS)}")
    return errors


def _has_event_hook(product: object) -> bool:
    """Has it an event hook, whatever its method is called (``hookimpl(specname=...)``)?"""
    manager = pluggy.PluginManager(PROJECT)
    manager.register(product)
    return any(caller.name in EVENTS for caller in manager.get_hookcallers(product) or ())


_OWN_FILES = "files of its own"


@frozen(kw_only=True)
class WorkerParts:
    """The components that sample and grade."""

    sandbox: SandboxBackend
    llm: LLM | None
    agent: Agent
    starts: StartScheme | None = None
    middleware: tuple[tuple[str, Middleware], ...] = ()
    """Middleware in the order of application, each with the name of its component."""


@frozen(kw_only=True)
class Parts(WorkerParts):
    """The built components of a run, by section of the config."""

    tasks: TaskSource
    evaluation: TaskSource | None
    chunker: Chunker | None
    """None only without a trainer, as `credit`."""
    credit: CreditScheme | None
    trainer: Trainer | None
    scorers: tuple[tuple[str, StepScorer], ...] = ()
    """Scorers in the order of the config, each with its name in the stored scores."""
    executor: Executor
    observers: tuple[object, ...]


@frozen(kw_only=True)
class PreparedTask:
    """A task and its criteria, built."""

    task: Task
    criteria: tuple[tuple[CriterionSpec, Criterion], ...]
    steps: tuple["PreparedTask", ...] = ()


Tasks = Mapping[Split, Sequence[PreparedTask]]


def build_parts(config: RunConfig, context: BuildContext) -> Parts:
    """Build every component of a config.

    Raises:
        InputError: with the problems of all components.
    """
    problems: list[Problem] = []

    def make(selected: Selected | None, path: str) -> Any:
        try:
            return None if selected is None else build(selected, context)
        except InputError as error:
            problems.extend(
                problem if problem.file or problem.path else evolve(problem, path=path)
                for problem in error.problems
            )
            return None

    built = {section: make(getattr(config, section), section) for section in PARTS}
    held_out = None if config.evaluation is None else config.evaluation.tasks
    evaluation = make(held_out, "evaluation.tasks")
    middleware = tuple((part.name, make(part, "middleware")) for part in config.middleware)
    names = numbered(part.name for part in config.scorers)
    scorers = tuple(zip(names, [make(p, "scorers") for p in config.scorers], strict=True))
    observers = tuple(make(observer, "observers") for observer in config.observers)
    if problems:
        raise InputError(problems)
    parts = Parts(
        **built,
        evaluation=evaluation,
        middleware=middleware,
        scorers=scorers,
        observers=observers,
    )
    check_scorers(parts.scorers, parts.credit)
    if parts.starts is not None and not isinstance(parts.llm, Policy):
        message = "start schemes need a model whose answers can be forced"
        expected = "a section 'llm' whose model is trained in this run, such as {type: policy}"
        raise InputError.of(message, path="starts", expected=expected)
    if parts.trainer is not None:
        _check_critic(parts.credit, parts.trainer)
        parts.trainer.attach(parts.llm)
    return parts


def numbered(names: Iterable[str]) -> list[str]:
    """Names of scorers: the second of a type is ``judge-2``."""
    seen: Counter[str] = Counter()
    made = []
    for name in names:
        seen[name] += 1
        made.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return made


def check_scorers(
    scorers: Sequence[tuple[str, StepScorer]],
    credit: CreditScheme | None,
    known: Iterable[str] = (),
) -> None:
    """Refuse a scorer or a credit scheme that reads scores that nobody gives before it.

    Args:
        known: scorers whose scores there are already.
    """
    known = [*known]
    problems = []
    for path, name, part in (
        *(("scorers", name, scorer) for name, scorer in scorers),
        ("credit", None, credit),
    ):
        reads: Sequence[str] = part.reads if isinstance(part, ReadsScores) else ()
        for wanted in reads:
            if wanted in (*known, FEEDBACK):  # feedback comes from outside
                continue
            message = f"{name or 'the credit scheme'} reads the scores of '{wanted}'"
            expected = "in section 'scorers', before it: " + (", ".join(known) or "there is none")
            hint = nearest(wanted, known)
            problems.append(Problem(message=message, path=path, expected=expected, hint=hint))
        known += [] if name is None else [name]
    if problems:
        raise InputError(problems)


def _check_critic(credit: CreditScheme | None, trainer: Trainer) -> None:
    """Refuse a critic without credit for it (useless), and credit for a critic without one."""
    needed = isinstance(credit, CriticCredit)
    given = isinstance(trainer, CriticTrainer) and trainer.has_critic
    if needed and not given:
        message = "this credit scheme needs the values of a critic, and the trainer has none"
        hint = "trainer: {type: policy, critic: {type: head}, ...}"
        raise InputError.of(message, path="credit.type", hint=hint)
    if given and not needed:
        message = "the trainer has a critic, and the credit scheme does not use its values"
        hint = "credit: {type: gae}; or no critic"
        raise InputError.of(message, path="trainer.critic", hint=hint)


def read_tasks(parts: Parts, registry: Registry, context: BuildContext) -> Tasks:
    """Load every task and build its criteria.

    Raises:
        InputError: with every problem of every task.
    """
    held_out = parts.evaluation
    train = _read_tasks(parts.tasks, "tasks", registry, context)
    evaluation: Sequence[PreparedTask] = ()
    if held_out is not None:
        evaluation = _read_tasks(held_out, "evaluation.tasks", registry, context)
    return {"train": train, "evaluation": evaluation}


def missing_features(task: Task, backend: SandboxBackend) -> list[Problem]:
    """Features that a task or one of its steps requires and the sandboxes lack."""
    required: set[str] = set()
    provided: set[str] = {*backend.capabilities.features}
    if backend.capabilities.filesystem_isolation:
        provided.add(_OWN_FILES)
    for part in (task, *task.steps):
        required |= {*part.environment.requires}
        if part.environment.agent_user is not None:
            required.add("agent-user")
        if part.environment.own_files:
            required.add(_OWN_FILES)
    lacking = ", ".join(sorted(required - provided))
    if not lacking:
        return []
    message = f"task '{task.id}' requires of its sandbox: {lacking}; '{backend.name}' lacks this"
    hint = "use a sandbox that has it, or leave the task out"
    return [Problem(message=message, file=task.origin or None, path="sandbox", hint=hint)]


def _read_tasks(
    source: TaskSource, section: str, registry: Registry, context: BuildContext
) -> Sequence[PreparedTask]:
    """The tasks of one source, chosen by a section of the config.

    Raises:
        InputError: with every problem of every task.
    """
    problems = Problems()
    prepared: list[PreparedTask] = []
    origins: dict[str, str] = {}
    try:
        for task in _loaded(source):
            if task.id in origins:
                first = f", first in {origins[task.id]}" if origins[task.id] else ""
                message = f"duplicate task id '{task.id}'{first}"
                problems.found.append(Problem(message=message, file=task.origin or None))
            origins[task.id] = task.origin
            prepared.append(problems.collect(partial(prepare, task, registry, context)))
    except InputError as error:
        problems.found += [_in_section(section, problem) for problem in error.problems]
    if not origins and not problems.found:
        problems.found.append(Problem(message="there is no task to run", path=section))
    problems.raise_all()
    return prepared


def _in_section(section: str, problem: Problem) -> Problem:
    """A source's problem with its options, with the section added to its path."""
    if problem.file is not None:
        return problem
    option = (problem.path or "").removeprefix("tasks").lstrip(".")
    return evolve(problem, path=f"{section}.{option}" if option else section)


def _loaded(source: TaskSource) -> Iterator[Task]:
    """The source's tasks one by one; its exceptions become an `InputError`."""
    try:
        for task in source.load():
            yield _as_task(task)
    except InputError:
        raise
    except Exception as error:
        message = f"the task source failed:\n{stack_trace(error)}"
        raise InputError.of(message, path="tasks") from error


def _as_task(loaded: object) -> Task:
    if not isinstance(loaded, Task):
        raise InputError.of(f"the task source returned {loaded!r}, not a Task", path="tasks")
    return loaded


def prepare(task: Task, registry: Registry, context: BuildContext) -> PreparedTask:
    """Build a task's criteria. Raises `InputError` with every problem."""
    if task.steps:
        steps = tuple(prepare(step, registry, context) for step in task.steps)
        return PreparedTask(task=task, criteria=(), steps=steps)
    if not task.criteria:
        message = f"task '{task.id}' has no criteria, so it can't be graded"
        raise InputError.of(message, file=task.origin or None)
    problems = Problems()
    criteria: list[tuple[CriterionSpec, Criterion]] = []
    for number, spec in enumerate(task.criteria):
        if not 0 < spec.weight < math.inf:
            message = f"expected a weight above 0, found {spec.weight:g}"
            path = f"success_criteria[{number}].weight"
            problem = Problem(message=message, file=spec.file, line=spec.line, path=path)
            problems.found.append(problem)
        made = problems.collect(partial(_located_criterion, task, number, registry, context))
        criteria.append((spec, made))
    problems.raise_all()
    return PreparedTask(task=task, criteria=tuple(criteria))


def _located_criterion(
    task: Task, number: int, registry: Registry, context: BuildContext
) -> Criterion:
    """Build a criterion. A problem with an option has the option's own line, where it is known."""
    try:
        return _criterion(task, number, registry, context)
    except InputError as error:
        written = _written(task.criteria[number], number)
        if written is None:
            raise
        raise InputError([_at_option(each, written) for each in error.problems]) from error


def _written(spec: CriterionSpec, number: int) -> Node | None:
    """The criterion in its task file, if that is YAML and as it was read: a spec has one line."""
    if spec.file is None or Path(spec.file).suffix not in (".yaml", ".yml"):
        return None
    try:
        entries = read_yaml(Path(spec.file)).get("success_criteria")
    except InputError:
        return None
    items = [] if entries is None else entries.items or []
    return next((item for item in items[number : number + 1] if item.line == spec.line), None)


def _at_option(problem: Problem, criterion: Node) -> Problem:
    option = (problem.path or "").partition("].")[2]
    node = criterion.get(re.split(r"[.\[]", option)[0])
    if node is None or problem.file != node.file:  # such as a file that the option names
        return problem
    return evolve(problem, line=node.line)


def _criterion(task: Task, number: int, registry: Registry, context: BuildContext) -> Criterion:
    spec, path = task.criteria[number], f"success_criteria[{number}]"
    node = from_plain({**spec.options, "type": spec.type}, file=spec.file, line=spec.line)
    selected = select(node, "criterion", registry, path=path)
    try:
        criterion: Criterion = build(selected, context)
    except InputError as error:
        raise InputError(
            [_located(problem, task, spec, path) for problem in error.problems]
        ) from error
    return criterion


def _located(problem: Problem, task: Task, spec: CriterionSpec, path: str) -> Problem:
    """A problem with the task and the line of the criterion that has it."""
    message = f"task '{task.id}': {problem.message}"
    if problem.file is not None:
        return evolve(problem, message=message)
    return evolve(
        problem, message=message, file=spec.file, line=spec.line, path=problem.path or path
    )
