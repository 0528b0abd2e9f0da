"""Options of the executor and of the launcher ``ray``."""

from typing import Literal

from attrs import field, frozen

from ale.plugin import doc, ge, gt


@frozen(kw_only=True)
class RayOptions:
    """A Ray cluster."""

    address: str | None = field(
        default=None,
        metadata=doc(
            "HOST:PORT of the cluster; default: the cluster of RAY_ADDRESS, or one that is started "
            "here for this run."
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
        metadata=doc(
            "Number of nodes lost while they run an episode after which it counts as broken."
        ),
    )
    give_up_s: float = field(
        default=120.0,
        validator=gt(0),
        metadata=doc("Seconds without any node that can run episodes, after which the run ends."),
    )


@frozen(kw_only=True)
class RayLaunchOptions:
    """The processes of a launch on a Ray cluster."""

    address: str | None = field(
        default=None,
        metadata=doc(
            "HOST:PORT of the cluster; default: the cluster of RAY_ADDRESS, or one that is started "
            "here for this launch."
        ),
    )
    resource: str | None = field(
        default=None, metadata=doc("Use only nodes with this custom resource.")
    )
    strategy: Literal["spread", "pack"] = field(
        default="spread",
        metadata=doc(
            "'spread' the processes over the nodes or 'pack' them on few, as far as possible, by a "
            "placement group."
        ),
    )
    give_up_s: float = field(
        default=1800.0,
        validator=gt(0),
        metadata=doc("Seconds without room for a process, after which the launch ends."),
    )
    grace_s: float = field(
        default=30.0,
        validator=ge(0),
        metadata=doc(
            "Seconds from SIGTERM to SIGKILL for processes that are ended, also at a second Ctrl-C."
        ),
    )
