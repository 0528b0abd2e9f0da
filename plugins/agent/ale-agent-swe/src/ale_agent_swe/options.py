"""The options of ``plan-patch-test``."""

from typing import Literal

from attrs import field, frozen

from ale.plugin import doc, ge, gt, optional


@frozen(kw_only=True)
class PlanPatchTestOptions:
    """A plan, a patch, its tests, and repairs; each is a phase that the chunker 'phase' finds."""

    max_repairs: int = field(
        default=3,
        validator=ge(0),
        metadata=doc("Maximum number of repairs after tests that failed."),
    )
    test_command: str = field(
        default="",
        metadata=doc(
            "Command to run after each patch. Empty: the model says what to run, in a phase 'test'."
        ),
    )
    tool_format: Literal["auto", "native", "text"] = field(
        default="auto",
        metadata=doc("Native tool calls or fenced text; auto is native if the model has it."),
    )
    max_steps: int | None = field(
        default=None,
        validator=optional(ge(1)),
        metadata=doc("Maximum number of commands, plans and patches in total."),
    )
    max_turns: int | None = field(
        default=40, validator=optional(ge(1)), metadata=doc("Completions in an episode.")
    )
    tool_timeout_s: float | None = field(
        default=120.0,
        validator=optional(gt(0)),
        metadata=doc("Seconds for one command or test run."),
    )
    time_limit_s: float | None = field(
        default=1800.0,
        validator=optional(gt(0)),
        metadata=doc("Wall-clock seconds for an episode."),
    )
    context_max_tokens: int | None = field(
        default=None,
        validator=optional(ge(256)),
        metadata=doc("Tokens after which the conversation ends; default: the model's limit."),
    )
    max_output_bytes: int = field(
        default=8192,
        validator=ge(256),
        metadata=doc(
            "Bytes of output that the model is shown; longer output is cut in the middle."
        ),
    )
    listed_files: int = field(
        default=200,
        validator=ge(0),
        metadata=doc("Number of the repository's files that {files} lists."),
    )
    system_prompt: str = field(
        default="", metadata=doc("System message before all others; empty for none.")
    )
    plan_prompt: str = field(
        default="{goal}\n\nFiles:\n{files}\n\nFirst find out what is wrong, and write a short "
        "plan. {how}",
        metadata=doc("First message: {goal} is the task's; {how} says how to act in this phase."),
    )
    patch_prompt: str = field(
        default="Now change the code. {how}", metadata=doc("Message after the plan.")
    )
    test_prompt: str = field(
        default="The patch is applied. Now test it. {how}",
        metadata=doc("Message after a patch, if test_command is empty."),
    )
    repair_prompt: str = field(
        default="The tests fail:\n\n{output}\n\nRepair the code. {how}",
        metadata=doc("Message after tests that failed: {output} is what they printed."),
    )
    rejected_prompt: str = field(
        default="The patch could not be applied, and nothing was changed:\n\n{error}\n\n{how}",
        metadata=doc("Message after a patch that does not apply: {error} says why."),
    )
    no_action_prompt: str = field(
        default="The answer has nothing to act on. {how}",
        metadata=doc("Message after an answer without an action, in any phase but the plan."),
    )
