"""Options of the observer ``wandb``."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from attrs import field, frozen

from ale.plugin import doc, ge
from ale.strict import Former


@frozen(kw_only=True)
class WandbOptions:
    """Metrics in Weights & Biases."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "finish_timeout_s": Former(30.0),
        "start_timeout_s": Former(30.0),
        "directory": Former(None),
    }

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
    window: int = field(
        default=100, validator=ge(1), metadata=doc("Episodes in a moving mean (mean/...).")
    )
    samples: int = field(
        default=0,
        validator=ge(0),
        metadata=doc("Episodes per training step in the table 'samples', with their messages."),
    )
