"""Options of the observer ``wandb``."""

from pathlib import Path
from typing import Literal

from attrs import field, frozen

from ale.plugin import doc, ge, gt


@frozen(kw_only=True)
class WandbOptions:
    """Metrics in Weights & Biases."""

    project: str = field(default="ale", metadata=doc("Project to put the run in."))
    name: str | None = field(default=None, metadata=doc("Name of the run; the run's id if null."))
    mode: Literal["offline", "online", "disabled"] = field(
        default="offline",
        metadata=doc(
            "offline writes files for `wandb sync`; online sends them too and needs a key "
            "(`wandb login`, or WANDB_API_KEY); disabled does nothing."
        ),
    )
    tags: tuple[str, ...] = field(default=(), metadata=doc("Tags of the run."))
    directory: Path | None = field(
        default=None, metadata=doc("Folder for wandb's files; the run directory if null.")
    )
    window: int = field(
        default=100, validator=ge(1), metadata=doc("Episodes in a moving mean (mean/...).")
    )
    samples: int = field(
        default=0,
        validator=ge(0),
        metadata=doc("Episodes per training step in the table 'samples', with their messages."),
    )
    start_timeout_s: float = field(
        default=30.0,
        validator=gt(0),
        metadata=doc("Online: seconds to reach the server before continuing offline."),
    )
    finish_timeout_s: float = field(
        default=30.0,
        validator=gt(0),
        metadata=doc("Seconds that the end of the run waits for pending uploads."),
    )
