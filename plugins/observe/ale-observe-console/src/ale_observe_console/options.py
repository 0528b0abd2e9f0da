"""Options of the observer ``console``."""

from typing import Literal

from attrs import field, frozen

from ale.plugin import doc, ge, gt

Mode = Literal["auto", "terminal", "plain", "off"]


@frozen(kw_only=True)
class ConsoleOptions:
    """Progress on standard error."""

    mode: Mode = field(
        default="auto",
        metadata=doc(
            "terminal redraws a few lines in place, plain writes a line now and then, off writes "
            "nothing; auto is terminal if standard error is one, else plain."
        ),
    )
    refresh_s: float = field(
        default=0.1, validator=gt(0), metadata=doc("Minimum seconds between two redraws.")
    )
    quiet_interval_s: float = field(
        default=30.0, validator=gt(0), metadata=doc("Seconds between two lines in mode plain.")
    )
    name_running: int = field(
        default=3,
        validator=ge(0),
        metadata=doc("How many of the longest-running episodes to name on a terminal."),
    )
