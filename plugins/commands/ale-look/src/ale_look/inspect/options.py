"""Options of the observer ``report``."""

from attrs import field, frozen

from ale.plugin import doc, ge, gt


@frozen(kw_only=True)
class ReportOptions:
    """Writes an HTML report into the run directory when the run ends."""

    episodes: int = field(
        default=200,
        validator=ge(0),
        metadata=doc("Include at most this many episodes, turn by turn."),
    )
    megabytes: float = field(
        default=8.0,
        validator=ge(0),
        metadata=doc("Total size limit of these episodes (10^6 bytes)."),
    )
    largest_run_mb: float = field(
        default=1000.0,
        validator=gt(0),
        metadata=doc("Skip the report if the stored episodes are larger, in MB; see `ale report`."),
    )
