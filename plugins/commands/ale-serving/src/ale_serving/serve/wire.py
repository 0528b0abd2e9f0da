"""Chat completions as a server reads and writes them."""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from ale.types import (
    Completion,
    CompletionRequest,
    Conversation,
    Message,
    Sampling,
    TokenTrace,
    ToolCall,
    ToolSpec,
)
from ale_openai_wire import messages as written
from ale_openai_wire import reshaping


class _Function(msgspec.Struct):
    name: str
    arguments: str = ""


class _Call(msgspec.Struct):
    function: _Function
    id: str = ""


class _Part(msgspec.Struct):
    type: Literal["text"]
    text: str


class _Message(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


class _Declared(msgspec.Struct):
    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


class _Tool(msgspec.Struct):
    function: _Declared
    type: Literal["function"] = "function"


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


_Tokens = Annotated[int, msgspec.Meta(ge=1)]


class ChatRequest(msgspec.Struct):
    """What is asked. Other fields are ignored if the answer would be the same without them."""

    messages: list[_Message]
    model: str | None = None
    tools: list[_Tool] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    max_tokens: _Tokens | None = None
    max_completion_tokens: _Tokens | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    n: Literal[1] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    return_token_ids: bool | None = None
    logprobs: bool | None = None
    top_logprobs: Literal[0] | None = None


def read(body: bytes) -> ChatRequest:
    """A request from its JSON.

    Raises:
        ValueError: it can't be read, or asks for something that is not supported.
    """
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
        asked = msgspec.convert(fields, ChatRequest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    if not asked.messages:
        raise ValueError("there are no messages")
    if unsupported := [name for name in reshaping(fields) if name != "tool_choice"]:
        raise ValueError(f"not supported by this server: {', '.join(unsupported)}")
    if asked.logprobs and not asked.return_token_ids:
        raise ValueError("log-probabilities are given by token id: set return_token_ids as well")
    return asked


def request(asked: ChatRequest, *, episode_id: str, seed: int) -> CompletionRequest:
    """The same for a model of `ale`.

    Args:
        episode_id: names the conversation; a server knows none, so each request is one.
        seed: where the request has none.
    """
    messages = tuple(map(_message, asked.messages))
    tools = asked.tools if asked.tool_choice != "none" else None
    stop = [asked.stop] if isinstance(asked.stop, str) else asked.stop
    wanted = Sampling(
        temperature=asked.temperature,
        top_p=asked.top_p,
        max_tokens=asked.max_completion_tokens or asked.max_tokens,
        stop=tuple(stop or ()),
    )
    return CompletionRequest(
        messages=messages,
        tools=tuple(_spec(tool.function) for tool in tools or ()),
        sampling=wanted,
        conversation=Conversation(
            episode_id=episode_id,
            task_id="",
            rollout=0,
            seed=seed if asked.seed is None else asked.seed,
        ),
        # Models name calls by it: those of one conversation must not be called the same.
        turn=sum(message.role == "assistant" for message in messages),
    )


def _message(wire: _Message) -> Message:
    content = wire.content or ""
    if not isinstance(content, str):
        content = "".join(part.text for part in content)
    calls = wire.tool_calls or ()
    return Message(
        role="system" if wire.role == "developer" else wire.role,
        content=content,
        reasoning=wire.reasoning_content,
        tool_calls=tuple(
            ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in calls
        ),
        tool_call_id=wire.tool_call_id,
    )


def _spec(tool: _Declared) -> ToolSpec:
    return ToolSpec(name=tool.name, description=tool.description, parameters=tool.parameters)


def answer(done: Completion, head: Mapping[str, Any], asked: ChatRequest) -> dict[str, Any]:
    """A whole answer; `head` has id, created and model."""
    choice: dict[str, Any] = {
        "index": 0,
        "message": _wire_message(done.message),
        "finish_reason": _reason(done),
    }
    body = {**head, "object": "chat.completion", "choices": [choice], "usage": _usage(done)}
    if asked.return_token_ids and done.tokens is not None:
        body["prompt_token_ids"] = list(done.tokens.prompt_ids)
        choice |= _tokens(done.tokens)
    return body


def events(
    done: Completion, head: Mapping[str, Any], asked: ChatRequest
) -> Iterator[dict[str, Any]]:
    """The same as the events of a stream: role, content, finish reason, usage."""
    message = _wire_message(done.message)
    calls = [{"index": i, **call} for i, call in enumerate(message.pop("tool_calls", []))]
    deltas: list[dict[str, Any]] = [{"role": message.pop("role"), "content": ""}]
    deltas += [{name: text} for name, text in message.items() if text]
    deltas += [{"tool_calls": [call]} for call in calls]
    top = {**head, "object": "chat.completion.chunk"}
    for delta in deltas:
        yield {**top, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    last: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": _reason(done)}
    if asked.return_token_ids and done.tokens is not None:
        top["prompt_token_ids"] = list(done.tokens.prompt_ids)
        last |= _tokens(done.tokens)
    yield {**top, "choices": [last]}
    if asked.stream_options is not None and asked.stream_options.include_usage:
        yield {**head, "object": "chat.completion.chunk", "choices": [], "usage": _usage(done)}


def _wire_message(message: Message) -> dict[str, Any]:
    (wire,) = written([message], reasoning_field="reasoning_content")
    return {**wire, "content": message.content or None}


def _reason(done: Completion) -> str:
    return "stop" if done.finish_reason == "other" else done.finish_reason


def _usage(done: Completion) -> dict[str, int]:
    prompt, answered = done.usage.prompt_tokens, done.usage.completion_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answered,
        "total_tokens": prompt + answered,
    }


def _tokens(trace: TokenTrace) -> dict[str, Any]:
    """As vLLM gives them: ids, and log-probabilities that name their token by its id."""
    pairs = zip(trace.output_ids, trace.logprobs, strict=True)
    content = [{"token": f"token_id:{token}", "logprob": logprob} for token, logprob in pairs]
    return {"token_ids": list(trace.output_ids), "logprobs": {"content": content}}


def error(message: str, *, kind: str, code: str | None = None) -> dict[str, Any]:
    """An error as clients of OpenAI read it."""
    return {"error": {"message": message, "type": kind, "code": code, "param": None}}


def encoded(body: Mapping[str, Any]) -> bytes:
    """JSON; half of a surrogate pair, which UTF-8 can't encode, stays an escape."""
    return json.dumps(body, separators=(",", ":")).encode()
