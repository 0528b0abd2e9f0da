"""Grade the episodes of a stored run again, without sampling."""

import asyncio
import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NoReturn

from attrs import evolve, frozen

from ale._config import RunConfig, structure_config
from ale._config.source import merge, parse_overrides
from ale._registry import Registry
from ale._run.contested import carried_over, counted, how
from ale._run.episode import sandbox_spec, set_up
from ale._run.grading import Damage, Places, grade, opens_judge, reward
from ale._run.interrupt import Interrupt
from ale._run.manifest import versions
from ale._run.parts import PreparedTask, build, prepare
from ale._run.start import Host
from ale._run.timeouts import Supervisor, open_in_time
from ale._store import RunReader
from ale._store.codec import plain
from ale.errors import AleError, GradingError, InputError
from ale.files import store_errors, write_whole
from ale.judging import had_no_judge
from ale.plugin import BuildContext
from ale.protocols import HasAgentUser, Sandbox, SandboxBackend
from ale.strict import from_plain
from ale.types import Capabilities, CriterionSpec, Episode, Score, Task, replace

FOLDER = "regraded"
_RECORDS, _ABOUT = "episodes.jsonl", "regrade.json"
State = Literal["kept", "answer"]


@frozen(kw_only=True)
class Regraded:
    """One episode, graded again."""

    episode: str
    task: str
    old: float | None
    """Its reward in the run; None if it broke."""
    new: float | None = None
    """None if it could not be graded again."""
    state: State | None = None
    """The basis of the new scores: the kept state, or what the episode itself has."""
    scores: tuple[Score, ...] = ()
    without_judge: bool = False
    """It was graded in the agent's own sandbox, where a judge could not be had."""
    problem: str | None = None
    """Why it was not graded again."""

    @property
    def changed(self) -> bool:
        """Is the reward another one now?"""
        return self.problem is None and self.new != self.old

    @property
    def contested(self) -> bool:
        """Is a score contested, whatever it counts as?"""
        return any(score.contested is not None for score in self.scores)


@frozen(kw_only=True)
class Regrading:
    """The episodes of a run, graded again."""

    path: Path | None
    """Folder with the records, in the run directory; None if none could be graded."""
    episodes: Sequence[Regraded]
    unseen: int
    """How many were not looked at, since a signal ended it."""


class _NotKept:
    """Stands for a sandbox whose state was not kept: whoever asks it for anything gets an error."""

    id = "not-kept"

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = replace(capabilities, features=())

    @property
    def workdir(self) -> NoReturn:
        """Raises, as all of it."""
        _refuse()

    async def _refused(self, *arguments: Any, **options: Any) -> NoReturn:
        _refuse()

    exec = session = read = write = upload = download = _refused
    end_processes = fork = snapshot = close = _refused


def _refuse() -> NoReturn:
    raise GradingError("its state was not kept (run.keep), and the criterion needs it")


async def regrade(
    run: RunReader,
    host: Host,
    *,
    criteria: Sequence[CriterionSpec] = (),
    overrides: Sequence[str] = (),
    reload: bool = False,
    concurrency: int = 1,
    progress: Callable[[Regraded], None] = lambda _: None,
) -> Regrading:
    """Grade again, and store the new scores in a folder of their own; nothing stored is changed.

    After a signal the episodes in work are finished, or cancelled after a second one.

    Args:
        criteria: instead of those of the tasks.
        overrides: of the run's config, as ``--set`` gives them.
        reload: read the tasks from their source again; else they are those of the run, whose files
            on this machine are read again in either case.
        concurrency: maximum number of episodes that are graded at the same time.
        progress: is given each episode when it is done.

    Raises:
        InputError: a part can't be built, or a task can't be read.
        StoreError: the records can't be written.
    """
    config = _config(run, host.registry, overrides)
    path = run.path.absolute() / FOLDER / f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
    context = host.context(config, path, str(run.manifest["run_id"]), run.manifest.get("created"))
    loaded = _tasks(run, config, host.registry, context, criteria=criteria, reload=reload)
    backend: SandboxBackend = build(config.sandbox, context)
    grader = _Regrader(
        config=config, tasks=loaded, backend=backend, context=context, supervisor=Supervisor()
    )
    with store_errors(path):
        path.mkdir(parents=True)
    try:
        found = await _all(run, grader, host.interrupt, concurrency, progress)
    except BaseException:
        _discard(path)
        raise
    graded = [found[number] for number in sorted(found)]
    unseen = sum(1 for _ in run.episodes) - len(graded)
    if all(each.problem is not None for each in graded):
        _discard(path)
        return Regrading(path=None, episodes=graded, unseen=unseen)
    about = {
        "schema": 1,
        "run": run.manifest["run_id"],
        "criteria": [plain(each) for each in criteria],
        "overrides": list(overrides),
        "reload": reload,
        "versions": versions(host.registry),
    }
    lines = [json.dumps(plain(each), ensure_ascii=False) + "\n" for each in graded]
    redactor = host.redactor(config)
    with store_errors(path):
        write_whole(path / _RECORDS, redactor.scrub("".join(lines).encode()))
        write_whole(path / _ABOUT, redactor.scrub((json.dumps(about, indent=2) + "\n").encode()))
    return Regrading(path=path, episodes=graded, unseen=unseen)


def _discard(path: Path) -> None:
    """Remove a folder that shall not stay, and the one of all such if it is empty."""
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()


