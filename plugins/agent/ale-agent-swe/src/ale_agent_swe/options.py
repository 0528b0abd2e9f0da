"""The options of ``plan-patch-test``."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from attrs import field, fields, frozen

from ale.plugin import doc, ge, gt, optional
from ale.strict import Former, read_yaml, structure


@frozen(kw_only=True)
class Prompts:
    """The messages of the phases. {how} says how to act in the phase that follows."""

    plan: str = field(
        default="{goal}\n\nFiles:\n{files}\n\nFirst find out what is wrong, and write a short "
        "plan. {how}",
        metadata=doc("First message: {goal} is the task's; {files} are the repository's."),
    )
    patch: str = field(
        default="Now change the code. {how}", metadata=doc("Message after the plan.")
    )
    test: str = field(
        default="The patch is applied. Now test it. {how}",
        metadata=doc("Message after a patch, if test_command is empty."),
    )
    repair: str = field(
        default="The tests fail:\n\n{output}\n\nRepair the code. {how}",
        metadata=doc("Message after tests that failed: {output} is what they printed."),
    )
    rejected: str = field(
        default="The patch could not be applied, and nothing was changed:\n\n{error}\n\n{how}",
        metadata=doc("Message after a patch that does not apply: {error} says why."),
    )
    no_action: str = field(
        default="The answer has nothing to act on. {how}",
        metadata=doc("Message after an answer without an action, in any phase but the plan."),
    )

    @classmethod
    def read(cls, file: Path | None) -> "Prompts":
        """The prompts of a file, over the default ones.

        Raises:
            InputError: it can't be read.
        """
        return cls() if file is None else structure(read_yaml(file), cls)


@frozen(kw_only=True)
class PlanPatchTestOptions:
    """A plan, a patch, its tests, and repairs; each is a phase that the chunker 'phase' finds."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "listed_files": Former(200),
        **{
            f"{each.name}_prompt": Former(each.default, f"prompts: FILE, with {each.name}: TEXT")
            for each in fields(Prompts)
        },
    }

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
    system_prompt: str = field(
        default="", metadata=doc("System message before all others; empty for none.")
    )
    prompts: Path | None = field(
        default=None,
        metadata=doc(
            "YAML file of messages to use instead: `plan`, `patch`, `test`, `repair`, `rejected`, "
            "`no_action`."
        ),
    )
