"""Writes the report when the run ends."""

import logging
from pathlib import Path

from attrs import frozen

from ale.errors import AleError
from ale.plugin import hookimpl
from ale.runs import RunReader
from ale.types import RunFinished
from ale_look.inspect.options import ReportOptions
from ale_look.view.single import NAME, write_report

LARGEST_RUN_MB = 1000.0
"""Size of the stored episodes above which there is no report, in 10^6 bytes."""
MEGABYTES = 8.0
"""Total size limit of the episodes in a report."""
logger = logging.getLogger(__name__)


@frozen(kw_only=True)
class Reporter:
    """Stateless: at the end everything is on disk."""

    options: ReportOptions

    @hookimpl
    def ale_run_finished(self, event: RunFinished) -> None:
        """Write the report, whatever the outcome."""
        directory = Path(event.directory)
        stored = directory / "episodes.jsonl"
        try:
            size = stored.stat().st_size / 1e6 if stored.exists() else 0.0
            if size > LARGEST_RUN_MB:
                logger.warning(
                    "no report: %s has %.0f MB; write it with `ale report %s`",
                    stored,
                    size,
                    directory,
                )
                return
            write_report(
                RunReader(directory),
                directory / NAME,
                episodes=self.options.episodes,
                megabytes=MEGABYTES,
            )
        except (AleError, OSError) as error:
            # The run is complete; its report can be written later.
            logger.warning("no report: %s", error)
