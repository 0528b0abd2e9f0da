"""Options of the observer ``report``."""

from collections.abc import Mapping
from typing import ClassVar

from attrs import field, frozen

from ale.plugin import doc, ge
from ale.strict import Former


@frozen(kw_only=True)
class ReportOptions:
    """Writes an HTML report into the run directory when the run ends."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "largest_run_mb": Former(1000.0, "`ale report RUN`, which has no limit"),
        "megabytes": Former(8.0, "`ale report --megabytes N`"),
    }

    episodes: int = field(
        default=200,
        validator=ge(0),
        metadata=doc("Include at most this many episodes, turn by turn."),
    )
