"""The state that all who work on a run share: its parts, observers, times and early stop."""

import asyncio
import math
import traceback
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pluggy
from attrs import Factory, asdict, define, field, frozen

from ale import hookspecs
from ale._config import RunConfig
from ale._registry import Registry
from ale._run.adaptive import START, Signs, free_memory
from ale._run.control import Control
from ale._run.episode import CancelledByUserError
from ale._run.interrupt import Interrupt
from ale._run.parts import EVENTS, Parts, Tasks
from ale._run.spending import Spending, spending_of
from ale._run.timeouts import Supervisor
from ale._run.watching import Watch, figures_of, post
from ale._store import RunDirectory
from ale._store.diagnosis import Causes
from ale._store.groups import GroupKey
from ale.errors import AleError
from ale.plugin import PROJECT, BuildContext
from ale.protocols import CountsRefusals
from ale.text import shorten
from ale.types import Episode, StepReport


class Times:
    """Measures the wall-clock seconds of the run's activities and of its episodes' stages.

    The run does, or waits for, one thing at a time: the seconds of its activities, with `idle` for
    the rest, add up to the wall clock since the previous step. The seconds of episodes overlap, and
    with `run.staleness` above 0 most of them pass before the run waits for these episodes.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since = monotonic()
        self._run: dict[str, float] = defaultdict(float)
        self._episodes: dict[GroupKey, dict[str, float]] = {}
        self._held_up = 0.0
        self._held_up_since: float | None = None

    def begin(self) -> None:
        """Start measuring the first step."""
        self._since = self._monotonic()

    @contextmanager
    def on(self, activity: str) -> Iterator[None]:
        """Add the time of the block to an activity. Blocks must not be nested."""
        started = self._monotonic()
        try:
            yield
        finally:
            self._run[activity] += self._monotonic() - started

    @contextmanager
    def holding_up_rollouts(self) -> Iterator[None]:
        """Measure a block in which no further group of a stream may start."""
        self._held_up_since = self._monotonic()
        try:
            yield
        finally:
            self._held_up += self._monotonic() - self._held_up_since
            self._held_up_since = None

    def add(self, episode: Episode) -> None:
        """Add a training episode's stages to its group; an evaluation episode is not counted."""
        if episode.split == "train":
            group = GroupKey(episode.step, episode.task_id, episode.start)
            spent = self._episodes.setdefault(group, defaultdict(float))
            for stage, seconds in _seconds(episode).items():
                spent[stage] += seconds

    def of_step(self, groups: Collection[GroupKey], *, stream: bool = False) -> dict[str, float]:
        """The seconds of a finished step that learned from these groups, as metrics.

        Args:
            stream: groups are sampled in a stream, whose start of groups training may hold up.
        """
        now = self._monotonic()
        wall = now - self._since
        spent = {**self._run, "idle": max(0.0, wall - math.fsum(self._run.values()))}
        for stages in [self._episodes.pop(group, {}) for group in sorted(groups)]:
            for stage, seconds in stages.items():
                name = f"episodes.{stage}"
                spent[name] = spent.get(name, 0.0) + seconds
        waiting = self._waiting(now, wall, stream=stream)
        self._since = now
        # An activity of an earlier step is reported as 0: a gap in its curve would mislead.
        self._run.update(dict.fromkeys(self._run, 0.0))
        return waiting | {f"seconds.{name}": seconds for name, seconds in sorted(spent.items())}

    def _waiting(self, now: float, wall: float, *, stream: bool) -> dict[str, float]:
        """The shares of a step in which training waited for groups, and groups for training."""
        if self._held_up_since is not None:
            self._held_up += now - self._held_up_since
            self._held_up_since = now
        held_up, self._held_up = self._held_up, 0.0
        found = {"trainer_waiting_share": self._run["rollouts"] / wall if wall else 0.0}
        if stream:
            found["rollouts_waiting_share"] = held_up / wall if wall else 0.0
        return found


def _seconds(episode: Episode) -> Mapping[str, float]:
    """Seconds by stage, and within the agent's stage, those in its model and in its tools."""
    model = tools = 0.0
    for turn in episode.trajectory.turns:
        used = math.fsum(observation.duration_s for observation in turn.observations)
        tools += used
        model += max(0.0, turn.duration_s - used)
    return {**episode.seconds, "sampling": model, "tools": tools}


_WIDTH = 600


