"""The steps of a run: where their groups come from, and what follows when they are complete.

The state on disk decides everything. docs/why/scheduler.md has the design, and
docs/why/asynchronous.md the reasons for a stream.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from attrs import define, evolve, field, frozen, validators

from ale._config import RunConfig
from ale._run.dispatch import Dispatcher, refuse_lost
from ale._run.evaluation import Evaluator
from ale._run.plan import Drawn, StartPlan, further_starts, has_signal, key_of
from ale._run.session import Session
from ale._run.training import Training
from ale._store.diagnosis import GROUPS_SHORT
from ale._store.groups import FILE as GROUPS
from ale._store.groups import GroupKey, Groups
from ale.errors import InputError, Problem
from ale.types import Job


class Scheduler:
    """The steps of a run. What is already done is read from the run directory alone."""

    def __init__(
        self,
        session: Session,
        dispatcher: Dispatcher,
        training: Training,
        evaluator: Evaluator,
        plan: StartPlan,
    ) -> None:
        self.session, self.dispatcher, self.training = session, dispatcher, training
        self.plan, self._evaluator = plan, evaluator
        options = session.config.run
        self.capacity = Capacity(
            staleness=options.staleness,
            steps=options.steps,
            max_running=options.most_at_once,
            refills=options.refills,
        )

    async def run(self) -> str:
        """Do what remains to be done; returns ``completed``, or ``drained`` after a Ctrl-C."""
        try:
            async with asyncio.TaskGroup() as group, self.training.saved_at_end():
                return await self._run(group)
        except ExceptionGroup as errors:
            # A full disk fails every episode: the first error is enough.
            raise _first_of(errors) from None

    async def _run(self, group: asyncio.TaskGroup) -> str:
        await self.training.restore()
        self.plan.restore()
        self.plan.upto(self.capacity.ahead(0))
        if not await self._evaluator.evaluate(0, due=False):
            return "drained"
        kind = Stream if self.session.config.run.schedule == "stream" else Steps
        source = kind(self, group)
        try:
            for step in range(self.capacity.steps):
                if not await self._step(step, source):
                    return "drained"
                last = step + 1 == self.capacity.steps
                if self.session.control.stops and not last:
                    self.session.interrupt.drain(f"The run was asked to stop after step {step}.")
                    return "drained"
        finally:
            source.close()
        return "completed"

    async def _step(self, step: int, source: "Steps | Stream") -> bool:
        """One step, and the evaluation after it; False after a Ctrl-C."""
        source.begin(step)
        with self.session.times.on("rollouts"):
            if not await source.fill(step):
                return False
        short = {GROUPS_SHORT: float(self.plan.short(step))}
        await self.training.learn(step, {**short, **source.facts()})
        # Planned before the evaluation: a scheme's plan depends only on the steps.
        self.plan.learn(step + 1)
        self.plan.upto(self.capacity.ahead(step + 1))
        last = step + 1 == self.capacity.steps
        still = not last and self.plan.demonstrates(step + 1)
        # The end of the demonstrations is evaluated, to show what imitation achieved.
        shown = self.plan.demonstrates(step) and not still
        due = last or shown or self.session.control.evaluates
        if not await self._evaluator.evaluate(step + 1, due=due, shown=shown):
            return False
        self.session.control.evaluates = False
        # With staleness 0, no episode is sampled beside an evaluation: computing different rows
        # together can change a sampler's last digits.
        if not self.session.control.stops:
            source.learned(step + 1)
        return True


@frozen(kw_only=True)
class Capacity:
    """How many groups a stream may start: staleness as arithmetic, in groups.

    AReaL (arXiv:2505.24298, 5.1) counts samples: min(max_running - running, (eta + version + 1) * B
    - accepted - running). With whole groups the formula is the same; here it is written in terms of
    what is still lacking, since the steps of a start scheme have batches of different sizes.

    Groups are started for the first `ahead` steps, as many as these lack. So the n-th group to be
    started (from 0), with B groups in each step, is at most `staleness` steps too early:
    n < (staleness + version + 1) * B. A group that takes longer than others may be older.
    """

    staleness: int = field(validator=validators.ge(0))
    """``run.staleness``: eta."""
    steps: int = field(validator=validators.ge(1))
    """Steps of the run: groups that no step will need are not started."""
    max_running: int = field(validator=validators.ge(1))
    """Most groups to run at once."""
    refills: int = field(default=0, validator=validators.ge(0))
    """``run.refills``: a step has at most this many times its groups as further groups."""

    def ahead(self, version: int) -> int:
        """The number of first steps for which groups may be started.

        Args:
            version: steps that the policy has learned from.
        """
        return min(self.staleness + version + 1, self.steps)

    def free(self, *, wanted: int, waiting: int, running: int, useless: int = 0) -> int:
        """Number of groups that may be started now, at least 0.

        Args:
            wanted: groups of those steps before `ahead` for which no groups have been chosen.
            waiting: complete groups for these steps.
            running: groups that are started but not complete.
            useless: complete groups that count as refills only.
        """
        lacking = wanted - waiting - running
        most = wanted * (self.refills + 1) - waiting - useless - running
        return max(0, min(self.max_running - running, lacking, most))


class _Source:
    """Where the groups come from that the steps of a run learn from."""

    def __init__(self, run: Scheduler, group: asyncio.TaskGroup) -> None:
        self.session, self.config, self.store = run.session, run.session.config, run.session.store
        self.dispatcher, self.training = run.dispatcher, run.training
        self.plan, self.capacity = run.plan, run.capacity
        self.group = group
        """Runs the tasks that sample."""


class Steps(_Source):
    """A step learns from the groups that were drawn for it, and waits for all of them.

    The episodes of a step may start when the policy has learned from all but the last `staleness`
    steps before it. With staleness 0, each step waits for the previous one.
    """

    def __init__(self, run: Scheduler, group: asyncio.TaskGroup) -> None:
        super().__init__(run, group)
        self._sampling: deque[asyncio.Task[bool]] = deque()
        """A task for each step whose episodes may run, and that has not been learned from."""
        self._n_started = 0
        self.learned(0)

    def begin(self, step: int) -> None:
        """Its episodes were started when the policy had learned enough."""

    async def fill(self, step: int) -> bool:
        """Wait for the step's last episode; False after a Ctrl-C."""
        return await self._sampling.popleft()

    def facts(self) -> Mapping[str, float]:
        """No metrics beside those of every step."""
        return {}

    def learned(self, version: int) -> None:
        """Start the episodes of further steps."""
        ahead = self.capacity.ahead(version)
        for step in range(self._n_started, ahead):
            self._sampling.append(self.group.create_task(self._sample(step)))
        self._n_started = ahead

    def close(self) -> None:
        """Nothing but episodes is running."""

    async def _sample(self, step: int) -> bool:
        """Run a step's episodes, and those of its refills; False after a Ctrl-C.

        What a refill draws depends only on the rewards of what was drawn before it, so a resumed
        step draws the same.
        """
        tasks, options = self.session.tasks["train"], self.config.run
        starts = self.plan.starts(step)
        drawn = list(starts)
        for refill in range(options.refills + 1):
            refuse_lost(self.session, step, self.plan.jobs(step, drawn))
            if not await self.dispatcher.run(lambda: self.plan.jobs(step, drawn)):
                return False
            if refill < options.refills:
                index = self.store.index
                more = further_starts(tasks, self.config, index, step, drawn, len(starts))
                if not more:
                    break
                drawn.extend(more)
        return True


