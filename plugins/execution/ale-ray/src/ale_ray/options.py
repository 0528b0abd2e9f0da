"""Options of the executor ``ray``."""

from attrs import field, frozen

from ale.plugin import doc, ge, gt


@frozen(kw_only=True)
class RayOptions:
    """A Ray cluster."""

    address: str | None = field(
        default=None,
        metadata=doc(
            "HOST:PORT of the cluster; default: that of RAY_ADDRESS, or one that is started here "
            "for this run."
        ),
    )
    resource: str | None = field(
        default=None,
        metadata=doc("Use only nodes with this custom resource, of which each actor takes one."),
    )
    cpus: float = field(
        default=0.0, validator=ge(0), metadata=doc("CPUs that Ray reserves for each actor.")
    )
    attempts: int = field(
        default=3,
        validator=ge(1),
        metadata=doc("Nodes that may be lost with an episode before it counts as broken."),
    )
    give_up_s: float = field(
        default=120.0,
        validator=gt(0),
        metadata=doc("Seconds without any node that can run episodes, after which the run ends."),
    )
