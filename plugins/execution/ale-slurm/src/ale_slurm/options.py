"""Options of the launcher ``slurm``."""

import re
from collections.abc import Mapping
from typing import ClassVar

from attrs import field, frozen

from ale.plugin import doc, ge
from ale.strict import Former


def _time(_: object, __: object, value: str | None) -> None:
    if value is not None and not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", value):
        raise ValueError(f"expected minutes or D-HH:MM:SS, found '{value}'")


@frozen(kw_only=True)
class SlurmOptions:
    """A Slurm job."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "account": Former(None, "sbatch: [--account=NAME]"),
        "port": Former(None),
    }

    partition: str | None = field(default=None, metadata=doc("--partition of every component."))
    time: str | None = field(
        default=None,
        validator=_time,
        metadata=doc("Time limit: minutes or D-HH:MM:SS. At its end the job is requeued."),
    )
    warning_s: int = field(
        default=120,
        validator=ge(10),
        metadata=doc("Seconds before the time limit at which the run is ended."),
    )
    grace_s: float = field(
        default=30.0,
        validator=ge(0),
        metadata=doc("Seconds from SIGTERM to SIGKILL for servers and workers after the run."),
    )
    sbatch: tuple[str, ...] = field(
        default=(), metadata=doc("Further options of every component: [--constraint=a100].")
    )
    setup: tuple[str, ...] = field(
        default=(), metadata=doc("Lines of bash before everything else: [module load cuda].")
    )
    detach: bool = field(
        default=False,
        metadata=doc(
            "Submit and return; scancel ends the job, and nothing restarts lost parts of "
            "it while some of its nodes still run (see the README)."
        ),
    )
