"""Options of the observer ``tensorboard``."""

from collections.abc import Mapping
from typing import ClassVar

from attrs import field, frozen

from ale.plugin import doc, ge
from ale.strict import Former


@frozen(kw_only=True)
class TensorBoardOptions:
    """Metrics as TensorBoard event files."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "finish_timeout_s": Former(10.0),
        "directory": Former(None),
    }

    window: int = field(
        default=100, validator=ge(1), metadata=doc("Episodes in a moving mean (mean/...).")
    )
