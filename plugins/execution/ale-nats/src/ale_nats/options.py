"""Options of the executor and the observer ``nats``."""

from attrs import field, frozen

from ale.plugin import doc, ge, gt
from ale_nats_client.options import ServerOptions


@frozen(kw_only=True)
class NatsOptions(ServerOptions):
    """Episodes on workers over NATS JetStream."""

    labels: tuple[str, ...] = field(
        default=(), metadata=doc("Labels that a worker needs to take jobs of this run.")
    )
    lost_after_s: float = field(
        default=30.0,
        validator=ge(1.0),
        metadata=doc("Seconds without a sign of life until a worker's jobs are given to others."),
    )
    deliveries: int = field(
        default=5,
        validator=ge(1),
        metadata=doc(
            "Number of times that a job is given to a worker and lost before its episode counts as "
            "broken."
        ),
    )
    queue_limit: int = field(
        default=10_000,
        validator=ge(1),
        metadata=doc(
            "Maximum number of jobs, of all runs together, that the server holds, set by the first "
            "run; a run waits while it is full."
        ),
    )
    give_up_s: float = field(
        default=600.0,
        validator=gt(0),
        metadata=doc("Seconds without a connection to the server until the run ends."),
    )
    silence_s: float = field(
        default=30.0,
        validator=gt(0),
        metadata=doc("Seconds without any worker after which this is reported, once."),
    )


@frozen(kw_only=True)
class EventOptions(ServerOptions):
    """The events of a run, published over NATS JetStream."""

    connect_timeout_s: float = field(
        default=5.0, validator=gt(0), metadata=doc("Seconds to reach the server.")
    )
    finish_timeout_s: float = field(
        default=30.0,
        validator=gt(0),
        metadata=doc("Seconds that the end of the run waits until every event is stored."),
    )
