"""Make a run ready: build and check everything first, then make or open its directory."""

import os
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from ale._config import RunConfig, environ_again, structure_config
from ale._registry import Registry
from ale._run.interrupt import Interrupt
from ale._run.manifest import describe_run, run_id_for
from ale._run.parts import Parts, Tasks, build_parts, prepare, read_tasks
from ale._run.plan import starts_of_step
from ale._run.run import Run
from ale._run.waiting import UNWIND_S
from ale._store import Redactor, RunDirectory, RunReader
from ale._store.codec import encode
from ale.errors import InputError, Problem
from ale.plugin import BuildContext
from ale.protocols import RestoringScheme
from ale.strict import from_plain
from ale.types import Split, Task


@frozen(kw_only=True)
class Surroundings:
    """What a run takes from outside its config; tests put their own clocks and ids here."""

    registry: Registry = field(repr=False)
    environ: Mapping[str, str] = field(factory=lambda: dict(os.environ), repr=False)
    interrupt: Interrupt = field(factory=Interrupt)
    report: Callable[[str], None] = field(default=lambda text: print(text, file=sys.stderr))
    clocks: Mapping[str, Any] = field(factory=dict)
    """`clock`, `monotonic` and `new_id` for `BuildContext`, where they are not the real ones."""

    def context(self, config: RunConfig, path: Path, run_id: str) -> BuildContext:
        """What this run's parts are built with."""
        return BuildContext(
            seed=config.run.seed,
            run_id=run_id,
            run_directory=path,
            staleness=config.run.staleness,
            tags={"run": run_id},
            environ={**self.environ, **config.environ},
            **self.clocks,
        )

    def redactor(self, config: RunConfig) -> Redactor:
        """Knows every secret that the environment and the config name."""
        environ = {**self.environ, **config.environ}
        return Redactor(environ, _secret_names(config.resolved))


