"""Options of the start schemes."""

from pathlib import Path
from typing import Literal

from attrs import field, frozen
from attrs.validators import optional

from ale.plugin import doc, ge, gt, le


@frozen(kw_only=True)
class InitialOptions:
    """Every rollout starts at the task's own beginning."""

    demonstrations: int = field(
        default=0,
        validator=ge(0),
        metadata=doc(
            "So many first training steps say whole ways through the tasks, one rollout per task, "
            "to be imitated: the reference solutions, or the episodes of `expert: episodes`."
        ),
    )
    until: float | None = field(
        default=None,
        validator=optional([gt(0.0), le(1.0)]),
        metadata=doc(
            "End the demonstrations after the first step in which the policy's own success in "
            "`probes` reaches this; null demonstrates in all of the steps."
        ),
    )
    probes: int = field(
        default=16,
        validator=ge(1),
        metadata=doc("With `until`: episodes of its own in each step of demonstrations."),
    )


@frozen(kw_only=True)
class ExpertOptions(InitialOptions):
    """Who the expert is."""

    expert: Literal["solution", "own", "episodes"] = field(
        default="solution",
        metadata=doc(
            "The task's reference solution, the policy's own successes in this run, or the "
            "successful episodes of a stored run."
        ),
    )
    expert_run: Path | None = field(
        default=None, metadata=doc("For `expert: episodes`: directory of a run that has ended.")
    )
    prefer: Literal["shortest", "newest"] = field(
        default="shortest",
        metadata=doc("Which of a task's successful episodes is the expert's."),
    )
    until_own: Literal["solution", "initial"] = field(
        default="solution",
        metadata=doc(
            "For `expert: own`, until the policy has succeeded: the reference solution is the "
            "expert, or the task's own beginning is the start."
        ),
    )
    missing: Literal["error", "initial"] = field(
        default="error",
        metadata=doc("A task without an expert: an error, or it starts at its own beginning."),
    )
    check: Literal["exact", "exit_code", "off"] = field(
        default="exact",
        metadata=doc(
            "What must be as recorded when an episode is repeated: each observation's text, the "
            "exit codes that it shows, or nothing. A reference solution has no record."
        ),
    )
    restore: Literal["replay", "fork"] = field(
        default="replay",
        metadata=doc(
            "How a rollout comes to its start: all commands before it run again, or its sandbox "
            "is forked from one that has been there, where that is found to be the same."
        ),
    )
    keep: int = field(
        default=8,
        validator=ge(1),
        metadata=doc("With `restore: fork`: starts whose state is kept, those used last."),
    )

    def __attrs_post_init__(self) -> None:
        if (self.expert == "episodes") != (self.expert_run is not None):
            raise ValueError("give 'expert_run' with 'expert: episodes', and only with it")


@frozen(kw_only=True)
class RollbackOptions(ExpertOptions):
    """Start before the expert's last turn, and further back whenever success recovers."""

    threshold: float = field(
        default=0.5,
        validator=[gt(0.0), le(1.0)],
        metadata=doc("Success rate from a start at which it moves back."),
    )
    stride: int = field(
        default=1, validator=ge(1), metadata=doc("Turns that a start moves at once.")
    )
    min_rollouts: int = field(
        default=8,
        validator=ge(1),
        metadata=doc(
            "Newest graded rollouts from a start that its success rate is taken over, in whole "
            "steps; it stays where it is until there are as many."
        ),
    )
    forward: bool = field(
        default=False,
        metadata=doc("Move a start forward again when none of the rollouts looked at succeeds."),
    )


@frozen(kw_only=True)
class ParallelOptions(ExpertOptions):
    """Several starts at once, drawn anew for each step; the task's own beginning is always one."""

    anchors: int = field(
        default=4,
        validator=ge(1),
        metadata=doc("Starts of a task in a step; its rollouts are split among them."),
    )
