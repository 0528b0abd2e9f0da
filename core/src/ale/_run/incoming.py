"""Learn in the steps of a stream from episodes that come from elsewhere.

An episode is stored as a rollout in the group of its task that is being filled. A full group
waits, as in a stream, until a step learns from it; ``groups.jsonl`` says which step did.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from attrs import asdict, frozen

from ale._config import RunConfig
from ale._run.evaluation import Evaluator
from ale._run.parts import Parts
from ale._run.plan import episode_id
from ale._run.session import Session
from ale._run.training import Training
from ale._store import RunReader
from ale._store.groups import GroupKey
from ale._store.lines import Lines
from ale.errors import InputError, Problem
from ale.files import replacing, store_errors
from ale.protocols import Policy
from ale.types import Episode, PolicySnapshot, ScoredEpisode, Task, replace

ORIGIN = "from"
"""Key in an episode's metadata: the run and the episode that it was taken from."""
_FIRST = "initial"


@frozen
class Origin:
    """Where an episode was taken from."""

    run: str
    episode: str
    uid: str = ""
    """From the run's manifest; distinguishes runs of the same name."""

    @classmethod
    def of(cls, run: RunReader, episode: str) -> "Origin":
        """The origin of an episode of a stored run."""
        manifest: Mapping[str, Any] = {**run.manifest}
        # Earlier versions wrote no uid.
        uid = manifest.get("uid") or manifest.get("created", "")
        return cls(run=str(manifest["run_id"]), episode=episode, uid=str(uid))


class _Stored(msgspec.Struct):
    task_id: str
    step: int
    start: str = ""
    metadata: dict[str, Any] = {}


def origins(run: RunReader) -> Iterator[Origin]:
    """The origins of the episodes that a run has taken from others, in order."""
    return (origin for origin, _ in _taken(run.path))


def _taken(path: Path) -> Iterator[tuple[Origin, _Stored]]:
    for stored in Lines(path / "episodes.jsonl", _Stored):
        if found := stored.metadata.get(ORIGIN):
            yield Origin(**found), stored


