"""Prepare a run: build and check everything, then create or open its directory."""

import os
import random
import time
import traceback
from collections import deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from ale._config import RunConfig, reload_environ, structure_config
from ale._config.plugin_files import changed_files
from ale._config.source import merge, parse_overrides
from ale._registry import Registry
from ale._run.dispatch import remote_problems
from ale._run.fingerprint import trained_too
from ale._run.interrupt import Interrupt
from ale._run.keeping import check_keeping
from ale._run.manifest import (
    FOR_THIS_TIME,
    Change,
    changed_versions,
    changes,
    has_results,
    host_facts,
    refused,
    run_id_for,
    versions,
    with_changes,
)
from ale._run.parts import Parts, Tasks, WorkerParts, build_parts, prepare, read_tasks
from ale._run.plan import refill_problems, starts_of_step
from ale._run.preflight import (
    check_tasks,
    explain,
    idle_notes,
    is_complete,
    isolation_notes,
    preflight,
)
from ale._run.run import Run
from ale._run.schedule import exceeds_staleness, stream_problems
from ale._run.spending import price_problems
from ale._run.timeouts import CLEANUP_S, Supervisor
from ale._run.watching import rule_problems
from ale._store import Redactor, RunDirectory, RunReader
from ale._store.codec import encode
from ale.errors import AleError, InputError, Problem
from ale.plugin import BuildContext
from ale.protocols import (
    ComparesRollouts,
    IgnoresDemonstrations,
    ObjectiveFacts,
    RestoringScheme,
    Start,
)
from ale.strict import from_plain
from ale.text import counted, tell
from ale.types import Split, Task


@frozen(kw_only=True)
class Host:
    """Everything that a run needs besides its config; tests pass their own clocks and ids."""

    registry: Registry = field(repr=False)
    environ: Mapping[str, str] = field(factory=lambda: dict(os.environ), repr=False)
    interrupt: Interrupt = field(factory=Interrupt)
    report: Callable[[str], None] = field(default=tell)
    clocks: Mapping[str, Any] = field(factory=dict)
    """`clock`, `monotonic` and `new_id` of `BuildContext`, to replace the real ones."""
    checking: bool = False
    """As of `BuildContext`."""

    def context(
        self, config: RunConfig, path: Path, run_id: str, created: str | None = None
    ) -> BuildContext:
        """The context to build this run's parts with.

        Args:
            config: the run's.
            path: its directory.
            run_id: its id.
            created: when it began, in ISO format; default: now.
        """
        clocks = seeded_clocks(config.run.seed) if config.run.deterministic else self.clocks
        now: Callable[[], float] = clocks.get("clock", time.time)
        return BuildContext(
            seed=config.run.seed,
            run_id=run_id,
            run_directory=path,
            created=now() if created is None else datetime.fromisoformat(created).timestamp(),
            staleness=config.run.staleness,
            exceeds_staleness=exceeds_staleness(config),
            checking=self.checking,
            tags={"run": run_id},
            environ={**self.environ, **config.environ},
            **clocks,
        )

    def redactor(self, config: RunConfig) -> Redactor:
        """Masks the secrets of the environment, and those that the config names."""
        environ = {**self.environ, **config.environ}
        return Redactor(environ, secret_names(config.resolved))


def seeded_clocks(seed: int) -> Mapping[str, Any]:
    """Clocks that stand still, and ids that depend only on the seed."""
    ids = random.Random(seed)  # noqa: S311 - not a secret
    return {
        "clock": lambda: 0.0,
        "monotonic": lambda: 0.0,
        "new_id": lambda: f"{ids.getrandbits(48):012x}",
    }


