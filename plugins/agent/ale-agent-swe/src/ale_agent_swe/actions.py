"""What a model can do: as tools, and as blocks in its text."""

import json
import re
from collections.abc import Mapping
from typing import Literal

from ale.types import ToolCall, ToolSpec

Phase = Literal["plan", "patch", "test", "repair"]


def _tool(name: str, description: str, *required: str, **parameters: str) -> ToolSpec:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSpec(name=name, description=description, parameters=schema)


_DIFF = "Unified diff, as of `git diff`. Leave it out if the files were changed by commands."
TOOLS = (
    _tool("shell", "Run a command in the repository.", "command", command="Line of shell."),
    _tool("plan", "End the phase plan.", "plan", plan="What to change, and why."),
    _tool("patch", "Change the code; ends the phase patch.", diff=_DIFF),
    _tool("test", "Run tests; ends the phase test.", "command", command="Line of shell."),
    _tool("repair", "Change the code again; ends the phase repair.", diff=_DIFF),
    _tool("finish", "End the work, in any phase.", summary="What was done."),
)

_LOOK = "To look at files first, answer with one block that begins with ```sh."
_CHANGE = (
    "Answer with a unified diff in a block that begins with ```diff, or with whole files, each in "
    "a block that begins with ```file:PATH. " + _LOOK
)
HOW_IN_TEXT: Mapping[Phase, str] = {
    "plan": "Answer with the plan. " + _LOOK,
    "patch": _CHANGE,
    "test": "Answer with the command that runs the tests, in a block that begins with ```sh.",
    "repair": _CHANGE,
}
HOW_BY_TOOLS: Mapping[Phase, str] = {
    "plan": "Use the tool shell to look at files, then call plan.",
    "patch": "Call patch with a diff; or edit by the tool shell, then call patch without one.",
    "test": "Call test with the command that runs the tests.",
    "repair": "Call repair with a diff; or edit by the tool shell, then call repair without one.",
}
_BLOCK = re.compile(
    r"^(?P<fence>`{3,}|~{3,})[ \t]*(?P<tag>[^\s`]*)[^\n]*\n(?P<body>.*?)(?:^(?P=fence)[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_SHELL = ("sh", "bash", "shell")
_PATCH = ("diff", "patch")


def parsed(text: str, phase: Phase, call_id: str) -> ToolCall | None:
    """What an answer in text does; None where it does nothing.

    What stands before the last ``</think>`` is reasoning and does not count.
    """
    text = text.rpartition("</think>")[2]
    blocks = [(match["tag"], match["body"]) for match in _BLOCK.finditer(text)]
    for name, arguments in (
        *_changes(blocks, phase),
        *(("shell", {"command": body}) for tag, body in blocks if tag in _SHELL),
        *(("finish", {"summary": body}) for tag, body in blocks if tag == "finish"),
        *((("plan", {"plan": text.strip()}),) if phase == "plan" and text.strip() else ()),
    ):
        name = "test" if (name, phase) == ("shell", "test") else name
        return ToolCall(id=call_id, name=name, arguments=json.dumps(arguments))
    return None


def _changes(
    blocks: list[tuple[str, str]], phase: Phase
) -> tuple[tuple[str, Mapping[str, object]], ...]:
    """One change of all its blocks: a plan may quote some, and they do not count."""
    if phase not in ("patch", "repair"):
        return ()
    diffs = [body for tag, body in blocks if tag in _PATCH]
    files = {tag[5:]: body for tag, body in blocks if tag.startswith("file:") and tag[5:]}
    if diffs or files:
        return ((phase, {"diff": "".join(diffs), "files": files}),)
    return ()
