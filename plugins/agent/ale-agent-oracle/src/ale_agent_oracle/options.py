"""The options of the agents ``oracle`` and ``attack``."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from attrs import field, frozen

from ale.plugin import doc, gt, optional
from ale.strict import Former

AttackName = Literal[
    "verdict-file",
    "late-writer",
    "test-replacer",
    "test-hooks",
    "module-beside",
    "site-hook",
    "tools",
    "shell-start",
    "git-hooks",
    "every-answer",
    "empty-work",
    "quitting-work",
    "agreeing-work",
    "broken-sandbox",
    "read-answers",
]


@frozen(kw_only=True)
class OracleOptions:
    """Runs a task's reference solution, one command after the other."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "max_output_bytes": Former(16384),
    }

    tool_timeout_s: float | None = field(
        default=300.0, validator=optional(gt(0)), metadata=doc("Seconds for one command.")
    )
    time_limit_s: float | None = field(
        default=600.0,
        validator=optional(gt(0)),
        metadata=doc("Wall-clock seconds for the solution."),
    )


@frozen(kw_only=True)
class AttackOptions(OracleOptions):
    """Tries to get a reward without solving the task."""

    attack: AttackName = field(
        metadata=doc("What it tries; read-answers looks for the solution and the tests.")
    )
