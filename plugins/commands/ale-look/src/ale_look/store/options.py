"""Options of the observer ``store``."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from attrs import field, frozen

from ale.plugin import doc
from ale.strict import Former


@frozen(kw_only=True)
class StoreOptions:
    """Keeps a database of runs up to date while a run is running."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "every_s": Former(5.0),
        "finish_timeout_s": Former(30.0),
    }

    file: Path | None = field(
        default=None,
        metadata=doc("SQLite file; null: index.sqlite beside the run directory."),
    )
    url_env: str | None = field(
        default=None,
        metadata=doc("Environment variable with the URL of a PostgreSQL database; overrides file."),
    )
