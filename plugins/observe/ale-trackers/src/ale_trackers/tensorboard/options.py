"""Options of the observer ``tensorboard``."""

from pathlib import Path

from attrs import field, frozen

from ale.plugin import doc, ge, gt


@frozen(kw_only=True)
class TensorBoardOptions:
    """Metrics as TensorBoard event files."""

    directory: Path | None = field(
        default=None, metadata=doc("Folder for event files; tensorboard/ in the run if null.")
    )
    window: int = field(
        default=100, validator=ge(1), metadata=doc("Episodes in a moving mean (mean/...).")
    )
    finish_timeout_s: float = field(
        default=10.0,
        validator=gt(0),
        metadata=doc("Seconds that the end of the run waits for pending writes."),
    )
