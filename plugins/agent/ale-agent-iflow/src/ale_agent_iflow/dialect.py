"""How tools are described to a model and its calls read: natively or as text."""

from typing import Literal, Protocol

from ale.types import Completion, LLMCapabilities, ToolSpec
from ale_agent_iflow import text_format
from ale_agent_iflow.context import Gauge
from ale_agent_iflow.text_format import Reading
from ale_agent_iflow.tools import TOOLS, Tool


class Dialect(Protocol):
    """A format of tool calls."""

    role: Literal["tool", "user"]
    """The role of observations."""
    specs: tuple[ToolSpec, ...]
    """The tool specifications of each request."""
    gauge: Gauge
    """For requests with them, before the provider has counted any."""
    instructions: str
    """What is appended to the system prompt; may be empty."""
    format_hint: str
    """Added to the message after an answer with no call or a bad one; may be empty."""

    def read(self, completion: Completion, turn: int) -> Reading:
        """The calls of an answer."""
        ...

    def show(self, tool: str, content: str, note: str) -> str:
        """The text of an observation."""
        ...


class Native:
    """The provider's own tool calls."""

    role: Literal["tool", "user"] = "tool"
    instructions = ""
    format_hint = ""

    def __init__(self, tools: tuple[Tool, ...] = TOOLS) -> None:
        self.specs = tuple(tool.spec for tool in tools)
        self.gauge = Gauge.of_tools(self.specs)

    def read(self, completion: Completion, turn: int) -> Reading:
        """All of the message's calls."""
        return Reading(calls=completion.message.tool_calls)

    def show(self, tool: str, content: str, note: str) -> str:
        """The content alone: the message names its call."""
        return content


class Text:
    """Calls as fenced text, one in an answer; see `text_format`."""

    role: Literal["tool", "user"] = "user"
    specs: tuple[ToolSpec, ...] = ()
    gauge = Gauge()
    format_hint = text_format.FORMAT

    def __init__(self, tools: tuple[Tool, ...] = TOOLS) -> None:
        self.instructions = text_format.instructions(tools)

    def read(self, completion: Completion, turn: int) -> Reading:
        """The first fenced call."""
        return text_format.read(completion.message.content, call_id=f"text_{turn}")

    def show(self, tool: str, content: str, note: str) -> str:
        """The content under a line that names the tool."""
        return f"[result of {tool or 'the call'}]\n{content}" + (f"\n{note}" if note else "")


NATIVE, TEXT = Native(), Text()


def dialect(
    tool_format: Literal["auto", "native", "text"], capabilities: LLMCapabilities
) -> Dialect:
    """The format that the option selects; ``auto`` is native where the model has tool calls."""
    native = capabilities.tools if tool_format == "auto" else tool_format == "native"
    return NATIVE if native else TEXT
