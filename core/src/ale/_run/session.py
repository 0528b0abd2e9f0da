"""The state that all who work on a run share."""

from collections.abc import Callable

from attrs import Factory, field, frozen

from ale._config import RunConfig
from ale._registry import Registry
from ale._run.early_stop import EarlyStop
from ale._run.hooks import Observers
from ale._run.interrupt import Interrupt
from ale._run.parts import Parts, Tasks
from ale._run.timeouts import Supervisor
from ale._run.times import Times
from ale._store import RunDirectory
from ale.plugin import BuildContext


def _observers(session: "Session") -> Observers:
    names = (each.name for each in session.config.observers)
    products = [*zip(names, session.parts.observers, strict=True)]
    return Observers(products, session.registry, session.say)


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
    observers: Observers = field(default=Factory(_observers, takes_self=True), init=False)

    def record_event(self, name: str, **facts: object) -> None:
        """Append to the event log."""
        self.store.add_event(name, self.context.clock(), **facts)

    def say(self, message: str) -> None:
        """Show the user a message, and append it to the event log."""
        self.record_event("reported", message=message)
        self.report(message)
