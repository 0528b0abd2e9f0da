"""Options of the launchers ``local`` and ``torchrun``."""

from attrs import field, frozen

from ale.plugin import doc, ge


@frozen(kw_only=True)
class LocalOptions:
    """Processes of this machine."""

    gpus_here: tuple[str, ...] | None = field(
        default=None,
        metadata=doc(
            "Ids of the GPUs to give out, as in CUDA_VISIBLE_DEVICES; default: those of that "
            "variable, or all that the NVIDIA driver lists."
        ),
    )
    grace_s: float = field(
        default=30.0,
        validator=ge(0),
        metadata=doc(
            "Seconds from SIGTERM to SIGKILL for processes that are ended, also at a second Ctrl-C."
        ),
    )


@frozen(kw_only=True)
class TorchrunOptions(LocalOptions):
    """The trainer's ranks by torchrun."""

    rendezvous: str | None = field(
        default=None,
        metadata=doc(
            "HOST:PORT at which the machines meet if 'nodes' is above 1: `ale launch` is started "
            "on each with the same --directory."
        ),
    )
    address: str | None = field(
        default=None,
        metadata=doc("Address at which the others reach this machine; default: by its name."),
    )
    node: int = field(
        default=0,
        validator=ge(0),
        metadata=doc("Number of this machine among several; 0 starts the servers and workers."),
    )