class Learner:
    """A run whose steps learn from episodes that it is given.

    Policies are numbered by the steps that they have learned from: version 0 is the first, and step
    n makes version n + 1. A step starts from a version that need not be the last (`load`).
    """

    def __init__(
        self, session: Session, training: Training, evaluator: Evaluator, drained: asyncio.Event
    ) -> None:
        self._session, self._training, self._evaluator = session, training, evaluator
        self._drained = drained
        self._filling: dict[tuple[str, str], tuple[int, int]] = {}
        """The round of the group that is being filled, and its size, for each task and start."""
        self._waiting: list[GroupKey] = []
        """Full groups that no step has learned from, in the order in which they were filled."""
        # What an earlier session of the run has stored:
        self._goals = {task.id: task.goal for task in session.store.reader.tasks}
        self._taken: set[Origin] = set()
        for origin, stored in _taken(session.store.path):
            self._taken.add(origin)
            self._count(GroupKey(stored.step, stored.task_id, stored.start))
        training.report_missed()

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds since the epoch."""
        return self._session.context.clock

    @property
    def draining(self) -> bool:
        """Has the run been asked to end?"""
        return self._session.interrupt.draining

    @property
    def signal(self) -> int | None:
        """The signal that has ended the run, rather than its budget, a rule or `ale steer`."""
        return self._session.interrupt.signal

    @property
    def waiting(self) -> int:
        """Number of full groups that no step has learned from."""
        return len(self._waiting)

    @property
    def batch(self) -> int:
        """Number of groups that a step learns from."""
        return self._session.config.run.tasks_per_step or 1

    @property
    def ready(self) -> bool:
        """Are enough groups waiting for a step?"""
        return self.waiting >= self.batch

    def begun(self, step: int) -> bool:
        """Were the groups of a step chosen? The step may not have learned from them yet."""
        return step in self._session.store.groups.batches

    @property
    def needs_tokens(self) -> bool:
        """Does the run learn from token ids?"""
        llm = self._session.parts.llm
        return llm is not None and llm.capabilities.token_ids

    def has(self, origin: Origin) -> bool:
        """Was this episode taken?"""
        return origin in self._taken

    def add(
        self,
        task: Task,
        episode: Episode,
        origin: Origin,
        scores: Sequence[ScoredEpisode] = (),
    ) -> None:
        """Store an episode once; repeated calls do nothing.

        A task with the same id but another goal is another task.

        Args:
            scores: of chunks of the episode, from outside.

        Raises:
            StoreError: the disk is full.
        """
        if origin in self._taken:
            return
        store = self._session.store
        task = replace(task, id=self._id_of(task, origin))
        if task.id not in self._goals:
            store.add_task(task)
            self._goals[task.id] = task.goal
        step, n = self._filling.get((task.id, episode.start), (0, 0))
        key = GroupKey(step, task.id, episode.start)
        if key not in store.groups.started:
            learned = max(store.groups.batches, default=-1) + 1
            store.add_groups("started", learned, [key])
        stored = replace(
            episode,
            id=episode_id(("train", *key, n, None)),
            task_id=task.id,
            step=step,
            rollout=n,
            metadata={**episode.metadata, ORIGIN: asdict(origin)},
        )
        for scored in scores:
            store.add_scores(replace(scored, episode_id=stored.id))
        store.add_episode(stored)
        self._session.spend(stored)
        self._taken.add(origin)
        self._count(key)

    def _id_of(self, task: Task, origin: Origin) -> str:
        """The task's id, or a new one if that id belongs to a task with another goal."""
        ids = (task.id, f"{task.id}~{origin.run}")
        free = (each for each in ids if self._goals.get(each, task.goal) == task.goal)
        return next(free, f"{task.id}~{origin.run}~{origin.uid}")

    def _count(self, key: GroupKey) -> None:
        _, n = self._filling.get(key[1:], (0, 0))
        full = n + 1 == self._session.config.run.rollouts
        self._filling[key[1:]] = (key.step + 1, 0) if full else (key.step, n + 1)
        if full and not self._session.store.groups.is_used(key):
            self._waiting.append(key)

    async def begin(self) -> None:
        """Keep the policy from before the first step, and evaluate it."""
        store, trainer = self._session.store, self._session.parts.trainer
        assert trainer is not None
        folder = store.checkpoints.path / _FIRST
        if not folder.exists():
            with store_errors(folder), replacing(folder, folder=True) as partial:
                trainer.save(partial)
        await self.evaluate(0)

    def snapshot(self) -> PolicySnapshot:
        """The policy that is loaded."""
        trainer = self._session.parts.trainer
        assert trainer is not None
        return trainer.snapshot()

    def kept(self, version: int) -> bool:
        """Can this version be loaded?"""
        return self._folder(version).exists()

    def versions(self) -> Sequence[int]:
        """The versions that can be loaded."""
        return [0, *(step + 1 for step in self._session.store.checkpoints.steps())]

    async def load(self, version: int) -> None:
        """Continue from a version. Raises `StoreError` if it can't be read."""
        await self._training.load(self._folder(version))

    def forget(self, version: int) -> None:
        """Remove a version that will not be loaded again; the first one stays."""
        if version > 0 and self.kept(version):
            self._session.store.checkpoints.remove(version - 1)

    def _folder(self, version: int) -> Path:
        checkpoints = self._session.store.checkpoints
        return checkpoints.folder(version - 1) if version else checkpoints.path / _FIRST

    async def learn(self, step: int) -> None:
        """Learn from the groups that were full first, starting from the loaded policy.

        A step whose groups were chosen before the run was killed learns from those groups.
        """
        store = self._session.store
        if step not in store.groups.batches:
            n = self._session.config.run.tasks_per_step
            store.add_groups("trained", step, self._waiting[:n])
            del self._waiting[:n]
        await self._training.learn(step, {"groups_waiting": float(len(self._waiting))})

    async def evaluate(self, version: int) -> bool:
        """Evaluate the loaded policy, once, as the section ``evaluation`` says.

        Returns False after a Ctrl-C.
        """
        return await self._evaluator.evaluate(version, due=True)

    async def evaluate_again(self, version: int, tasks: Collection[str] | None = None) -> bool:
        """Evaluate tasks again under a version, which must be loaded.

        Returns False after a Ctrl-C.

        Args:
            tasks: ids of the tasks; default: the tasks that have no reward under this version.
        """
        return await self._evaluator.again(version, tasks)

    def evaluated(
        self, version: int
    ) -> Mapping[float | None, Mapping[tuple[str, int], float | None]]:
        """Rewards of a version by temperature, then by task and rollout; None: a broken episode."""
        return self._session.store.index.evaluated(version)

    def note(self, event: str, **facts: Any) -> None:
        """Append to the event log."""
        self._session.store.add_event(event, self.clock(), **facts)

    def events(self) -> Iterator[dict[str, Any]]:
        """The event log."""
        return self._session.store.reader.events()

    async def wait(self, seconds: float) -> None:
        """Wait this long, or until the run is asked to end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._drained.wait(), seconds)


def check_learning(config: RunConfig) -> None:
    """Raise `InputError` if a section that a learner needs is missing."""
    size, how = config.run.tasks_per_step, "needed: how many groups a step learns from"
    problems = [
        config.located(Problem(message=message, path=path))
        for path, given, message in (
            ("trainer", config.trainer, "needed to learn"),
            ("evaluation", config.evaluation, "needed to compare versions"),
            ("run.tasks_per_step", size, how),
        )
        if given is None
    ]
    if problems:
        raise InputError(problems)


def check_executor(config: RunConfig, parts: Parts) -> None:
    """Raise `InputError` if remote workers would have to go back to earlier weights."""
    if parts.executor.remote and isinstance(parts.llm, Policy):
        message = (
            f"the workers of executor '{config.executor.name}' follow newer versions of the model "
            "only, but where one is refused the loop goes back to an earlier version"
        )
        problem = Problem(message=message, path="executor", expected="executor: {type: local}")
        raise InputError([config.located(problem)])


def conducted(
    conduct: Callable[[Learner], Awaitable[str]],
) -> Callable[[Session, Training, Evaluator], Awaitable[str]]:
    """`Run.conduct` for a run that is given its episodes."""

    async def run(session: Session, training: Training, evaluator: Evaluator) -> str:
        drained = asyncio.Event()
        session.interrupt.on_drain.append(drained.set)
        async with training.saved_at_end():
            return await conduct(Learner(session, training, evaluator, drained))

    return run
