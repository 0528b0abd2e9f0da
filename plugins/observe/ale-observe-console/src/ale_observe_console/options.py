"""Options of the observer ``console``."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from attrs import field, frozen

from ale.plugin import doc, ge
from ale.strict import Former

Mode = Literal["auto", "terminal", "plain", "off"]


@frozen(kw_only=True)
class ConsoleOptions:
    """Progress on standard error."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "refresh_s": Former(0.1),
        "quiet_interval_s": Former(30.0),
    }

    mode: Mode = field(
        default="auto",
        metadata=doc(
            "terminal redraws a few lines in place, plain writes a line now and then, off writes "
            "nothing; auto is terminal if standard error is one, else plain."
        ),
    )
    name_running: int = field(
        default=3,
        validator=ge(0),
        metadata=doc("How many of the longest-running episodes to name on a terminal."),
    )
