"""Options of the sandbox ``local``."""

from attrs import field, frozen

from ale.plugin import doc, ge, optional
from ale_sandboxing.process.options import HostOptions


@frozen(kw_only=True)
class LocalOptions(HostOptions):
    """Commands on the host itself, in a workspace of their own. Does not isolate."""

    memory_mb: int | None = field(
        default=8192,
        validator=optional(ge(16)),
        metadata=doc(
            "Private writable memory of each process, MiB; a task may ask for its own limit."
        ),
    )
    processes: int | None = field(
        default=4096,
        validator=optional(ge(8)),
        metadata=doc("Processes and threads beyond those that run when the backend starts."),
    )