class StoppedEarlyError(AleError):
    """The first episodes of this process all broke for the same reason, which is the message."""


class EarlyStop:
    """Watches the first finished episodes of a process.

    Args:
        limit: number of broken episodes that stop the run; None never stops it.
    """

    def __init__(self, limit: int | None) -> None:
        self.cause: str | None = None
        """The common cause, once the run is stopped."""
        self.n_broken = 0
        """Broken episodes so far, as long as no other outcome was seen."""
        self._limit = limit
        self._causes = Causes()

    def add(self, episode: Episode) -> None:
        """Count a finished episode.

        Raises:
            StoppedEarlyError: it is the last of the first `limit`, all broken for the same reason.
        """
        if self._limit is None:
            return
        if episode.failure is not None and episode.failure.kind == CancelledByUserError.__name__:
            return  # it says nothing about the others
        self._causes.add(episode)
        if episode.failure is None or len(self._causes) > 1:
            self._limit = None  # the run works, or fails in several ways: check no more
            return
        self.n_broken += 1
        if self.n_broken >= self._limit:
            failure = episode.failure
            message = f"{failure.stage}: {failure.kind}: {failure.message}"
            self.cause = shorten(message, _WIDTH)  # wide: the message ends with the remedy
            raise StoppedEarlyError(self.cause)


class Observers:
    """The observers of one run: those in the config, and packages with their own event hooks."""

    def __init__(
        self,
        products: Sequence[tuple[str, object]],
        registry: Registry,
        report: Callable[[str], None],
    ) -> None:
        """Register the observers.

        Args:
            products: those of the config, each after its name.
            report: called with a message, once for each observer that fails.
        """
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._report = report
        self._names: dict[int, str] = {}
        for package in registry.packages:
            if any(hasattr(package.module, event) for event in EVENTS):
                self._manager.register(package.module)
                self._names[id(package.module)] = package.distribution
        for name, product in products:
            self._manager.register(product)
            self._names[id(product)] = name

    def notify(self, hook: str, event: Any) -> None:
        """Call an event hook of each observer."""
        for implementation in reversed(getattr(self._manager.hook, hook).get_hookimpls()):
            try:
                # As in pluggy, an implementation may take fewer arguments than the hook has.
                implementation.function(*([event] if implementation.argnames else []))
            except Exception as error:
                self._manager.unregister(implementation.plugin)
                name = self._names[id(implementation.plugin)]
                self._report(f"observer '{name}' failed in {hook} and was dropped:{_cause(error)}")


def _cause(error: Exception) -> str:
    """The error, with its traceback unless it says by itself what is wrong outside the code."""
    if isinstance(error, AleError | OSError):
        return f" {type(error).__name__}: {error}"
    return f"\n{traceback.format_exc()}"


def _observers(session: "Session") -> Observers:
    names = (each.name for each in session.config.observers)
    products = [*zip(names, session.parts.observers, strict=True)]
    return Observers(products, session.registry, session.say)


def _at_first(config: RunConfig) -> int:
    """Episodes at once when a run begins, or is resumed."""
    return START if config.run.concurrency == "auto" else config.run.concurrency


REFUSED = "requests_refused"
"""Key of an episode's metadata: how many requests the server of a worker's model has refused since
the episode before it. The run's own model does not know of them."""
_MEMORY_S = 1.0
"""Seconds from one look at the free memory to the next."""


@define
class Overload:
    """Looks for signs that too much is done at once.

    Args:
        llm: the model, which may count refusals.
    """

    llm: object
    broken: int = 0
    """Attempts at episodes that broke."""
    elsewhere: int = 0
    """Requests that were refused to workers."""
    _memory: float = field(default=1.0, init=False)
    _looked: float | None = field(default=None, init=False)

    def add(self, episode: Episode) -> None:
        """Count the attempts at an episode that broke, and what was refused to its worker."""
        refused = episode.metadata.get(REFUSED)
        # Other metadata may come from an agent.
        self.elsewhere += refused if isinstance(refused, int) else 0
        failures = [*episode.earlier_failures, *([episode.failure] if episode.failure else [])]
        self.broken += sum(each.kind != CancelledByUserError.__name__ for each in failures)

    def signs(self, now: float) -> Signs:
        """The signs at this time."""
        if self._looked is None or now - self._looked >= _MEMORY_S:
            self._looked, self._memory = now, free_memory()
        refused = self.llm.refused if isinstance(self.llm, CountsRefusals) else 0
        return Signs(refused=refused + self.elsewhere, broken=self.broken, memory=self._memory)


