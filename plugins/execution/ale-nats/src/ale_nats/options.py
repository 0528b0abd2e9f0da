"""Options of the executor and the observer ``nats``."""

from collections.abc import Mapping
from typing import ClassVar

from attrs import field, frozen

from ale.plugin import doc, ge, gt
from ale.strict import Former
from ale_nats_client.options import ServerOptions


@frozen(kw_only=True)
class NatsOptions(ServerOptions):
    """Episodes on workers over NATS JetStream."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "silence_s": Former(30.0),
        "queue_limit": Former(10_000),
    }

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
    give_up_s: float = field(
        default=600.0,
        validator=gt(0),
        metadata=doc("Seconds without a connection to the server until the run ends."),
    )


@frozen(kw_only=True)
class EventOptions(ServerOptions):
    """The events of a run, published over NATS JetStream."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "connect_timeout_s": Former(5.0),
        "finish_timeout_s": Former(30.0),
    }
