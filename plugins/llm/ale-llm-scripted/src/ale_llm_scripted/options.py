"""The options of the model ``scripted``."""

from pathlib import Path
from typing import Literal

from attrs import field, frozen

from ale.plugin import doc, ge


@frozen(kw_only=True)
class ScriptedOptions:
    """Exactly one of `script` and `replay`."""

    script: Path | None = field(
        default=None, metadata=doc("YAML or JSON file with the lines of each task.")
    )
    replay: Path | None = field(
        default=None, metadata=doc("Run directory whose recorded answers are given again.")
    )
    latency_s: float = field(
        default=0.0, validator=ge(0), metadata=doc("Seconds before every answer.")
    )
    at_end: Literal["stop", "error"] = field(
        default="stop",
        metadata=doc("What follows the last line: an empty answer ('stop'), or an error."),
    )
    tools: bool = field(
        default=True,
        metadata=doc("The model may call tools; false for agents that use text alone."),
    )

    def __attrs_post_init__(self) -> None:
        if (self.script is None) == (self.replay is None):
            raise ValueError("give exactly one of 'script' and 'replay'")
