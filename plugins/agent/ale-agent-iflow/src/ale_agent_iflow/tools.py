"""The tools: one table, from which come the specifications, the checks and the error messages."""

import difflib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, NoReturn

from attrs import field, frozen

from ale.agents import BadCallError
from ale.types import ToolCall, ToolSpec
from ale_agent_iflow.result import Result
from ale_agent_iflow.workspace import Workspace

PYTHON_TYPES = {"string": str, "integer": int}
_SURROGATE = re.compile("[\ud800-\udfff]")


@frozen
class Parameter:
    """One argument of a tool."""

    name: str
    type: Literal["string", "integer"]
    description: str
    required: bool = field(default=True, kw_only=True)
    nul: bool = field(default=False, kw_only=True)
    """May the text hold NUL characters? No command line and no path can."""

    def problem(self, value: object) -> str | None:
        """What is wrong with `value`, or None."""
        if type(value) is not PYTHON_TYPES[self.type]:
            return f"{self.name} must be of type {self.type}, not {_json_type(value)}"
        if isinstance(value, int):
            return None if value >= 1 else f"{self.name} must be at least 1, not {value}"
        text = str(value)
        if not self.nul and "\0" in text:
            return f"{self.name} holds a NUL character"
        if _SURROGATE.search(text):
            return f"{self.name} holds half of a surrogate pair, which is not text"
        return None


@frozen
class Tool:
    """One thing the model can do."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    verb: Callable[[Workspace], Callable[..., Awaitable[Result]]]
    """The method of a workspace that runs it, given the arguments and `timeout_s`."""

    @property
    def signature(self) -> str:
        """For people and models: ``read_file(path: string, start_line?: integer)``."""
        inner = ", ".join(f"{p.name}{'' if p.required else '?'}: {p.type}" for p in self.parameters)
        return f"{self.name}({inner})"

    @property
    def spec(self) -> ToolSpec:
        """In the form that providers take."""
        properties: dict[str, Any] = {}
        for p in self.parameters:
            least = {"minimum": 1} if p.type == "integer" else {}
            properties[p.name] = {"type": p.type, "description": p.description, **least}
        return ToolSpec(
            name=self.name,
            description=self.description,
            parameters={
                "type": "object",
                "properties": properties,
                "required": [p.name for p in self.parameters if p.required],
                "additionalProperties": False,
            },
        )


PATH = Parameter("path", "string", "File, relative to the working directory or absolute.")

TOOLS: tuple[Tool, ...] = (
    Tool(
        "shell",
        "Run a command in a persistent bash session: cd, variables and background jobs (end the "
        "command with &) carry over. A command that runs out of time ends the session.",
        (Parameter("command", "string", "The command, one or more lines."),),
        lambda workspace: workspace.shell.run,
    ),
    Tool(
        "read_file",
        "Read a text file, or a range of its lines.",
        (
            PATH,
            Parameter("start_line", "integer", "First line, from 1.", required=False),
            Parameter("end_line", "integer", "Last line, included.", required=False),
        ),
        lambda workspace: workspace.files.read,
    ),
    Tool(
        "write_file",
        "Write a whole file, replacing an existing one; creates missing folders.",
        (PATH, Parameter("content", "string", "All of the file's text.", nul=True)),
        lambda workspace: workspace.files.write,
    ),
    Tool(
        "edit_file",
        "Replace a passage that occurs exactly once in a file.",
        (
            PATH,
            Parameter("old_text", "string", "The passage, exactly, with whitespace.", nul=True),
            Parameter("new_text", "string", "The replacement.", nul=True),
        ),
        lambda workspace: workspace.files.edit,
    ),
    Tool(
        "finish",
        "End the episode. Call it when the task is done.",
        (Parameter("summary", "string", "What was done, in a sentence or two.", nul=True),),
        lambda workspace: workspace.finish,
    ),
)


def check(call: ToolCall) -> tuple[Tool, dict[str, Any]]:
    """The tool that `call` names and its arguments, checked.

    Raises:
        BadCallError: unknown tool, invalid JSON, wrong, missing or unknown arguments.
    """
    tool = next((tool for tool in TOOLS if tool.name == call.name), None)
    if tool is None:
        _unknown_tool(call.name)
    arguments = _arguments(call.arguments, tool)
    problems = [*_names(arguments, tool), *_values(arguments, tool)]
    if problems:
        raise BadCallError(f"{'; '.join(problems)}. Signature: {tool.signature}")
    return tool, {name: value for name, value in arguments.items() if value is not None}


def _unknown_tool(name: str) -> NoReturn:
    names = [tool.name for tool in TOOLS]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    guess = next((f" Did you mean {t.signature}?" for t in TOOLS if t.name in near), "")
    raise BadCallError(f"unknown tool {name[:80]!r}.{guess} The tools are {', '.join(names)}")


def _arguments(text: str, tool: Tool) -> dict[str, Any]:
    try:
        value = json.loads(
            text or "{}", object_pairs_hook=_no_repeats, parse_constant=_no_constant, strict=False
        )
    except RecursionError:
        raise BadCallError(
            f"the arguments are nested too deeply. Signature: {tool.signature}"
        ) from None
    except ValueError as error:
        raise BadCallError(
            f"the arguments are not valid JSON ({error}). Signature: {tool.signature}"
        ) from None
    if not isinstance(value, dict):
        raise BadCallError(
            f"the arguments must be a JSON object, not {_json_type(value)}. "
            f"Signature: {tool.signature}"
        )
    return value


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("a name occurs twice")
    return dict(pairs)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _names(arguments: Mapping[str, Any], tool: Tool) -> list[str]:
    known = [p.name for p in tool.parameters]
    missing = [p.name for p in tool.parameters if p.required and p.name not in arguments]
    unknown = [name[:80] for name in arguments if name not in known]
    return [f"missing argument {name!r}" for name in missing] + [
        f"unknown argument {name!r}" for name in unknown
    ]


def _values(arguments: Mapping[str, Any], tool: Tool) -> list[str]:
    found = []
    for p in tool.parameters:
        value = arguments.get(p.name)
        # Many models write null for an argument that they leave out.
        if p.name in arguments and not (value is None and not p.required):
            found.append(p.problem(value))
    return [problem for problem in found if problem is not None]


def _json_type(value: object) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number" if isinstance(value, float) else "integer")