class _Waiting(NamedTuple):
    """A complete group in the buffer."""

    number: int
    """Number of groups drawn before it."""
    key: GroupKey
    useful: bool
    """The trainer gets the group; it does not count only as a refill."""


@define
class Buffer:
    """The complete groups that no step has learned from, in the order in which they were drawn.

    It holds at most the groups of `Capacity.staleness` + 1 steps, which the capacity ensures, and
    only their names: the episodes are on disk.
    """

    groups: Groups
    newest_first: bool = False
    _waiting: list[_Waiting] = field(factory=list)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def useful(self) -> int:
        """Number of groups that the trainer gets."""
        return sum(each.useful for each in self._waiting)

    def add(self, number: int, group: GroupKey, *, useful: bool = True) -> None:
        """Add a complete group; `number` counts the groups as they are drawn."""
        self._waiting.append(_Waiting(number, group, useful))

    def older_than(self, version: int) -> list[GroupKey]:
        """Take out the groups that were started before the policy had learned from `version`."""
        old = [each for each in self._waiting if self.groups.started[each.key] < version]
        self._waiting = [each for each in self._waiting if each not in old]
        return [each.key for each in sorted(old)]

    def take(self, n: int, refills: int = 0) -> list[GroupKey] | None:
        """Take out a step's groups, in the order in which they were drawn; None if too few.

        Args:
            n: number of useful groups that fill the step.
            refills: the step is also full when it has this many times `n` further groups.
        """
        most = n * (refills + 1)
        if self.useful < n and len(self) < most:
            return None
        chosen: list[_Waiting] = []
        for each in sorted(self._waiting, reverse=self.newest_first):
            if sum(one.useful for one in chosen) == n or len(chosen) == most:
                break
            chosen.append(each)
        self._waiting = [each for each in self._waiting if each not in chosen]
        return [each.key for each in sorted(chosen)]


