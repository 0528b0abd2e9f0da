"""The script of each task and rollout, with strict validation."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ale.errors import InputError, Problem
from ale.plugin import doc, ge, optional
from ale.strict import Node, describe, nearest_file, read_yaml, structure
from ale.types import FinishReason

SHELL = "shell"
"""The tool that the shorthand ``{shell: ...}`` calls, with the argument ``command``."""

SCRIPTS = "a list of scripts, one per rollout"
DEEPER = "a script is itself a list of turns: put one '- ' more before it"


@frozen(kw_only=True)
class Call:
    """One tool call of a turn."""

    name: str = field(metadata=doc("Tool to call; need not exist."))
    arguments: Mapping[str, Any] | str = field(
        factory=dict, metadata=doc("A mapping, or raw text, which is sent unchanged.")
    )

    def __attrs_post_init__(self) -> None:
        try:
            json.dumps(self.arguments, allow_nan=False)
        except ValueError:
            raise ValueError("nan and infinity are not JSON: write the arguments as text") from None

    @property
    def text(self) -> str:
        """The arguments as a model would write them."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments, ensure_ascii=False)


@frozen(kw_only=True)
class Line:
    """One turn: an answer or an error."""

    text: str = field(default="", metadata=doc("Content of the answer."))
    reasoning: str | None = field(default=None, metadata=doc("Reasoning before the content."))
    shell: str | None = field(
        default=None, metadata=doc("Short form of one call of the tool shell.")
    )
    calls: tuple[Call, ...] = field(default=(), metadata=doc("Tool calls, in order."))
    finish_reason: FinishReason | None = field(
        default=None,
        metadata=doc("Why the answer ended. Default: tool_calls with calls, else stop."),
    )
    tokens: int | None = field(
        default=None,
        validator=optional(ge(0)),
        metadata=doc("Completion tokens to report; default: one per byte."),
    )
    prompt_tokens: int | None = field(
        default=None,
        validator=optional(ge(0)),
        metadata=doc("Prompt tokens to report; default: one per byte."),
    )
    sleep_s: float = field(
        default=0.0, validator=ge(0), metadata=doc("Seconds before this answer.")
    )
    error: str | None = field(default=None, metadata=doc("Raise LLMError with this message."))
    transient: bool = field(
        default=False, metadata=doc("Mark the error as one after which a retry may succeed.")
    )

    def __attrs_post_init__(self) -> None:
        if self.error is None and self.transient:
            raise ValueError("'transient' needs an 'error'")
        if self.error is not None and (self.text or self.shell is not None or self.calls):
            raise ValueError("a turn with an 'error' has no text, shell or calls")
        if self.shell is not None and self.calls:
            raise ValueError("'shell' is short for 'calls': write one of them")

    @property
    def all_calls(self) -> tuple[Call, ...]:
        """`calls`, or the call that `shell` abbreviates."""
        if self.shell is None:
            return self.calls
        return (Call(name=SHELL, arguments={"command": self.shell}),)


Lines = tuple[Line, ...]


@frozen(kw_only=True)
class Script:
    """A whole script: for each task the lines of each rollout."""

    model: str = "scripted"
    tokens: bool = False
    default: Lines | None = None
    tasks: Mapping[str, tuple[Lines, ...]] = field(factory=dict)

    def lines(self, task_id: str, rollout: int) -> Lines | None:
        """The lines of one rollout (number r takes script r mod n); None for an unknown task."""
        scripts = self.tasks.get(task_id)
        return self.default if scripts is None else scripts[rollout % len(scripts)]


@frozen(kw_only=True)
class _File:
    """The keys of a script file. The content of the last two is read turn by turn."""

    model: str = field(default="scripted", metadata=doc("Name that the answers carry."))
    tokens: bool = field(default=False, metadata=doc("Give every answer a token trace."))
    default: Any = field(default=None, metadata=doc("Turns for tasks that are not named."))
    tasks: Any = field(default=None, metadata=doc("For each task a list of scripts."))


