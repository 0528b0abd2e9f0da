"""The options of the agents ``oracle`` and ``attack``."""

from typing import Literal

from attrs import field, frozen

from ale.plugin import doc, ge, gt, optional

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
    "broken-sandbox",
    "read-answers",
]


@frozen(kw_only=True)
class OracleOptions:
    """Runs a task's reference solution, one command after the other."""

    tool_timeout_s: float | None = field(
        default=300.0, validator=optional(gt(0)), metadata=doc("Seconds for one command.")
    )
    time_limit_s: float | None = field(
        default=600.0,
        validator=optional(gt(0)),
        metadata=doc("Wall-clock seconds for the solution."),
    )
    max_output_bytes: int = field(
        default=16384,
        validator=ge(0),
        metadata=doc(
            "Bytes that are recorded of each of a command's stdout and stderr: head and tail."
        ),
    )


@frozen(kw_only=True)
class AttackOptions(OracleOptions):
    """Tries to get a reward without solving the task."""

    attack: AttackName = field(
        metadata=doc("What it tries; read-answers looks for the solution and the tests.")
    )
