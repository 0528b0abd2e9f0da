"""Conversations rendered by a tokenizer's chat template, each in the same way on any day."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError

from ale.errors import InputError
from ale.types import Message, ToolCall, ToolSpec, replace
from ale_training.chat.calls import Format

PATH = "llm.chat_template"
HINT = "use another template: chat_template: chatml, trl/NAME such as trl/qwen3_training, or a file"
_ERRORS = (TemplateError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError)


class Rendering:
    """Applies the chat template, or one of several, of a tokenizer.

    Args:
        tokenizer: of transformers.
        form: how the model's family writes calls.
        today: the date and time that the template gets.

    Raises:
        InputError: there is no template, or several of which none is named ``default``.
    """

    def __init__(self, tokenizer: Any, form: Format, today: datetime) -> None:
        self._tokenizer = tokenizer
        self._format = form
        self.several = True
        """Can an answer have several calls? If not, each becomes an answer of its own."""
        self.texts = True
        """Can arguments be a text, as those of a malformed call are? If not, an object has it."""
        found: Any = tokenizer.chat_template
        if not found:
            raise InputError.of("the tokenizer has no chat template", path=PATH, hint=HINT)
        named = dict(found) if isinstance(found, Mapping) else {"default": found}
        if "default" not in named:
            raise InputError.of(
                f"the tokenizer has the chat templates {', '.join(sorted(named))}",
                path=PATH,
                expected="one with the name default",
                hint="save the one to use as a file, and give chat_template its path",
            )
        texts = (named["default"], named.get("tool_use", named["default"]))
        self.for_tools = texts[0] != texts[1]
        """Are conversations with tools written by another template?"""
        self._sources = [_dated(text, today) for text in texts]

    def __call__(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        prompt: bool,
        tool_use: bool = False,
    ) -> str:
        """The text of a conversation.

        Args:
            messages: its messages.
            tools: its tools.
            prompt: does it end with what asks for an answer?
            tool_use: use the template for conversations with tools, though none are shown.

        Raises:
            InputError: the template fails.
        """
        use = tool_use or bool(tools)
        listed = [_tool(spec) for spec in tools]
        if not self.several:
            messages = [*_one_by_one(messages)]
        try:
            text = self._tokenizer.apply_chat_template(
                [self._plain(message) for message in messages],
                # A template for tools alone need not expect that there are none.
                tools=listed if listed or (use and self.for_tools) else None,
                chat_template=self._sources[use],
                add_generation_prompt=prompt,
                tokenize=False,
            )
        except _ERRORS as error:
            message = f"the chat template fails: {error}"
            raise InputError.of(message, path=PATH, hint=HINT) from error
        assert isinstance(text, str)
        return text

    def _plain(self, message: Message) -> dict[str, Any]:
        """A message in the form that chat templates of the family take."""
        fields: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.reasoning is not None:
            # Two names for the same thing; gpt-oss uses the second.
            fields["reasoning_content"] = fields["thinking"] = message.reasoning
        if message.tool_calls:
            fields["tool_calls"] = [self._call(call) for call in message.tool_calls]
        if message.tool_call_id is not None:
            fields["tool_call_id"] = self._format.call_id(message.tool_call_id)
        return fields

    def _call(self, call: ToolCall) -> dict[str, Any]:
        # Some templates take arguments as text, but most take an object.
        arguments: Any = call.arguments
        if not self._format.text_arguments:
            try:
                value = json.loads(call.arguments, strict=False)
            except (ValueError, RecursionError):
                value = None
            if isinstance(value, Mapping):
                arguments = value
            elif not self.texts:
                arguments = {"arguments": call.arguments}
        return {
            "id": self._format.call_id(call.id),
            "type": "function",
            "function": {"name": call.name, "arguments": arguments},
        }


def _one_by_one(messages: Sequence[Message]) -> Iterator[Message]:
    """The messages with one call in each answer, before its result."""
    waiting: dict[str | None, Message] = {}
    for message in messages:
        if message.role == "tool" and message.tool_call_id in waiting:
            yield waiting.pop(message.tool_call_id)
        elif message.role != "tool":
            yield from waiting.values()
            first, rest = message.tool_calls[:1], message.tool_calls[1:]
            waiting = {call.id: replace(message, content="", tool_calls=(call,)) for call in rest}
            message = replace(message, tool_calls=first)
        yield message
    yield from waiting.values()


def _dated(source: str, today: datetime) -> str:
    """A template whose ``strftime_now`` is the same on any day.

    transformers takes no functions as variables, so it becomes a macro, which replaces the
    directives of a format by what they stand for.
    """
    if "strftime_now" not in source:
        return source
    directives = [f"%{dash}{letter}" for letter in "aAwdbBmyYHIpMSfjUWcxXGuV" for dash in ("", "-")]
    known = {each: today.strftime(each) for each in directives}
    filters = "".join(f"|replace({json.dumps(k)},{json.dumps(v)})" for k, v in known.items())
    # The last expression keeps what follows from losing a line break at its beginning.
    macro = f"{{%- macro strftime_now(format) -%}}{{{{ format{filters} }}}}{{%- endmacro -%}}"
    return macro + "{{ '' }}" + source


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": spec.name,
            "description": spec.description,
            "parameters": dict(spec.parameters),
        },
    }
