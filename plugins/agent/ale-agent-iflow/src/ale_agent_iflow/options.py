"""The options of ``iflow``."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from attrs import field, frozen

from ale.plugin import doc, ge, gt, optional
from ale.strict import Former


@frozen(kw_only=True)
class IflowOptions:
    """A model that acts by calling tools: shell, read_file, write_file, edit_file, finish."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "compact_to": Former(0.6),
        "keep_turns": Former(2),
        "fold_to": Former(0.6),
        "max_nudges": Former(2, "max_reminders"),
    }

    max_steps: int | None = field(
        default=40, validator=optional(ge(1)), metadata=doc("Tool calls in an episode.")
    )
    max_turns: int | None = field(
        default=80, validator=optional(ge(1)), metadata=doc("Completions in an episode.")
    )
    tool_timeout_s: float | None = field(
        default=60.0, validator=optional(gt(0)), metadata=doc("Seconds for one tool call.")
    )
    time_limit_s: float | None = field(
        default=600.0,
        validator=optional(gt(0)),
        metadata=doc("Wall-clock seconds for an episode, counted while a tool or the model works."),
    )
    context_max_tokens: int | None = field(
        default=8000,
        validator=optional(ge(256)),
        metadata=doc("Maximum tokens in a conversation; a longer one is compacted first."),
    )
    tool_format: Literal["auto", "native", "text"] = field(
        default="auto",
        metadata=doc(
            "Native tool calls or fenced text; auto is native if the model component has it, and "
            "text if the server then refuses tools."
        ),
    )
    max_output_bytes: int = field(
        default=8192,
        validator=ge(256),
        metadata=doc(
            "Bytes of a tool's output that the model sees; longer output is cut in the middle."
        ),
    )
    finish: Literal["text", "after-call", "tool"] = field(
        default="after-call",
        metadata=doc(
            "What ends the episode as finished besides a call of the tool finish: any answer of "
            "text alone (text), such an answer once a tool call has been run (after-call), or "
            "nothing else (tool)."
        ),
    )
    max_reminders: int = field(
        default=2,
        validator=ge(0),
        metadata=doc("Reminders in a row to call a tool before the episode ends as given up."),
    )
    system_prompt: str | None = field(
        default=None,
        metadata=doc("Replaces the system prompt; {workdir} stands for the working directory."),
    )
    system_prompt_file: Path | None = field(
        default=None, metadata=doc("UTF-8 file to read system_prompt from.")
    )
