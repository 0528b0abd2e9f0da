"""Options of the observer ``audit``."""

from attrs import field, frozen

from ale.plugin import doc


@frozen(kw_only=True)
class AuditOptions:
    """Writes every event to audit.jsonl in the run directory, as a hash chain."""

    fsync: bool = field(
        default=False,
        metadata=doc("Wait for the disk at each event, so that not even a power loss loses one."),
    )