class Stream(_Source):
    """Groups are sampled without pause; a step learns from the first that are complete.

    A group whose episodes are all stored is complete, and ``groups.jsonl`` says which step learned
    from which groups. The other complete groups form the buffer. So a resumed run, which goes
    through the groups in the order in which they are drawn, starts what is missing and restores the
    buffer.
    """

    def __init__(self, run: Scheduler, group: asyncio.TaskGroup) -> None:
        super().__init__(run, group)
        self._buffer = Buffer(self.store.groups, self.config.run.take_first == "newest")
        self._version = 0
        """Steps that the policy has learned from."""
        self._running = 0
        """Groups that are started but not complete."""
        self._stopped = False
        """A Ctrl-C left episodes out."""
        self._changed = asyncio.Event()
        """Set whenever something changes for which a step or the start of a group may wait."""
        self._producer: asyncio.Task[None] | None = None
        self.session.control.on_change.append(self._changed.set)
        self._restore()

    def begin(self, step: int) -> None:
        """Start to sample at the first step that is not learned from."""
        self._refuse_lost(step)
        if self._producer is None and not self.training.has_learned(step):
            self._producer = self.group.create_task(self._start_groups())

    async def fill(self, step: int) -> bool:
        """Choose the groups of a step as soon as there are enough; False after a Ctrl-C."""
        options, n = self.config.run, self.plan.size(step)
        while step not in self.store.groups.batches:
            if self.session.interrupt.signal is not None:
                return False
            drops = options.too_stale == "drop"
            if drops and (old := self._buffer.older_than(step - options.staleness)):
                self.store.add_groups("dropped", step, old)
                self._changed.set()
            chosen = self._buffer.take(n, options.refills)
            if chosen is not None:
                self.store.add_groups("trained", step, chosen)
            elif self._ends():
                return False
            else:
                await self._change()
        return True

    def _ends(self) -> bool:
        """Can no further group become complete?"""
        return not self._running and (self._stopped or self.session.interrupt.draining)

    def facts(self) -> Mapping[str, float]:
        """Number of complete groups that are left."""
        return {"groups_waiting": float(len(self._buffer))}

    def learned(self, version: int) -> None:
        """Let further groups start."""
        self._version = version
        self._changed.set()

    def close(self) -> None:
        """Start no further group."""
        if self._producer is not None:
            self._producer.cancel()

    def _restore(self) -> None:
        """Find the complete groups that no step has learned from.

        Raises:
            InputError: it is not known when one of them was started.
        """
        for drawn in self.plan.groups(self.store.index.last_drawn()):
            if self.store.groups.is_used(drawn.key):
                continue
            stored = next((job.id for job in drawn.jobs() if key_of(job) in self.store.index), None)
            if stored is not None and drawn.key not in self.store.groups.started:
                raise self._lost(f"'started' of the group of {stored}, which is stored")
            if self._is_complete(drawn):
                self._accept(drawn)

    def _refuse_lost(self, step: int) -> None:
        """Raise `InputError` if a step was learned from, but the line with its groups is gone.

        Else groups of a later policy would take their place, or the step would wait forever.
        """
        learned = step <= self.store.checkpoints.newest() or self.training.has_learned(step)
        if learned and step not in self.store.groups.batches:
            more = (
                "; or move 'checkpoints' and 'credits' away: the policy learns again from the "
                "groups that are left, and from further ones"
            )
            raise self._lost(f"'trained' of step {step}, which has been learned from", more)

    def _lost(self, line: str, more: str = "") -> InputError:
        return InputError.of(
            f"lacks the line {line}",
            file=str(self.store.path / GROUPS),
            hint=f"restore the file, for example from where the run was copied{more}",
        )

    async def _start_groups(self) -> None:
        """Start one group after the other, as far as capacity and free slots allow."""
        drawn = self.plan.groups()
        while True:
            while not self._free() and not self._stopped:
                with self._held_up():
                    await self._change()
            if self._stopped:
                return
            # Only now, because a scheme plans a further step from what it has learned so far.
            group = next(each for each in drawn if self._is_missing(each))
            self._running += 1
            started = asyncio.Event()
            self.group.create_task(self._sample_group(group, started))
            await started.wait()

    def _wanted(self) -> int:
        """Groups of the steps for which groups may be started and none have been chosen yet."""
        version = self._version
        ahead, chosen = self.capacity.ahead(version), self.store.groups.batches
        return sum(self.plan.size(step) for step in range(version, ahead) if step not in chosen)

    def _free(self) -> int:
        waiting = self._buffer.useful
        most = self.session.control.concurrency  # may be changed while the run runs
        return evolve(self.capacity, max_running=most).free(
            wanted=self._wanted(),
            waiting=waiting,
            running=self._running,
            useless=len(self._buffer) - waiting,
        )

    def _held_up(self) -> AbstractContextManager[None]:
        """Measure how long no group may start, unless no further group is needed."""
        last = self.capacity.ahead(self._version) == self.capacity.steps
        lacking = self._wanted() - self._buffer.useful - self._running
        return (
            self.session.times.holding_up_rollouts() if lacking > 0 or not last else nullcontext()
        )

    async def _sample_group(self, drawn: Drawn, started: asyncio.Event) -> None:
        """Run a group's episodes.

        Args:
            started: set when every episode has a slot.
        """
        complete = await self.dispatcher.run(lambda: self._jobs(drawn, started))
        started.set()
        self._running -= 1
        if complete:
            self._accept(drawn)
        else:
            self._stopped = True
        self._changed.set()

    def _jobs(self, drawn: Drawn, started: asyncio.Event) -> Iterator[Job]:
        fresh = not any(key_of(job) in self.store.index for job in drawn.jobs())
        for number, job in enumerate(drawn.jobs()):
            yield job
            # From here on the first episode has a slot, but has not run yet.
            if number == 0 and fresh and not self.session.interrupt.draining:
                self.store.add_groups("started", self._version, [drawn.key])
        started.set()

    def _accept(self, drawn: Drawn) -> None:
        useful = not self.config.run.refills or has_signal(self.store.index.rewards_of(drawn.key))
        self._buffer.add(drawn.number, drawn.key, useful=useful)

    def _is_missing(self, drawn: Drawn) -> bool:
        return not self.store.groups.is_used(drawn.key) and not self._is_complete(drawn)

    def _is_complete(self, drawn: Drawn) -> bool:
        return all(key_of(job) in self.store.index for job in drawn.jobs())

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def _first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group, however deep it is nested."""
    first = errors.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


def stream_problems(config: RunConfig) -> Iterator[Problem]:
    """Options that contradict the schedule."""
    options = config.run
    if options.concurrency == "auto" and options.deterministic:
        yield _without("concurrency", "auto", "run.deterministic: false")
    if options.schedule != "stream" and options.too_stale != "train":
        yield _without("too_stale", options.too_stale, "run.schedule: stream")
    if options.take_first != "oldest" and options.too_stale != "drop":
        yield _without("take_first", options.take_first, "run.too_stale: drop")


def _without(option: str, value: str, needed: str) -> Problem:
    message = f"'{value}' is without effect, or harmful, except with {needed}"
    return Problem(path=f"run.{option}", message=message, expected=needed)


def exceeds_staleness(config: RunConfig) -> bool:
    """May a step learn from groups that are older than ``run.staleness``?"""
    options = config.run
    streams = options.schedule == "stream" and options.staleness > 0
    return streams and options.too_stale == "train"
