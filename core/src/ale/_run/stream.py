"""The schedule ``stream``: groups are sampled without a pause, and a step learns from the first.

What is on disk decides everything: a group whose episodes are all stored is complete, and
``groups.jsonl`` says which step learned from which groups. The rest of the complete ones is the
buffer. So a resumed run, which goes through the groups in the order in which they are drawn, starts
what is missing and has the buffer back. docs/why/asynchronous.md has the reasons.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from attrs import define, field, frozen

from ale._config import RunConfig
from ale._run.capacity import Capacity
from ale._run.loop import Loop
from ale._run.plan import EpisodePlan, episode_plans, tasks_of_step, tasks_per_step
from ale._store.groups import GroupKey, Groups
from ale.errors import InputError, Problem
from ale.protocols import Start


def check_stream(config: RunConfig) -> None:
    """Raises `InputError` where options contradict the schedule."""
    options = config.run
    problems = []
    if options.schedule == "stream":
        if config.starts is not None:
            problems.append(_plans_steps("starts", "section 'starts' plans the episodes of a step"))
        if options.refills:
            problems.append(_plans_steps("run.refills", "refills add to the episodes of a step"))
    elif options.too_stale != "train":
        problems.append(_without("too_stale", options.too_stale, "run.schedule: stream"))
    if options.take_first != "oldest" and options.too_stale != "drop":
        problems.append(_without("take_first", options.take_first, "run.too_stale: drop"))
    if problems:
        raise InputError(problems)


def _plans_steps(path: str, reason: str) -> Problem:
    message = f"{reason}; with run.schedule: stream a step learns from any that are complete"
    return Problem(path=path, message=message, hint="run.schedule: steps")


def _without(option: str, value: str, needed: str) -> Problem:
    message = f"'{value}' is without effect, or harmful, except with {needed}"
    return Problem(path=f"run.{option}", message=message, expected=needed)


def exceeds_staleness(config: RunConfig) -> bool:
    """May a step learn from groups that are older than ``run.staleness``?"""
    options = config.run
    streams = options.schedule == "stream" and options.staleness > 0
    return streams and options.too_stale == "train"


@define
class Buffer:
    """The complete groups that no step has learned from, in the order in which they were drawn.

    It holds at most `Capacity.batch` * (`Capacity.staleness` + 1) groups, which the capacity
    ensures, and nothing but their names: the episodes are on disk.
    """

    groups: Groups
    newest_first: bool = False
    _waiting: list[tuple[int, GroupKey]] = field(factory=list)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, number: int, group: GroupKey) -> None:
        """Add a complete group; `number` counts the groups as they are drawn."""
        self._waiting.append((number, group))

    def older_than(self, version: int) -> list[GroupKey]:
        """Take out the groups that were started before the policy had learned from `version`."""
        old = [each for each in self._waiting if self.groups.started[each[1]] < version]
        self._waiting = [each for each in self._waiting if each not in old]
        return [group for _, group in sorted(old)]

    def take(self, n: int) -> list[GroupKey]:
        """Take out `n` groups, in the order in which they were drawn."""
        chosen = sorted(self._waiting, reverse=self.newest_first)[:n]
        self._waiting = [each for each in self._waiting if each not in chosen]
        return [group for _, group in sorted(chosen)]


@frozen(kw_only=True)
class _Drawn:
    """A group to sample."""

    number: int
    """How many were drawn before it."""
    key: GroupKey
    plans: Callable[[], Iterator[EpisodePlan]]


@define(kw_only=True)
class _State:
    """What changes during the run."""

    version: int = 0
    """Steps that the policy has learned from."""
    accepted: int = 0
    """Groups that were complete and are not dropped."""
    running: int = 0
    stopped: bool = False
    """A Ctrl-C left episodes out."""


@frozen(kw_only=True)
class StreamLoop(Loop):
    """The steps of a run whose groups are sampled in a stream."""

    _state: _State = field(factory=_State, init=False)
    _buffer: Buffer = field(init=False)
    _capacity: Capacity = field(init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)
    """Set whenever something has changed that a step or the start of a group may wait for."""

    @_buffer.default
    def _make_buffer(self) -> Buffer:
        return Buffer(self.store.groups, self.config.run.take_first == "newest")

    @_capacity.default
    def _make_capacity(self) -> Capacity:
        options = self.config.run
        return Capacity(
            batch=tasks_per_step(self.tasks["train"], options),
            staleness=options.staleness,
            steps=options.steps,
            max_running=options.concurrency,
        )

    async def _run(self, group: asyncio.TaskGroup) -> str:
        self.evaluator.restore()
        await self.training.restore()
        if not await self.evaluator.evaluate(0, due=False):
            return "drained"
        self._restore()
        producer: asyncio.Task[None] | None = None
        n_steps = self.config.run.steps
        try:
            for step in range(n_steps):
                if producer is None and not self.training.has_learned(step):
                    producer = group.create_task(self._start_groups(group))
                with self.times.on("rollouts"):
                    filled = await self._fill(step)
                if not filled:
                    return "drained"
                await self.training.learn(step, {"groups_waiting": float(len(self._buffer))})
                # With staleness 0 no episode of the next step is sampled beside an evaluation,
                # as without a stream: what a sampler computes together can change last digits.
                if not await self.evaluator.evaluate(step + 1, due=step + 1 == n_steps):
                    return "drained"
                self._state.version = step + 1
                self._changed.set()
        finally:
            if producer is not None:
                producer.cancel()
        return "completed"

    def _restore(self) -> None:
        """Find the complete groups that no step has learned from."""
        groups, last = self.store.groups, self.store.index.last_drawn()
        self._state.accepted = sum(map(len, groups.batches.values()))
        for drawn in self._drawn():
            if drawn.key.step > last:
                break
            if not groups.is_used(drawn.key) and self._is_complete(drawn):
                self._accept(drawn)

    async def _fill(self, step: int) -> bool:
        """Choose the groups of a step, once there are enough; False after a Ctrl-C."""
        options, n = self.config.run, self._capacity.batch
        while step not in self.store.groups.batches:
            if self._state.stopped or self.dispatcher.interrupt.draining:
                return False
            if options.too_stale == "drop":
                self._drop(step, self._buffer.older_than(step - options.staleness))
            if len(self._buffer) >= n:
                self.store.add_groups("trained", step, self._buffer.take(n))
            else:
                await self._change()
        return True

    def _drop(self, step: int, groups: Sequence[GroupKey]) -> None:
        if groups:
            self.store.add_groups("dropped", step, groups)
            self._state.accepted -= len(groups)
            self._changed.set()

    async def _start_groups(self, tasks: asyncio.TaskGroup) -> None:
        """Start one group after the other, as far as capacity and free slots let it."""
        for drawn in self._drawn():
            if self.store.groups.is_used(drawn.key) or self._is_complete(drawn):
                continue
            while not self._free() and not self._state.stopped:
                with self._held_up():
                    await self._change()
            if self._state.stopped:
                return
            self._state.running += 1
            started = asyncio.Event()
            tasks.create_task(self._sample_group(drawn, started))
            await started.wait()

    def _free(self) -> int:
        state = self._state
        return self._capacity.free(
            version=state.version, accepted=state.accepted, running=state.running
        )

    def _held_up(self) -> AbstractContextManager[None]:
        """Measures how long no group may start, unless no further one is needed."""
        state, capacity = self._state, self._capacity
        needed = state.accepted + state.running < capacity.steps * capacity.batch
        return self.times.holding_up_rollouts() if needed else nullcontext()

    async def _sample_group(self, drawn: _Drawn, started: asyncio.Event) -> None:
        """Run a group's episodes.

        Args:
            started: is set when each of them has a slot.
        """
        complete = await self.dispatcher.run(lambda: self._plans(drawn, started))
        started.set()
        self._state.running -= 1
        if complete:
            self._accept(drawn)
        else:
            self._state.stopped = True
        self._changed.set()

    def _plans(self, drawn: _Drawn, started: asyncio.Event) -> Iterator[EpisodePlan]:
        fresh = not any(plan.key in self.store.index for plan in drawn.plans())
        for number, plan in enumerate(drawn.plans()):
            yield plan
            # The first one has a slot from here on, and has not run yet.
            if number == 0 and fresh and not self.dispatcher.interrupt.draining:
                self.store.add_groups("started", self._state.version, [drawn.key])
        started.set()

    def _accept(self, drawn: _Drawn) -> None:
        self._buffer.add(drawn.number, drawn.key)
        self._state.accepted += 1

    def _is_complete(self, drawn: _Drawn) -> bool:
        return all(plan.key in self.store.index for plan in drawn.plans())

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _drawn(self) -> Iterator[_Drawn]:
        """Every group in the order in which the steps of a run without a stream would draw it."""
        options = self.config.run
        for number in itertools.count():
            step, place = divmod(number, self._capacity.batch)
            prepared = tasks_of_step(self.tasks["train"], options, step)[place]
            start = Start(task_id=prepared.task.id, rollouts=options.rollouts)
            plans = partial(episode_plans, [prepared], options, step, [start])
            yield _Drawn(number=number, key=GroupKey(step, start.task_id), plans=plans)