def secret_names(value: Any) -> Iterator[str]:
    """Names of the variables that options such as ``api_key_env`` give."""
    if isinstance(value, dict):
        for key, child in value.items():
            if key.endswith("_env") and isinstance(child, str):
                yield child
            yield from secret_names(child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from secret_names(child)


@frozen(kw_only=True)
class Prepared:
    """A checked run without a directory yet."""

    config: RunConfig
    parts: Parts
    tasks: Tasks
    context: BuildContext
    path: Path
    notes: tuple[str, ...] = ()
    """Notes for the user before the run starts, one line each."""
    given: bool = False
    """Its training episodes come from elsewhere (`ale.learning`); its tasks are not run."""
    objective: ObjectiveFacts | None = None
    """The trainer's facts about its objective in this run."""


def check_run(config: RunConfig, name: str, host: Host, directory: Path | None = None) -> Prepared:
    """Build every part and read every task, without writing anything or opening a sandbox.

    Args:
        name: part of the run's id, used if the config has no name.
        directory: the run directory, whose name then is the run's id; default: made from the id.

    Raises:
        InputError: with every problem.
    """
    try:
        return _checked(config, name, host, directory)
    except InputError as error:
        raise InputError([config.located(problem) for problem in error.problems]) from error


def _checked(config: RunConfig, name: str, host: Host, directory: Path | None) -> Prepared:
    if problems := [*refill_problems(config), *stream_problems(config), *price_problems(config)]:
        raise InputError(problems)
    bare = BuildContext(**host.clocks)
    run_id = run_id_for(config.run.name or name, bare.clock(), bare.new_id())
    path = (config.run.directory or Path.cwd() / "runs") / run_id
    if directory is not None:
        path = directory.absolute()
        run_id = path.name
    context = host.context(config, path, run_id)
    _check_place(path, "run.directory" if directory is None else None)
    parts = build_parts(config, context)
    problems = [*remote_problems(config, parts), *rule_problems(config, parts.trainer, context)]
    if problems:
        raise InputError(problems)
    tasks = read_tasks(parts, host.registry, context)
    check_tasks(config, parts.sandbox, tasks)
    _refuse_secrets(config, tasks, host.redactor(config))
    starts: Sequence[Start] = ()
    if parts.starts is not None:  # fail early if the scheme can't plan these tasks
        starts = starts_of_step(tasks["train"], config.run, 0, parts.starts)
        _check_demonstrations(parts, starts)
    objective = explain(parts, config.run.rollouts)
    notes = (
        *config.notes,
        *check_keeping(config, parts, tasks),
        *isolation_notes(config, parts.sandbox, tasks),
        *_lone_rollouts(config, parts, starts),
        *_trained_evaluation(parts, tasks),
        *idle_notes(objective),
    )
    return Prepared(
        config=config,
        parts=parts,
        tasks=tasks,
        context=context,
        path=path,
        notes=notes,
        objective=objective,
    )


def _check_demonstrations(parts: Parts, starts: Iterable[Start]) -> None:
    """Refuse demonstrations that nothing learns from."""
    if isinstance(parts.trainer, IgnoresDemonstrations) and any(s.demonstration for s in starts):
        raise InputError.of(
            "the run begins with demonstrations, and this trainer learns nothing from them: it "
            "learns from the policy's own answers alone",
            path="trainer.type",
            expected="a trainer that imitates, such as sft or policy; or no demonstrations",
            hint="starts.demonstrations: 0; what sft has learned can be the model of this run: "
            "ale model exports it",
        )


def _lone_rollouts(config: RunConfig, parts: Parts, starts: Iterable[Start]) -> list[str]:
    """Says that every group has one rollout, and a scheme that compares them gives it no credit.

    Args:
        starts: those of the first step, where a scheme plans them.
    """
    if parts.trainer is None or not isinstance(parts.credit, ComparesRollouts):
        return []
    assert config.credit is not None
    planned = {start.rollouts for start in starts if not start.demonstration}
    if max(planned or {config.run.rollouts}) > 1:
        return []
    return [
        f"credit '{config.credit.name}' compares the rollouts of a task from the same start, and "
        "each of them is the only one: every credit is 0, so that the trainer has nothing to "
        f"reinforce; raise run.rollouts, now {config.run.rollouts}"
    ]


def _trained_evaluation(parts: Parts, tasks: Tasks) -> list[str]:
    """Says that tasks of the evaluation are trained on too, whatever their names there."""
    evaluated = [ready.task for ready in tasks["evaluation"]]
    if parts.trainer is None or not evaluated:
        return []
    both = trained_too((ready.task for ready in tasks["train"]), evaluated)
    if not both:
        return []
    return [
        f"evaluation.tasks: {len(both)} of {counted(len(evaluated), 'task')} trained on too, such "
        f"as {both[0].id}: success there does not show what holds for new tasks"
    ]


def _check_place(path: Path, option: str | None) -> None:
    """Refuse a run directory at or below something that is not a folder.

    Raises:
        InputError: with the option that names it, if one does.
    """
    # `Path.exists` raises where a folder may not be looked into.
    there = next(each for each in (path, *path.parents) if os.path.exists(each))  # noqa: PTH110
    if not there.is_dir():
        message = f"the run can't be stored in {path}: {there} is not a folder"
        raise InputError.of(message, path=option)


def _refuse_secrets(config: RunConfig, tasks: Tasks, redactor: Redactor) -> None:
    """Config and tasks are needed unmasked to resume a run, so they must contain no secrets.

    Raises:
        InputError: the config or a task contains a secret of the environment.
    """
    stored: list[tuple[str, str | None, bytes]] = [("the config", None, encode(config.resolved))]
    for prepared in (*tasks["train"], *tasks["evaluation"]):
        task = prepared.task
        stored.append((f"task '{task.id}'", task.origin or None, encode(task)))
    problems = [
        Problem(
            message=f"{what} contains the value of the variable {name}, which is a secret",
            file=file,
            hint="name the variable instead; if it is not a secret, rename the variable",
        )
        for what, file, data in stored
        if (name := redactor.variable_in(data)) is not None
    ]
    if problems:
        raise InputError(problems)


def start(ready: Prepared, host: Host) -> Run:
    """Create the directory of a checked run.

    Raises:
        StoreError: it can't be created.
    """
    config, context = ready.config, ready.context
    manifest = {
        "run_id": context.run_id,
        # A deterministic run writes the same manifest each time.
        **({} if config.run.deterministic else {"uid": context.new_id()}),
        "created": datetime.fromtimestamp(context.created or 0, UTC).isoformat(timespec="seconds"),
        "config": config.resolved,
        **({"plugins": config.plugins} if config.plugins else {}),
        **({"given": True} if ready.given else {}),
        **({} if ready.objective is None else {"objective": ready.objective}),
        "environ_source": config.environ_source,
        "seed": config.run.seed,
        "n_tasks": len(ready.tasks["train"]),
        "n_evaluation_tasks": len(ready.tasks["evaluation"]),
        "versions": versions(host.registry),
        "sandbox": {"type": config.sandbox.name, "capabilities": ready.parts.sandbox.capabilities},
        "host": host_facts(),
    }
    store = RunDirectory.create(ready.path, manifest, host.redactor(config))
    for split, tasks in ready.tasks.items():
        for prepared in tasks:
            store.add_task(prepared.task, split)
    return _run(ready, store, host)


def resume(
    path: Path,
    host: Host,
    *,
    given: bool = False,
    overrides: Sequence[str] = (),
    config_now: RunConfig | None = None,
    retry_broken: bool = False,
    **options: Any,
) -> Run:
    """Resume a stored run with its saved config and tasks.

    Plugin packages whose versions differ from the manifest are reported.

    Args:
        given: as of `Prepared`.
        overrides: ``key=value``, as for ``--set``, of what does not enter the results.
        config_now: a config whose changes of that kind are taken over, if it has no others.
        retry_broken: sample the broken episodes again.
        options: options of the section ``run`` that replace the saved ones, for this time.

    Raises:
        InputError: it is not a run, or is one that another program continues; or a part of it
            can't be built here any more, or an override changes what the results depend on.
        StoreError: a live process is writing to it.
    """
    path = path.resolve()
    reader = RunReader(path)
    _refuse_recorded(reader)
    if reader.manifest.get("given", False) and not given:
        raise InputError.of(
            "this run learns from episodes that come from elsewhere; its tasks are not to be run",
            file=str(path),
            hint="the command that started it continues it, such as 'ale loop' with its config",
        )
    config, made = _changed_config(reader, host.registry, overrides, config_now)
    source = reader.manifest.get("environ_source")
    again = reload_environ(source, host.registry)
    unset = {name: value for name, value in again.items() if name not in host.environ}
    replaced = evolve(config.run, **options)
    config = evolve(config, environ=unset, environ_source=source, run=replaced)
    # A directory that was moved or renamed is still the same run.
    manifest = reader.manifest
    context = host.context(config, path, str(manifest["run_id"]), manifest.get("created"))
    parts = build_parts(config, context)
    problems = [*remote_problems(config, parts), *price_problems(config)]
    if problems := [*problems, *rule_problems(config, parts.trainer, context)]:
        raise InputError(problems)
    if made:
        _refuse_secrets(config, {"train": (), "evaluation": ()}, host.redactor(config))
    store = RunDirectory.resume(path, host.redactor(config))
    try:
        _retry_broken(store, config, wanted=retry_broken)
        deque(store.reader.events(), maxlen=0)  # a damaged one is found before anything is started
        tasks = _stored_tasks(store, parts, host, context)
        notes = isolation_notes(config, parts.sandbox, tasks)
        notes += [
            f"{file} has changed since the run started: its code as of now is used"
            for file in changed_files(reader.manifest.get("plugins"), config.plugins)
        ]
    except BaseException:
        store.close()
        raise
    ready = Prepared(config=config, parts=parts, tasks=tasks, context=context, path=path)
    run = evolve(_run(ready, store, host), changes=made)
    if changed := changed_versions(reader.manifest, host.registry):
        run.say(f"resumed with other versions than the run was started with: {changed}")
    for note in notes:
        host.report(note)
    return run


def saved_config(reader: RunReader, registry: Registry) -> RunConfig:
    """The config of a stored run.

    Raises:
        InputError: no installed package has a part of it, or an option of it.
    """
    file = str(reader.path / "manifest.json")
    return structure_config(from_plain(reader.manifest["config"], file=file), registry)


def _changed_config(
    reader: RunReader,
    registry: Registry,
    overrides: Sequence[str],
    config_now: RunConfig | None,
) -> tuple[RunConfig, tuple[Change, ...]]:
    """The saved config with what a resume changes, and these changes."""
    saved = saved_config(reader, registry)
    file = str(reader.path / "manifest.json")
    if overrides:
        node = from_plain(reader.manifest["config"], file=file)
        merged = merge(node, parse_overrides(overrides))
        config_now = structure_config(merged, registry)
    if config_now is None:
        return saved, ()
    made = changes(saved, config_now)
    if overrides:
        if problems := refused(saved, made, graded=has_results(reader)):
            raise InputError(problems)
    elif not all(change.allowed for change in made):
        return saved, ()
    made = made if overrides else [each for each in made if each.path not in FOR_THIS_TIME]
    if not made:
        return saved, ()
    return structure_config(from_plain(with_changes(saved, made), file=file), registry), tuple(made)


def _retry_broken(store: RunDirectory, config: RunConfig, *, wanted: bool) -> None:
    """Count the broken episodes of a run as missing, if that is wanted."""
    if wanted and config.trainer is not None:
        raise InputError.of(
            "broken episodes of a run that trains can't be sampled again: the policy has changed",
            file=str(store.path),
        )
    if wanted:
        store.retry_broken()


def _refuse_recorded(reader: RunReader) -> None:
    """Refuse a run of `ale.recording.Recording`, whose config has nothing to sample with."""
    config = reader.manifest["config"]
    if "tasks" in config or "agent" in config:
        return
    program = (config.get("llm") or {}).get("type")
    raise InputError.of(
        f"the episodes of this run were recorded{f' by {program}' if program else ''}, not "
        "sampled by 'ale run': it has no tasks to resume",
        file=str(reader.path),
        hint="the command that recorded it continues it: for 'ale proxy' and 'ale workers "
        "bridge', give this directory as --run",
    )


def _stored_tasks(store: RunDirectory, parts: Parts, host: Host, context: BuildContext) -> Tasks:
    """The tasks as they were stored; read from their sources only if some were not stored."""
    reader, manifest = store.reader, store.reader.manifest
    # The tasks of recorded episodes, which come after the config's own, are never run.
    stored: dict[Split, list[Task]] = {
        "train": list(islice(reader.tasks, manifest.get("n_tasks"))),
        "evaluation": list(reader.evaluation_tasks),
    }
    expected = [manifest.get("n_tasks"), manifest.get("n_evaluation_tasks", 0)]
    if [len(tasks) for tasks in stored.values()] == expected:
        return {
            split: [prepare(task, host.registry, context) for task in tasks]
            for split, tasks in stored.items()
        }
    # The run was killed while it stored its tasks, before its first episode.
    read = read_tasks(parts, host.registry, context)
    found = [len(tasks) for tasks in read.values()]
    if found != expected:
        message = f"the run has {expected} tasks, but its task sources now have {found}"
        raise InputError.of(message, file=str(store.path / "tasks.jsonl"))
    for split, tasks in read.items():
        known = {task.id for task in stored[split]}
        for prepared in tasks:
            if prepared.task.id not in known:
                store.add_task(prepared.task, split)
    return read


def _run(ready: Prepared, store: RunDirectory, host: Host) -> Run:
    return Run(
        config=ready.config,
        registry=host.registry,
        parts=ready.parts,
        tasks=ready.tasks,
        store=store,
        context=ready.context,
        interrupt=host.interrupt,
        report=host.report,
    )


async def start_checked(ready: Prepared, host: Host) -> Run:
    """Check model and sandbox, then create the directory of a checked run.

    Raises:
        InputError: the model or the sandbox can't be used; there is no directory then.
        StoreError: it can't be created.
    """
    try:
        await preflight(ready.config, ready.parts, ready.tasks)
        return start(ready, host)
    except BaseException:
        await close_parts(ready.parts, Supervisor(), host.report)
        raise


async def check_resumed(run: Run) -> Run:
    """Check model and sandbox of a resumed run that has episodes left.

    Raises:
        InputError: the model or the sandbox can't be used, or the sandbox lacks what a task needs;
            the run can be resumed again.
    """
    n_done = len(run.store.index) - run.store.index.missing()
    try:
        if not is_complete(run.config, run.tasks, n_done):
            check_tasks(run.config, run.parts.sandbox, run.tasks)
        await preflight(run.config, run.parts, run.tasks, n_done)
    except BaseException:
        run.store.close()
        await close_parts(run.parts, run.supervisor, run.report)
        raise
    return run


@asynccontextmanager
async def closing_parts(run: Run) -> AsyncIterator[Run]:
    """Close the run's directory, model, start scheme and sandbox backend after the block."""
    try:
        yield run
    finally:
        run.store.close()
        await close_parts(run.parts, run.supervisor, run.report)


async def close_parts(
    parts: WorkerParts, supervisor: Supervisor, report: Callable[[str], None]
) -> None:
    """Close model, start scheme, scorers and sandbox backend; report those that can't be closed."""

    async def close(part: str, closing: Coroutine[Any, Any, None]) -> None:
        try:
            await supervisor.run(closing, CLEANUP_S, f"closing the {part}")
        except AleError as error:
            report(f"the {part} could not be closed: {error}")
        except Exception:  # whatever a plugin raises: the others are to be closed too
            report(f"the {part} could not be closed:\n{traceback.format_exc()}")

    if parts.llm is not None:
        await close("llm", parts.llm.aclose())
    if isinstance(parts.starts, RestoringScheme):
        await close("starts", parts.starts.aclose())
    for name, scorer in parts.scorers if isinstance(parts, Parts) else ():
        await close(f"scorer '{name}'", scorer.aclose())
    await close("sandbox", parts.sandbox.aclose())