@frozen(kw_only=True)
class Session:
    """The work of one process on a run, whose parts are built and checked."""

    config: RunConfig
    registry: Registry = field(repr=False)
    parts: Parts
    tasks: Tasks = field(repr=False)
    store: RunDirectory
    context: BuildContext
    interrupt: Interrupt
    report: Callable[[str], None]
    """Shows a message to the user."""
    supervisor: Supervisor = field(factory=Supervisor)
    times: Times = field(
        default=Factory(lambda self: Times(self.context.monotonic), takes_self=True), init=False
    )
    early_stop: EarlyStop = field(
        default=Factory(lambda self: EarlyStop(self.config.run.stop_after_broken), takes_self=True),
        init=False,
    )
    control: Control = field(
        default=Factory(lambda self: Control(_at_first(self.config)), takes_self=True),
        init=False,
    )
    overload: "Overload" = field(
        default=Factory(lambda self: Overload(self.parts.llm), takes_self=True), init=False
    )
    spending: Spending | None = field(
        default=Factory(lambda self: spending_of(self.config, self.store), takes_self=True),
        init=False,
    )
    """None without a budget."""
    watch: Watch = field(
        default=Factory(lambda self: Watch.of(self.config), takes_self=True), init=False
    )
    posting: set[asyncio.Task[None]] = field(factory=set, init=False)
    """Alerts on their way."""
    observers: Observers = field(default=Factory(_observers, takes_self=True), init=False)

    def worked(self, episode: str, *, ended: bool = False) -> None:
        """Count a turn or the end of an episode; the number of episodes at once may follow.

        Args:
            episode: its id.
            ended: it is stored, or withdrawn.
        """
        control = self.control
        if ended:
            control.at_work.discard(episode)
        if (adaptive := control.adaptive) is None:
            return
        now, proved = self.context.monotonic(), adaptive.proved
        change = adaptive.finish(episode, now, self.overload.signs(now), ended=ended)
        if change is None:
            return
        facts = asdict(change) | {"before": control.concurrency}
        control.concurrency = change.limit
        control.changed()
        self.record_event("concurrency", **facts)
        if change.proved != proved:
            self.report(f"concurrency {change.proved}: {change.why}")

    def spend(self, episode: Episode) -> None:
        """Count a stored episode; let the run drain if its budget is spent."""
        if self.spending is not None:
            self.spending.add(episode)
            self.check_budget()

    def budget_spent(self) -> str | None:
        """The part of the budget that is spent, in words; None while something is left of all."""
        return None if self.spending is None else self.spending.spent()

    def check_budget(self) -> None:
        """Let the run drain if its budget is spent."""
        if (spent := self.budget_spent()) is not None:
            self.interrupt.drain(f"Finishing the running episodes; the budget is spent: {spent}.")

    def check_rules(self, report: StepReport) -> None:
        """Alert if a rule begins to hold with a step; let the run drain if it is to stop."""
        watch = self.watch
        if not watch.stop_if and not watch.alert_if:
            return
        figures = figures_of(report.metrics, self.store.path)
        for message in watch.missing(figures):
            self.say(message)
        for alert in watch.of_step(report.step, figures):
            facts = {"step": alert.step, "rule": alert.rule.text, "value": alert.value}
            facts["stops"] = alert.stops
            self.record_event("alert", **facts)
            self.report(str(alert))
            self._post({"run": self.context.run_id, **facts, "message": str(alert)})
        if watch.stopped is not None:
            self.interrupt.drain("Finishing the running episodes: a rule stops the run.")

    def _post(self, content: Mapping[str, Any]) -> None:
        variable = self.config.run.webhook_env
        if variable is None:
            return

        async def send() -> None:
            try:
                await post(self.context.environ[variable], content)
            except OSError as error:
                self.say(f"an alert did not reach the address in {variable}: {error}")

        task = asyncio.create_task(send())
        self.posting.add(task)
        task.add_done_callback(self.posting.discard)

    def record_event(self, name: str, **facts: object) -> None:
        """Append to the event log."""
        self.store.add_event(name, self.context.clock(), **facts)

    def say(self, message: str) -> None:
        """Show the user a message, and append it to the event log."""
        self.record_event("reported", message=message)
        self.report(message)