def _secret_names(value: Any) -> Iterator[str]:
    """Variables named by options such as ``api_key_env``."""
    if isinstance(value, dict):
        for key, child in value.items():
            if key.endswith("_env") and isinstance(child, str):
                yield child
            yield from _secret_names(child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _secret_names(child)


@frozen(kw_only=True)
class Prepared:
    """A checked run that has not been given a directory yet."""

    config: RunConfig
    parts: Parts
    tasks: Tasks
    context: BuildContext
    path: Path


def check_run(config: RunConfig, name: str, outside: Surroundings) -> Prepared:
    """Build every part and read every task; nothing is written and nothing is opened.

    Raises:
        InputError: with every problem.
    """
    bare = BuildContext(**outside.clocks)
    run_id = run_id_for(config.run.name or name, bare.clock(), bare.new_id())
    path = (config.run.directory or Path.cwd() / "runs") / run_id
    context = outside.context(config, path, run_id)
    parts = build_parts(config, context)
    tasks = read_tasks(parts, outside.registry, context)
    _refuse_secrets(config, tasks, outside.redactor(config))
    if parts.starts is not None:  # what the scheme can't do with these tasks is said before all
        starts_of_step(tasks["train"], config.run, 0, parts.starts)
    return Prepared(config=config, parts=parts, tasks=tasks, context=context, path=path)


def _refuse_secrets(config: RunConfig, tasks: Tasks, redactor: Redactor) -> None:
    """What a run is resumed from must be stored as it is, so it must hold nothing to be masked.

    Raises:
        InputError: the config or a task contains a secret of the environment.
    """
    stored: list[tuple[str, str | None, bytes]] = [("the config", None, encode(config.resolved))]
    for ready in (*tasks["train"], *tasks["evaluation"]):
        task = ready.task
        stored.append((f"task '{task.id}'", task.origin or None, encode(task)))
    problems = [
        Problem(
            message=f"{what} contains the value of the variable {name}, which is a secret",
            file=file,
            hint="name the variable instead; if it is no secret, give it another name",
        )
        for what, file, data in stored
        if (name := redactor.variable_in(data)) is not None
    ]
    if problems:
        raise InputError(problems)


def start(ready: Prepared, outside: Surroundings) -> Run:
    """Give a checked run its directory.

    Raises:
        StoreError: it can't be made.
    """
    manifest = describe_run(
        ready.config,
        outside.registry,
        ready.parts,
        run_id=ready.context.run_id,
        clock=ready.context.clock(),
        tasks=ready.tasks,
    )
    store = RunDirectory.create(ready.path, manifest, outside.redactor(ready.config))
    for split, tasks in ready.tasks.items():
        for prepared in tasks:
            store.add_task(prepared.task, split)
    return _run(ready, store, outside)


def resume(path: Path, outside: Surroundings, concurrency: int | None = None) -> Run:
    """Go on with a stored run, by its own config and its own tasks.

    Raises:
        InputError: it is no run, or a part of it can't be built here any more.
        StoreError: a live process is writing to it.
    """
    path = path.resolve()
    reader = RunReader(path)
    node = from_plain(reader.manifest["config"], file=str(path / "manifest.json"))
    config = structure_config(node, outside.registry)
    source = reader.manifest.get("environ_source")
    again = environ_again(source, outside.registry)
    unset = {name: value for name, value in again.items() if name not in outside.environ}
    config = evolve(config, environ=unset, environ_source=source)
    if concurrency is not None:
        config = evolve(config, run=evolve(config.run, concurrency=concurrency))
    # A directory that was moved or renamed is still the same run.
    context = outside.context(config, path, str(reader.manifest["run_id"]))
    parts = build_parts(config, context)
    store = RunDirectory.resume(path, outside.redactor(config))
    try:
        tasks = _stored_tasks(store, parts, outside, context)
    except BaseException:
        store.close()
        raise
    ready = Prepared(config=config, parts=parts, tasks=tasks, context=context, path=path)
    return _run(ready, store, outside)


def _stored_tasks(
    store: RunDirectory, parts: Parts, outside: Surroundings, context: BuildContext
) -> Tasks:
    """The run's own tasks, whatever has become of their files; read again only if some lack."""
    reader, manifest = store.reader, store.reader.manifest
    stored: dict[Split, list[Task]] = {
        "train": list(reader.tasks),
        "evaluation": list(reader.evaluation_tasks),
    }
    expected = [manifest.get("n_tasks"), manifest.get("n_evaluation_tasks", 0)]
    if [len(tasks) for tasks in stored.values()] == expected:
        return {
            split: [prepare(task, outside.registry, context) for task in tasks]
            for split, tasks in stored.items()
        }
    # It was killed while it wrote them down, before its first episode.
    read = read_tasks(parts, outside.registry, context)
    found = [len(tasks) for tasks in read.values()]
    if found != expected:
        message = f"the run has {expected} tasks, but its sources now give {found}"
        raise InputError([Problem(message=message, file=str(store.path / "tasks.jsonl"))])
    for split, tasks in read.items():
        known = {task.id for task in stored[split]}
        for ready in tasks:
            if ready.task.id not in known:
                store.add_task(ready.task, split)
    return read


def _run(ready: Prepared, store: RunDirectory, outside: Surroundings) -> Run:
    return Run(
        config=ready.config,
        registry=outside.registry,
        parts=ready.parts,
        tasks=ready.tasks,
        store=store,
        context=ready.context,
        interrupt=outside.interrupt,
        report=outside.report,
    )


@asynccontextmanager
async def held(run: Run) -> AsyncIterator[Run]:
    """Let go of everything that the run's parts hold, however it ends."""
    try:
        yield run
    finally:
        run.store.close()
        if run.parts.llm is not None:
            await _let_go(run, "llm", run.parts.llm.aclose())
        if isinstance(run.parts.starts, RestoringScheme):
            await _let_go(run, "starts", run.parts.starts.aclose())
        await _let_go(run, "sandbox", run.parts.backend.aclose())


async def _let_go(run: Run, part: str, closing: Coroutine[Any, Any, None]) -> None:
    try:
        await run.waiting.result(closing, UNWIND_S, f"closing the {part}")
    except Exception:
        run.report(f"the {part} could not be closed:\n{traceback.format_exc()}")
