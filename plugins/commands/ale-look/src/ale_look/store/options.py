"""Options of the observer ``store``."""

from pathlib import Path

from attrs import field, frozen

from ale.plugin import doc, gt


@frozen(kw_only=True)
class StoreOptions:
    """Keeps a database of runs up to date while a run is running."""

    file: Path | None = field(
        default=None,
        metadata=doc("SQLite file; null: index.sqlite beside the run directory."),
    )
    url_env: str | None = field(
        default=None,
        metadata=doc("Environment variable with the URL of a PostgreSQL database; overrides file."),
    )
    every_s: float = field(
        default=5.0,
        validator=gt(0),
        metadata=doc("Shortest time between two updates, in seconds."),
    )
    finish_timeout_s: float = field(
        default=30.0,
        validator=gt(0),
        metadata=doc("Seconds that the end of the run waits for the last update."),
    )