async def _all(
    run: RunReader,
    grader: "_Regrader",
    interrupt: Interrupt,
    concurrency: int,
    progress: Callable[[Regraded], None],
) -> Mapping[int, Regraded]:
    """The episodes by their number; after a signal those that are done."""
    found: dict[int, Regraded] = {}
    waiting = enumerate(run.episodes)  # read from disk one by one

    async def work() -> None:
        for number, episode in waiting:
            found[number] = await grader.regraded(episode)
            progress(found[number])
            if interrupt.draining:
                return

    try:
        with interrupt.listening():
            await asyncio.gather(*(work() for _ in range(concurrency)))
    except asyncio.CancelledError:
        if not interrupt.cancelled:
            raise
    finally:
        await grader.backend.aclose()
    return found


def _config(run: RunReader, registry: Registry, overrides: Sequence[str]) -> RunConfig:
    file = str(run.path / "manifest.json")
    if "sandbox" not in run.manifest["config"]:
        raise InputError.of("this run has no sandbox to grade in", file=file)
    node = from_plain(run.manifest["config"], file=file)
    return structure_config(merge(node, parse_overrides(overrides)), registry)


def _tasks(
    run: RunReader,
    config: RunConfig,
    registry: Registry,
    context: BuildContext,
    *,
    criteria: Sequence[CriterionSpec],
    reload: bool,
) -> Mapping[str, PreparedTask]:
    found: Iterator[Task] = _stored(run)
    if reload:
        found = iter(build(config.tasks, context).load())
    return {task.id: prepare(_with(task, criteria), registry, context) for task in found}


def _stored(run: RunReader) -> Iterator[Task]:
    yield from run.tasks
    yield from run.evaluation_tasks


def _with(task: Task, criteria: Sequence[CriterionSpec]) -> Task:
    return replace(task, criteria=tuple(criteria)) if criteria and not task.steps else task


@frozen(kw_only=True)
class _Regrader:
    config: RunConfig
    tasks: Mapping[str, PreparedTask]
    backend: SandboxBackend
    context: BuildContext
    supervisor: Supervisor

    async def regraded(self, episode: Episode) -> Regraded:
        """The episode with its new scores, or why it has none."""
        ref = episode.metadata.get("kept")
        made = Regraded(episode=episode.id, task=episode.task_id, old=episode.reward)
        if problem := self._impossible(episode):
            return evolve(made, problem=problem)
        try:
            found = await self._scores(episode, None if ref is None else str(ref))
        except Exception as error:  # of a criterion, as in a run
            said = str(error) if isinstance(error, AleError | OSError) else repr(error)
            return evolve(made, problem=said)
        judged = [self._judged(episode, score, n) for n, score in enumerate(found)]
        scores = tuple(
            score if there else carried_over(score, episode.scores)
            for score, there in zip(found, judged, strict=True)
        )
        trains = self.config.trainer is not None
        choice = how(self.config.run.contested, trains=trains, episode=episode)
        graded = replace(episode, failure=None, scores=scores, reward=reward(scores))
        now = counted(graded, choice)
        return evolve(
            made,
            new=now.reward,
            scores=now.scores,
            state="answer" if ref is None else "kept",
            without_judge=not all(judged),
            problem=None if now.failure is None else now.failure.message,
        )

    def _judged(self, episode: Episode, score: Score, number: int) -> bool:
        """Was the score given in a judge, or by a criterion that needs none?"""
        _, criterion = self.tasks[episode.task_id].criteria[number]
        can = "judge" in self.backend.capabilities.features
        return not opens_judge(criterion) or (can and not had_no_judge(score))

    def _impossible(self, episode: Episode) -> str | None:
        prepared = self.tasks.get(episode.task_id)
        if prepared is None:
            return "its task is not there any more"
        if prepared.steps:
            return "tasks with steps are graded after each of them"
        if episode.failure is not None and episode.failure.stage not in ("grading", "teardown"):
            return f"it broke before it was graded: {episode.failure.stage}"
        return "the agent damaged its sandbox" if episode.damaged else None

    async def _scores(self, episode: Episode, ref: str | None) -> tuple[Score, ...]:
        prepared, options = self.tasks[episode.task_id], self.config.run
        task, limit_s, errors = prepared.task, options.open_timeout_s, list[str]()
        spec = sandbox_spec(task, {**self.context.tags, "episode": episode.id})
        async with AsyncExitStack() as stack:
            own: Sandbox = _NotKept(self.backend.capabilities)
            if ref is not None:
                restoring = self.backend.restore(ref, spec)
                own = await stack.enter_async_context(open_in_time(restoring, limit_s, errors))
                if isinstance(own, HasAgentUser):
                    await own.agent_started(task.environment.agent_user)

            async def prepared_sandbox() -> Sandbox:
                opening = open_in_time(self.backend.open(spec), limit_s, errors)
                sandbox = await stack.enter_async_context(opening)
                await set_up(task, sandbox, options.setup_timeout_s)
                return sandbox

            places = Places(own, True, lambda: _Opened(prepared_sandbox))
            damage = Damage(options.lost_sandbox, began=ref is not None)
            return await grade(
                prepared,
                episode.trajectory,
                places,
                self.supervisor,
                options.grading_timeout_s,
                damage,
            )


@frozen
class _Opened:
    """A sandbox that is closed with the episode's others."""

    opening: Callable[[], Any]

    async def __aenter__(self) -> Sandbox:
        sandbox: Sandbox = await self.opening()
        return sandbox

    async def __aexit__(self, *error: object) -> None:
        """Nothing."""
