"""`ale.run` and `ale.resume`: a run from Python, with the caller's objects as components.

The command line and `ale.learning` carry out their runs here too.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from ale._config import RunConfig, load_tree, part_values
from ale._config.load import SECTIONS, select
from ale._config.model import PARTS
from ale._config.source import merge, override, read_source
from ale._registry import GIVEN, Registry
from ale._run.interrupt import Interrupt
from ale._run.parts import build
from ale._run.run import Run
from ale._run.start import (
    Host,
    Prepared,
    check_resumed,
    check_run,
    closing_parts,
    start_checked,
)
from ale._run.start import resume as open_run
from ale._store import RunReader
from ale.errors import InputError, PluginError
from ale.functions import KINDS, Function, function_of, made
from ale.plugin import BuildContext, Component, doc
from ale.protocols import TaskSource
from ale.strict import Node, from_plain, nearest
from ale.text import tell
from ale.types import CriterionSpec, RunFinished, Task, replace

__all__ = ["aresume", "arun", "carry_out", "resume", "run"]

_CRITERIA = "criteria"
_LISTS = {
    "middleware": "middleware",
    "scorers": "scorer",
    "observers": "observer",
    _CRITERIA: "criterion",
}
"""Sections that are lists, and the kind of their items."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Config = str | os.PathLike[str] | Mapping[str, Any] | RunConfig


async def carry_out(
    starting: Coroutine[Any, Any, Run], begun: Callable[[Run], Run] = lambda run: run
) -> tuple[Run, RunFinished]:
    """Start a run, execute it to its end, and close its parts.

    Args:
        starting: `start_checked` or `check_resumed`.
        begun: is given the run before its first episode; may change it.
    """
    run = begun(await starting)
    async with closing_parts(run):
        return run, await run.execute()


def run(
    config: Config,
    overrides: Mapping[str, Any] | None = None,
    *,
    directory: str | os.PathLike[str] | None = None,
    report: Callable[[str], None] | None = None,
) -> RunReader:
    """Run a config as `ale run` does, and return the finished run.

    Anything that the config selects by a ``type`` may be an object instead: a function, with or
    without its decorator (`ale.criterion`, `ale.credit`, `ale.agent`, `ale.tasks`, `ale.chunker`),
    an object of the protocol, or for tasks a list of `ale.Task`; as the section itself or as its
    ``type``, with options beside it. An option that selects a component, such as a trainer's
    ``objective``, may be a decorated function (`ale.objective`). The key ``criteria`` is a list of
    criteria that grade every task in place of its own. ``plugins`` may hold decorated functions
    beside paths.

    The first Ctrl-C lets the running episodes end, the second cancels them; the run is returned in
    both cases, and its `RunReader.state` says which. Inside a running event loop, as in a notebook,
    it runs in a thread with a loop of its own, and the calling loop waits; use `arun` for one that
    must continue.

    Args:
        config: path of a YAML file; or a mapping of the same keys, whose paths are relative to the
            working folder; or a checked config.
        overrides: values by dotted keys, as for ``--set``: ``{"credit.type": "grpo"}``.
        directory: the run directory to create; default: made from the run's name, as by `ale run`.
        report: shows a note to the user; default: on stderr.

    Raises:
        InputError: with every problem; nothing was started.
        StoreError: the run can't be stored.
    """
    host = _host(report)
    return _blocking(partial(_arun, config, overrides, directory, host), host.interrupt)


async def arun(
    config: Config,
    overrides: Mapping[str, Any] | None = None,
    *,
    directory: str | os.PathLike[str] | None = None,
    report: Callable[[str], None] | None = None,
) -> RunReader:
    """Run a config in the running event loop; otherwise as `run`.

    In the main thread it handles SIGINT, SIGTERM and SIGHUP until it returns.
    """
    with _handlers_kept():
        return (await _arun(config, overrides, directory, _host(report)))[1]


def resume(
    directory: str | os.PathLike[str],
    objects: Mapping[str, Any] | None = None,
    *,
    retry_broken: bool = False,
    report: Callable[[str], None] | None = None,
) -> RunReader:
    """Do what is missing of a stored run, as ``ale run --resume`` does, and return the run.

    Args:
        directory: of the run.
        objects: what the run was given in place of components, by section, as to `run`; a list of
            tasks is stored and need not be given again.
        retry_broken: sample the broken episodes again, in a run without a trainer.
        report: shows a note to the user; default: on stderr.

    Raises:
        InputError: it is no run; or a component is missing, such as an object that is not given.
        StoreError: a live process is writing to it.
    """
    host = _host(report)
    resumed = partial(_aresume, directory, objects, host, retry_broken=retry_broken)
    return _blocking(resumed, host.interrupt)


