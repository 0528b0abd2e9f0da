"""Options of the start schemes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from attrs import Attribute, field, frozen

from ale.plugin import doc, ge, gt, le, optional
from ale.strict import Former


@frozen(kw_only=True)
class InitialOptions:
    """Every rollout starts at the task's own beginning."""

    demonstrations: int = field(
        default=0,
        validator=ge(0),
        metadata=doc(
            "Number of first training steps with demonstrations, one per task, to be imitated: "
            "reference solutions, or the episodes of `expert: episodes`."
        ),
    )
    until: float | None = field(
        default=None,
        validator=optional([gt(0.0), le(1.0)]),
        metadata=doc(
            "End the demonstrations after the first step in which the success rate of the "
            "`probes` reaches this; null: after `demonstrations` steps."
        ),
    )
    probes: int = field(
        default=16,
        validator=ge(1),
        metadata=doc("With `until`: rollouts of the policy alone per demonstrated step."),
    )
    after: Literal["rollouts", "same-demonstrations"] = field(
        default="rollouts",
        metadata=doc(
            "What follows the demonstrations: rollouts of the policy, or, as a control of what "
            "rollouts add, the same demonstrations again until the end of the run."
        ),
    )

    groups: int | None = field(
        default=None,
        validator=optional(ge(1)),
        metadata=doc(
            "Number of tasks of a step whose rollouts are sampled, chosen by `choose` from those "
            "that the step draws; null: all."
        ),
    )
    choose: Literal["uniform", "band", "thompson"] = field(
        default="uniform",
        metadata=doc(
            "With `groups`, by the success rate of each task's newest rollouts: 'band' takes tasks "
            "between `low` and `high`, and those not tried yet, first; 'thompson' draws a rate "
            "from its posterior and takes those whose rollouts are the likeliest to differ."
        ),
    )
    low: float = field(
        default=0.1,
        validator=[ge(0.0), le(1.0)],
        metadata=doc("Lowest success rate of the band."),
    )
    high: float = field(
        default=0.9,
        validator=[ge(0.0), le(1.0)],
        metadata=doc("Highest success rate of the band."),
    )
    newest: int = field(
        default=16,
        validator=ge(1),
        metadata=doc("Number of a task's newest rollouts over which its success rate is taken."),
    )

    @after.validator
    def _check_after(self, attribute: "Attribute[Any]", value: str) -> None:
        if value != "rollouts" and not self.demonstrations:
            raise ValueError(f"'after: {value}' needs demonstrations above 0")


@frozen(kw_only=True)
class ExpertOptions(InitialOptions):
    """The source of the expert."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "until_own": Former("solution", "fallback_expert"),
        "keep": Former(8, "max_snapshots"),
    }

    expert: Literal["solution", "own", "episodes"] = field(
        default="solution",
        metadata=doc(
            "The task's reference solution, the policy's own successes in this run, or the "
            "successful episodes of a stored run."
        ),
    )
    expert_run: Path | None = field(
        default=None, metadata=doc("For `expert: episodes`: directory of a finished run.")
    )
    prefer: Literal["shortest", "newest"] = field(
        default="shortest",
        metadata=doc("Which of a task's successful episodes is used as the expert's."),
    )
    fallback_expert: Literal["solution", "initial"] = field(
        default="solution",
        metadata=doc(
            "With `expert: own`, before the policy's first success on a task: the reference "
            "solution is the expert, or rollouts start at the task's own beginning."
        ),
    )
    missing: Literal["error", "initial"] = field(
        default="error",
        metadata=doc("For a task without an expert: an error, or its own beginning as the start."),
    )
    check: Literal["exact", "exit_code", "off"] = field(
        default="exact",
        metadata=doc(
            "What must equal the recording when an episode is replayed: each observation's text, "
            "its exit codes, or nothing. A reference solution has no recording."
        ),
    )
    restore: Literal["replay", "fork"] = field(
        default="replay",
        metadata=doc(
            "How a rollout reaches its start: by replaying all commands before it, or by forking a "
            "snapshot of a sandbox at the start, if the fork is verified to be exact."
        ),
    )
    max_snapshots: int = field(
        default=8,
        validator=ge(1),
        metadata=doc(
            "With `restore: fork`: maximum number of open snapshots; the least recently used is "
            "closed."
        ),
    )

    def __attrs_post_init__(self) -> None:
        if (self.expert == "episodes") != (self.expert_run is not None):
            raise ValueError("give 'expert_run' with 'expert: episodes', and only with it")


@frozen(kw_only=True)
class RollbackOptions(ExpertOptions):
    """Start before the expert's last turn; move back when the success rate is high enough."""

    threshold: float = field(
        default=0.5,
        validator=[gt(0.0), le(1.0)],
        metadata=doc("Success rate at which the start moves back."),
    )
    stride: int = field(
        default=1, validator=ge(1), metadata=doc("Number of turns by which the start moves.")
    )
    min_rollouts: int = field(
        default=8,
        validator=ge(1),
        metadata=doc(
            "The success rate is over the newest steps that have at least this many graded "
            "rollouts from the start in total; with fewer, the start stays."
        ),
    )
    forward: bool = field(
        default=False,
        metadata=doc("Move the start forward again if the success rate is 0."),
    )


@frozen(kw_only=True)
class ParallelOptions(ExpertOptions):
    """Several starts per step, drawn at random; the task's own beginning is always one."""

    anchors: int = field(
        default=4,
        validator=ge(1),
        metadata=doc("Number of starts of a task in a step; its rollouts are split among them."),
    )


@frozen(kw_only=True)
class PrefixOptions:
    """Start after every prefix of stored episodes, successes and failures."""

    run: Path = field(metadata=doc("Directory of the run with the episodes."))
    episodes: int = field(
        default=100, validator=ge(1), metadata=doc("Most episodes whose states are started from.")
    )
    per_task: int = field(
        default=4,
        validator=ge(1),
        metadata=doc("Most episodes of one task, successes and failures in turn."),
    )
    step: int | None = field(
        default=None,
        validator=optional(ge(0)),
        metadata=doc("Take the episodes of this training step; null: of all."),
    )
    check: Literal["exact", "exit_code", "off"] = field(
        default="exact",
        metadata=doc(
            "What must equal the recording when an episode is replayed: each observation's text, "
            "its exit codes, or nothing."
        ),
    )
