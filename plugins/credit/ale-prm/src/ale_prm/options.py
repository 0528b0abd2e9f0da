"""Options of the scorer."""

from pathlib import Path

from attrs import field, frozen

from ale.plugin import doc


@frozen(kw_only=True)
class PrmOptions:
    """A head on a frozen model."""

    head: Path = field(metadata=doc("Folder that `ale train prm` wrote."))
    model: str | None = field(
        default=None,
        metadata=doc(
            "The frozen model: a folder, or a name on the hub. Default: where it was when the head "
            "was trained."
        ),
    )