async def aresume(
    directory: str | os.PathLike[str],
    objects: Mapping[str, Any] | None = None,
    *,
    retry_broken: bool = False,
    report: Callable[[str], None] | None = None,
) -> RunReader:
    """Do what is missing of a stored run in the running event loop; otherwise as `resume`."""
    with _handlers_kept():
        host = _host(report)
        return (await _aresume(directory, objects, host, retry_broken=retry_broken))[1]


def _host(report: Callable[[str], None] | None) -> Host:
    said = report or tell
    return Host(registry=Registry.installed(), interrupt=Interrupt(show=said), report=said)


async def _arun(
    config: Config,
    overrides: Mapping[str, Any] | None,
    directory: str | os.PathLike[str] | None,
    host: Host,
) -> tuple[Run, RunReader]:
    ready = _ready(config, overrides, directory, host)
    for note in ready.notes:
        host.report(note)
    run, _ = await carry_out(start_checked(ready, host))
    return run, RunReader(run.store.path)


async def _aresume(
    directory: str | os.PathLike[str],
    objects: Mapping[str, Any] | None,
    host: Host,
    *,
    retry_broken: bool,
) -> tuple[Run, RunReader]:
    given = _Given(host.registry)
    given.tree(objects or {})
    given.register()
    resumed = open_run(Path(directory), host, retry_broken=retry_broken)
    run, _ = await carry_out(check_resumed(resumed))
    return run, RunReader(run.store.path)


def _ready(
    config: Config,
    overrides: Mapping[str, Any] | None,
    directory: str | os.PathLike[str] | None,
    host: Host,
) -> Prepared:
    """The checked run of a config."""
    given = _Given(host.registry)
    root, name = _tree(config, given)
    changed = Node({}, "overrides")
    for key, value in (overrides or {}).items():
        changed = merge(changed, override(key, given.override(key, value), "overrides"))
    given.register()
    criteria = (changed.get(_CRITERIA) or root.get(_CRITERIA)) if given.has_criteria else None
    loaded = load_tree(
        _without(root, _CRITERIA) if isinstance(config, Mapping) else root,
        _without(changed, _CRITERIA),
        host.registry,
        then=partial(_graded, criteria=criteria, registry=host.registry),
    )
    if isinstance(config, RunConfig):
        loaded = evolve(loaded, environ=config.environ, environ_source=config.environ_source)
    ready = check_run(loaded, name, host, None if directory is None else Path(directory))
    used = [each.component.name for each in given.functions if each.kind != "objective"]
    if used and ready.parts.executor.remote:
        names = ", ".join(sorted(used))
        raise InputError.of(
            f"episodes of this executor run in other processes, which don't have {names}",
            path="executor.type",
            hint="executor: {type: local}; or write them into a file and name it under 'plugins'",
        )
    return ready


def _tree(config: Config, given: "_Given") -> tuple[Node, str]:
    """The tree of a config, and a name for its run."""
    if isinstance(config, RunConfig):
        return config.source or from_plain(config.resolved), GIVEN
    if isinstance(config, Mapping):
        return from_plain(given.tree(config)), GIVEN
    if not isinstance(config, str | os.PathLike):
        expected = "a path, a mapping or a RunConfig"
        raise InputError.of(f"expected {expected}, found {config!r}")
    path = Path(config)
    return read_source(path), path.stem


def _without(node: Node, key: str) -> Node:
    return evolve(node, value={k: v for k, v in (node.mapping or {}).items() if k != key})


@frozen(kw_only=True)
class GradedOptions:
    """Tasks of another source, with other criteria."""

    tasks: Mapping[str, Any] = field(metadata=doc("The task source, as in the section 'tasks'."))
    criteria: tuple[Mapping[str, Any], ...] = field(
        metadata=doc("Criteria in place of the tasks' own.")
    )


@frozen
class _GradedTasks:
    """The tasks of a source with other criteria."""

    source: TaskSource
    criteria: tuple[CriterionSpec, ...]

    def load(self) -> Iterator[Task]:
        """The source's tasks, in its order."""
        for task in self.source.load():
            yield self._graded(task)

    def _graded(self, task: Task) -> Task:
        return replace(
            task, criteria=self.criteria, steps=tuple(self._graded(step) for step in task.steps)
        )


def _graded(root: Node, *, criteria: Node | None, registry: Registry) -> Node:
    """A config whose tasks are graded by these criteria."""
    if criteria is None:
        return root
    assert root.mapping is not None
    wrapped = dict(root.mapping)
    if tasks := root.get("tasks"):
        wrapped["tasks"] = _graded_by(tasks, criteria, registry, "tasks")
    held_out = root.get("evaluation")
    if held_out is not None and held_out.mapping and (tasks := held_out.get("tasks")):
        inner = _graded_by(tasks, criteria, registry, "evaluation.tasks")
        wrapped["evaluation"] = evolve(held_out, value={**held_out.mapping, "tasks": inner})
    return evolve(root, value=wrapped)


