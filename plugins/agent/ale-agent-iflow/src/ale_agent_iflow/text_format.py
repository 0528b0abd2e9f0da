"""Tool calls as text, for models that have none of their own.

A call is a fenced block with the info string ``tool`` that holds one JSON object::

    ```tool
    {"name": "shell", "arguments": {"command": "ls -la"}}
    ```

Text around it is allowed. The first block of a message counts; one inside a leading ``<think>``
block does not. The JSON decoder, not the closing fence, finds the
end of a block, so a file that holds fences can be written; line breaks inside strings are accepted,
because models write them.
"""

import json
import re

from attrs import frozen

from ale.types import ToolCall
from ale_agent_iflow.tools import TOOLS

OPENING = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*tool(?:_call)?[ \t]*\r?$", re.MULTILINE)
NAME = re.compile(r'"name"\s*:\s*"([^"\\]{1,80})"')
BLANKS = re.compile(r"\s*")

FORMAT = """\
Write a tool call as a block like this, with nothing else between the fences:
```tool
{"name": "shell", "arguments": {"command": "ls -la"}}
```"""


@frozen(kw_only=True)
class Reading:
    """The tool calls of one answer."""

    calls: tuple[ToolCall, ...] = ()
    note: str = ""
    """For the model: what was wrong with the format."""


def instructions() -> str:
    """What is appended to the system prompt."""
    lines = [f"- {tool.signature}: {tool.description}" for tool in TOOLS]
    return (
        "\n\nTools:\n" + "\n".join(lines) + f"\n\n{FORMAT}\n"
        "One call in each answer, and then stop: the result comes in the next message."
    )


def read(content: str, call_id: str) -> Reading:
    """The first call in `content`; one that is not valid JSON is returned as written.

    Args:
        content: an answer of the model; any text.
        call_id: for the call that is found.
    """
    opening = OPENING.search(content, _after_thinking(content))
    if opening is None:
        return Reading()
    call, end = _call(content, opening, call_id)
    several = OPENING.search(content, end) is not None
    note = "[only the first call of your answer was run; write one in each answer]"
    return Reading(calls=(call,), note=note if several else "")


def has_text(content: str) -> bool:
    """Is there text after a leading ``<think>`` block?"""
    return bool(content[_after_thinking(content) :].removeprefix("</think>").strip())


def _after_thinking(content: str) -> int:
    if not content.lstrip().startswith("<think>"):
        return 0
    end = content.find("</think>")
    return end if end >= 0 else len(content)


def _call(content: str, opening: re.Match[str], call_id: str) -> tuple[ToolCall, int]:
    start = _skip_blanks(content, opening.end())
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(content, start)
        name, arguments = _parts(value)
    except (ValueError, RecursionError):
        # No valid JSON starts here, so the check of arguments will say what is wrong with it.
        arguments, end = _up_to_closing(content, start, opening[1])
        named = NAME.search(arguments)
        name = named[1] if named else ""
    return ToolCall(id=call_id, name=name, arguments=arguments), end


def _parts(value: object) -> tuple[str, str]:
    call = value if isinstance(value, dict) else {}
    name = call.get("name")
    # An escape such as \ud800 gives half a character, which can't be stored as UTF-8.
    shown = name.encode("utf-8", "backslashreplace").decode() if isinstance(name, str) else ""
    return shown, json.dumps(call.get("arguments", {}))


def _skip_blanks(content: str, start: int) -> int:
    blanks = BLANKS.match(content, start)
    return blanks.end() if blanks else start


def _up_to_closing(content: str, start: int, fence: str) -> tuple[str, int]:
    closing = re.compile(rf"^[ \t]*{re.escape(fence)}", re.MULTILINE).search(content, start)
    end = closing.start() if closing else len(content)
    return content[start:end], closing.end() if closing else end
