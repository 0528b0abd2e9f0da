"""How tools are described to a model and its calls read: natively or as text."""

from typing import Literal

from ale.types import Completion, LLMCapabilities, ToolSpec
from ale_agent_iflow import text_format
from ale_agent_iflow.text_format import Reading
from ale_agent_iflow.tools import TOOLS


class Dialect:
    """A format of tool calls: the provider's own, unless a derived class has another."""

    role: Literal["tool", "user"] = "tool"
    """The role of observations."""
    specs: tuple[ToolSpec, ...] = tuple(tool.spec for tool in TOOLS)
    """The tool specifications of each request."""
    instructions = ""
    """What is appended to the system prompt."""
    format_hint = ""
    """Added to the message after an answer with no call or a bad one."""

    def read(self, completion: Completion, turn: int) -> Reading:
        """The calls of an answer."""
        return Reading(calls=completion.message.tool_calls)

    def show(self, tool: str, content: str, note: str) -> str:
        """The text of an observation; natively its message names the call."""
        return content


class TextDialect(Dialect):
    """Calls as fenced text, one in an answer; see `text_format`."""

    role = "user"
    specs = ()
    instructions = text_format.instructions()
    format_hint = text_format.FORMAT

    def read(self, completion: Completion, turn: int) -> Reading:
        """The first fenced call."""
        return text_format.read(completion.message.content, call_id=f"text_{turn}")

    def show(self, tool: str, content: str, note: str) -> str:
        """The content under a line that names the tool."""
        return f"[result of {tool or 'the call'}]\n{content}" + (f"\n{note}" if note else "")


NATIVE, TEXT = Dialect(), TextDialect()


def dialect(
    tool_format: Literal["auto", "native", "text"], capabilities: LLMCapabilities
) -> Dialect:
    """The format that the option selects; ``auto`` is native where the model has tool calls."""
    native = capabilities.tools if tool_format == "auto" else tool_format == "native"
    return NATIVE if native else TEXT