def _graded_by(tasks: Node, criteria: Node, registry: Registry, path: str) -> Node:
    inner = part_values(select(tasks, "tasks", registry, path=path))
    values = {"type": f"{GIVEN}/graded", "tasks": inner, "criteria": criteria.plain()}
    return from_plain(values, file=tasks.file, line=tasks.line)


class _Given:
    """The objects that a caller gives in place of components."""

    def __init__(self, registry: Registry) -> None:
        self.functions: list[Function] = []
        self.has_criteria = False
        self._registry = registry

    def register(self) -> None:
        """Register them, and what stands for lists of tasks and for criteria of the caller's."""
        own = [_graded_component(self._registry)]
        if not any(each.component.name == "tasks" for each in self.functions):
            own.append(_listed(None))
        self._registry.add_functions([*self.functions, *own], GIVEN)

    def tree(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """A config of plain values, in which each object is the name that it is registered by."""
        return {str(key): self._section(str(key), value) for key, value in config.items()}

    def override(self, key: str, value: Any) -> Any:
        """The plain value of an override."""
        section, _, option = key.partition(".")
        if option == "type" and section in PARTS:
            return self._selected(section, {"type": value})["type"]
        if key == "evaluation.tasks":
            return self._selected("tasks", value)
        return _plain(self._named_in(value), key) if option else self._section(section, value)

    def _section(self, key: str, value: Any) -> Any:
        if key == "plugins":
            return self._plugins(value)
        if key == "evaluation" and isinstance(value, Mapping) and "tasks" in value:
            return {
                **_plain({**value, "tasks": None}, key),
                "tasks": self._selected("tasks", value["tasks"]),
            }
        if key in _LISTS:
            self.has_criteria |= key == _CRITERIA
            if not isinstance(value, list | tuple):
                message = f"expected a list, found {value!r}"
                raise InputError.of(message, path=key)
            return [self._selected(_LISTS[key], each) for each in value]
        return self._selected(key, value) if key in PARTS else _plain(value, key)

    def _plugins(self, value: Any) -> list[Any]:
        """The paths; decorated functions are registered."""
        paths = []
        for each in value if isinstance(value, list | tuple) else [value]:
            function = function_of(each)
            if function is not None:
                self._add(function)
            elif callable(each):
                message = f"{each!r} has no decorator, such as @ale.criterion, to say what it is"
                raise InputError.of(message, path="plugins")
            else:
                paths.append(_plain(each, "plugins"))
        return paths

    def _selected(self, kind: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            type_ = value.get("type")
            options = {key: each for key, each in value.items() if key != "type"}
            rest = _plain(self._named_in(options), kind)
            named = {} if "type" not in value else {"type": self._name(kind, type_)}
            return {**named, **rest}
        if value is None or isinstance(value, str | int | float):
            return value
        return {"type": self._name(kind, value)}

    def _named_in(self, options: Any) -> Any:
        """Options in which each decorated function is the name that it is registered by."""
        if isinstance(options, Mapping):
            return {key: self._named_in(each) for key, each in options.items()}
        function = function_of(options)
        return options if function is None else self._name(function.kind, options)

    def _name(self, kind: str, value: Any) -> Any:
        """The name that an object is registered by; a name stays as it is."""
        if value is None or isinstance(value, str | int | float):
            return value
        return f"{GIVEN}/{self._add(self._function(kind, value)).component.name}"

    def _function(self, kind: str, value: Any) -> Function:
        if kind == "tasks" and isinstance(value, list | tuple):
            return _listed(value)
        decorated = function_of(value)
        if decorated is not None and decorated.kind != kind:
            message = f"{value.__name__} is registered as {decorated.kind}, not as {kind}"
            raise InputError.of(message, path=kind)
        if decorated is not None:
            return decorated
        if isinstance(value, type):
            message = f"expected an object, found the class {value.__qualname__}: call it"
            raise InputError.of(message, path=kind)
        if callable(value) and hasattr(value, "__code__"):
            return _of_function(kind, value)
        name = type(value).__name__
        summary = f"An object of {name}."
        component = Component[Any, Any](name, None, lambda options, context: value, summary=summary)
        return Function(kind=kind, component=component)

    def _add(self, function: Function) -> Function:
        known = {(each.kind, each.component.name): each for each in self.functions}
        same = known.get((function.kind, function.component.name))
        if same is None:
            self.functions.append(function)
        elif same is not function:
            name = function.component.name
            message = f"two objects are named '{name}': decorate one, as with @ale.{function.kind}"
            raise InputError.of(f"{message}('other')", path=function.kind)
        return function


def _of_function(kind: str, function: Any) -> Function:
    if kind not in KINDS:
        message = f"a function can't be a component of this kind; only of {', '.join(KINDS)}"
        raise InputError.of(message, path=kind)
    try:
        return made(kind, function)
    except PluginError as error:
        raise InputError.of(str(error), path=kind) from error


def _listed(tasks: Sequence[Any] | None) -> Function:
    """A list of tasks as a component; None for that of a stored run, which has them itself."""

    class Listed:
        def load(self) -> Sequence[Task]:
            if tasks is None:
                raise InputError.of("give the run's list of tasks again, as 'tasks'", path="tasks")
            return tasks

    summary = "A list of tasks."
    component = Component[Any, Any]("tasks", None, lambda o, c: Listed(), summary=summary)
    return Function(kind="tasks", component=component)


def _graded_component(registry: Registry) -> Function:
    def make(options: GradedOptions, context: BuildContext) -> TaskSource:
        source = build(select(from_plain(options.tasks), "tasks", registry, path="tasks"), context)
        return _GradedTasks(source, tuple(map(_spec, options.criteria)))

    summary = "Tasks of another source, with other criteria."
    component = Component[Any, Any]("graded", GradedOptions, make, summary=summary)
    return Function(kind="tasks", component=component)


def _spec(criterion: Mapping[str, Any]) -> CriterionSpec:
    """A criterion as a task has it.

    Raises:
        InputError: it has no type.
    """
    if not isinstance(criterion.get("type"), str):
        message = "expected a criterion with a type"
        raise InputError.of(message, path=_CRITERIA, hint="criteria: [{type: ...}], or a function")
    options = {key: each for key, each in criterion.items() if key not in ("type", "weight")}
    weight = criterion.get("weight", 1.0)
    if not isinstance(weight, int | float):
        raise InputError.of(f"expected a number as weight, found {weight!r}", path=_CRITERIA)
    return CriterionSpec(type=criterion["type"], options=options, weight=weight)


def _plain(value: Any, path: str) -> Any:
    """A value as YAML could have it.

    Raises:
        InputError: an object stands where an option does.
    """
    if isinstance(value, Mapping):
        return {str(key): _plain(each, f"{path}.{key}") for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, f"{path}[{i}]") for i, each in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    hint = nearest(path.partition(".")[0], [*SECTIONS, _CRITERIA]) if "." not in path else None
    raise InputError.of(
        f"expected a plain value, found an object of {type(value).__name__}", path=path, hint=hint
    )


def _blocking(
    work: Callable[[], Coroutine[Any, Any, tuple[Run, RunReader]]], interrupt: Interrupt
) -> RunReader:
    """Carry out a run from code that is not asynchronous."""
    if _looping():
        return _in_thread(work, interrupt)
    with _handlers_kept():
        return _in_own_loop(work)


def _looping() -> bool:
    """Is an event loop running in this thread?"""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_own_loop(work: Callable[[], Coroutine[Any, Any, tuple[Run, RunReader]]]) -> RunReader:
    runner = asyncio.Runner()
    ran: Run | None = None
    try:
        ran, finished = runner.run(work())
    finally:
        # A plugin that keeps running although it was cancelled: closing would wait for it for ever.
        if ran is None or all(task.done() for task in ran.supervisor.abandoned):
            runner.close()
    return finished


def _in_thread(
    work: Callable[[], Coroutine[Any, Any, tuple[Run, RunReader]]], interrupt: Interrupt
) -> RunReader:
    """Run in a thread, since this one's event loop is running; the signals are this one's still."""
    results: list[RunReader] = []
    errors: list[BaseException] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def working() -> tuple[Run, RunReader]:
        loops.append(asyncio.get_running_loop())
        return await work()

    def target() -> None:
        try:
            results.append(_in_own_loop(working))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=target, name="ale.run", daemon=True)
    with _handlers_kept():
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, _passing(loops, interrupt.on_interrupt))
            signal.signal(signal.SIGTERM, _passing(loops, interrupt.on_terminate))
        thread.start()
        thread.join()
    for error in errors:
        raise error
    return results[0]


def _passing(
    loops: Sequence[asyncio.AbstractEventLoop], act: Callable[[], None]
) -> Callable[[int, object], None]:
    """A handler of a signal that acts in another thread's loop, once there is one."""

    def handler(number: int, frame: object) -> None:
        for loop in loops:
            loop.call_soon_threadsafe(act)

    return handler


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Restore the process's handlers of signals after the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # not one that Python has not set
                signal.signal(number, handler)
