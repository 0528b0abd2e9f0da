"""The options of ``code-attempts``, ``single-shot`` and ``steps``."""

from collections.abc import Mapping
from typing import ClassVar

from attrs import field, frozen

from ale.plugin import doc, ge, gt, optional
from ale.strict import Former

_SYSTEM = "System message before all others; empty for none."
_PROMPT = (
    "First message: {goal} is the task's; {tests} and {entry_point} are what it says of its code."
)


@frozen(kw_only=True)
class SingleShotOptions:
    """One answer, without tools, sandbox commands or feedback."""

    system_prompt: str = field(default="", metadata=doc(_SYSTEM))
    prompt: str = field(default="{goal}", metadata=doc(_PROMPT))
    time_limit_s: float | None = field(
        default=600.0, validator=optional(gt(0)), metadata=doc("Wall-clock seconds for the answer.")
    )


@frozen(kw_only=True)
class StepsOptions:
    """Thoughts in <step> tags and the answer in an <answer> tag; no tools."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "no_answer_prompt": Former("There is no answer yet. Write it as <answer>...</answer>."),
    }

    max_turns: int = field(
        default=3,
        validator=ge(1),
        metadata=doc("Maximum number of completions until there is an answer."),
    )
    time_limit_s: float | None = field(
        default=600.0, validator=optional(gt(0)), metadata=doc("Wall-clock seconds for an episode.")
    )
    system_prompt: str = field(
        default="Solve the task in steps. Write each step as <step>...</step>, and at the end the "
        "answer alone as <answer>...</answer>.",
        metadata=doc(_SYSTEM),
    )
    prompt: str = field(default="{goal}", metadata=doc(_PROMPT))


@frozen(kw_only=True)
class AttemptsOptions:
    """Python code, run against the visible tests; their errors are shown, for another attempt."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "timeout_prompt": Former(
            "The code was stopped after {seconds} seconds. It printed:\n\n{output}\n\n"
            "Answer with faster code, whole, in a block that begins with ```python."
        ),
    }

    max_attempts: int = field(
        default=3,
        validator=ge(1),
        metadata=doc("Maximum number of answers in an episode, with or without code."),
    )
    tool_timeout_s: float | None = field(
        default=10.0,
        validator=optional(gt(0)),
        metadata=doc(
            "Seconds of CPU time for one run of code and tests; by the clock, eight times as many."
        ),
    )
    time_limit_s: float | None = field(
        default=600.0, validator=optional(gt(0)), metadata=doc("Wall-clock seconds for an episode.")
    )
    context_max_tokens: int | None = field(
        default=None,
        validator=optional(ge(256)),
        metadata=doc("Tokens after which the conversation ends; default: the model's limit."),
    )
    max_output_bytes: int = field(
        default=4096,
        validator=ge(256),
        metadata=doc(
            "Bytes of output that the model is shown; longer output is cut in the middle."
        ),
    )
    python: str = field(default="python3", metadata=doc("Python interpreter in the sandbox."))
    system_prompt: str = field(default="", metadata=doc(_SYSTEM))
    prompt: str = field(default="{goal}", metadata=doc(_PROMPT))
    failed_prompt: str = field(
        default="The code does not pass its tests:\n\n{output}\n\n"
        "Answer with the whole corrected code in a block that begins with ```python.",
        metadata=doc(
            "Message after code that fails: {output} is what it printed and why tests failed."
        ),
    )
    no_code_prompt: str = field(
        default="The answer has no code block. "
        "Answer with the whole code in a block that begins with ```python.",
        metadata=doc("Message after an answer without code."),
    )