def read_script(path: Path, *, tools: bool = True) -> Script:
    """Read a script file, YAML or JSON.

    Args:
        path: the file.
        tools: the model may call tools; otherwise a call in the script is a problem.

    Raises:
        InputError: with every problem of the file.
    """
    if not path.exists():
        raise Node(None, str(path)).error(
            "no such file",
            path="llm.script",
            expected="a script: a YAML file with a model's answers, for 'tasks' or as 'default'",
            hint=nearest_file(path),
        )
    root = read_yaml(path)
    head = structure(root, _File)
    reader = _Reader(tools=tools, traced=head.tokens)
    default, tasks = root.get("default"), root.get("tasks")
    script = Script(
        model=head.model,
        tokens=head.tokens,
        default=None if default is None else reader.lines(default, "default"),
        tasks={} if tasks is None else reader.tasks(tasks),
    )
    if default is None and tasks is None:
        reader.problems.append(root.problem("a script needs 'tasks', 'default' or both"))
    if reader.problems:
        raise InputError(reader.problems)
    return script


class _Reader:
    """Walks the nodes of a script and keeps every problem."""

    def __init__(self, *, tools: bool, traced: bool) -> None:
        self.problems: list[Problem] = []
        self._tools = tools
        self._traced = traced

    def tasks(self, node: Node) -> Mapping[str, tuple[Lines, ...]]:
        if node.mapping is None:
            self._refuse(node, "tasks", "a mapping of task ids to lists of scripts")
            return {}
        return {task: self._scripts(child, f"tasks.{task}") for task, child in node.mapping.items()}

    def _scripts(self, node: Node, path: str) -> tuple[Lines, ...]:
        scripts = self._items(node, path, SCRIPTS, hint=DEEPER)
        if node.items is not None and not scripts:
            self._refuse(node, path, "at least one script", found="an empty list")
        if scripts and all(child.items is None for child in scripts):
            self._refuse(node, path, SCRIPTS, found="a list of turns", hint=DEEPER)
            return ()
        return tuple(self.lines(child, f"{path}[{i}]") for i, child in enumerate(scripts))

    def lines(self, node: Node, path: str) -> Lines:
        turns = self._items(node, path, "a list of turns")
        made = (self._line(child, f"{path}[{i}]") for i, child in enumerate(turns))
        return tuple(line for line in made if line is not None)

    def _line(self, node: Node, path: str) -> Line | None:
        if isinstance(node.value, str):
            return Line(text=node.value)
        if not node.mapping:
            self._refuse(node, path, "a turn: text, or a mapping with text, shell, calls or error")
            return None
        try:
            line = structure(node, Line, path=path)
        except InputError as error:
            self.problems += error.problems
            return None
        self._check(line, node, path)
        return line

    def _check(self, line: Line, node: Node, path: str) -> None:
        if not node.mapping.keys() & {"text", "reasoning", "shell", "calls", "error"}:  # type: ignore[union-attr]
            self._note(node, path, "a turn without text, reasoning, shell, calls or error")
        if line.all_calls and not self._tools:
            self._note(node, path, "calls a tool, and the option 'tools' of the model is off")
        if self._traced and (line.tokens is not None or line.prompt_tokens is not None):
            self._note(
                node, path, "a number of tokens, where 'tokens: true' counts those of the trace"
            )

    def _items(
        self, node: Node, path: str, expected: str, *, hint: str | None = None
    ) -> Sequence[Node]:
        if node.items is None:
            self._refuse(node, path, expected, hint=hint)
        return node.items or ()

    def _refuse(
        self,
        node: Node,
        path: str,
        expected: str,
        *,
        found: str | None = None,
        hint: str | None = None,
    ) -> None:
        found = describe(node.value) if found is None else found
        self._note(node, path, f"expected {expected}, found {found}", hint)

    def _note(self, node: Node, path: str, message: str, hint: str | None = None) -> None:
        self.problems.append(node.problem(message, path=path, hint=hint))
