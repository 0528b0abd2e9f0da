"""The answers of `ale.testing.openai_server`: steps of a script, and completions as written."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from ale.testing.wire import Step, Wire

Script = Sequence[Step] | Mapping[str, Any]

_PIECES = 4
"""Parts into which a text, the arguments of a call and the tokens are cut when streaming."""


class NoStepError(Exception):
    """The script has nothing for this request."""


Messages = Sequence[Mapping[str, Any]]


def _texts(messages: Messages, role: str | None = None) -> list[str]:
    """The contents of the messages of one role, or of all."""
    chosen = [message for message in messages if role in (None, message.get("role"))]
    contents = [message.get("content") or "" for message in chosen]
    return [text if isinstance(text, str) else json.dumps(text) for text in contents]


class Player:
    """Finds the step for each request."""

    def __init__(self, script: Script) -> None:
        self._script = script
        listed = script.get("models") if isinstance(script, Mapping) else None
        self.models: Sequence[Mapping[str, Any]] | Step = listed or [{"id": "scripted"}]
        """The models that ``/v1/models`` lists, or a step that fails."""
        self._names = {each["id"] for each in listed} if isinstance(listed, list) else None
        """The models that it has; None: any."""
        self._played = 0
        self._reached: Counter[str] = Counter()

    def step(self, messages: Messages, body: Mapping[str, Any]) -> Step:
        """The next to play: first the faults that come before a step, then the step itself.

        Args:
            messages: of the request.
            body: of the request.

        Raises:
            NoStepError: the script has no step.
        """
        if self._names is not None and (model := body.get("model")) not in self._names:
            message = f"The model `{model}` does not exist."
            return {"fault": 404, "code": "model_not_found", "message": message}
        if 1 in (body.get("max_tokens"), body.get("max_completion_tokens")):
            other = self._script.get("*", {}) if isinstance(self._script, Mapping) else {}
            return other if "fault" in other else {"text": "Hi", "finish_reason": "length"}
        place, step = self._find(messages)
        before: Sequence[Step] = step.get("before", ())
        earlier = self._reached[place]
        self._reached[place] += 1
        if earlier < len(before):
            return before[earlier]
        if not isinstance(self._script, Mapping):
            self._played += 1
        return step

    def _find(self, messages: Messages) -> tuple[str, Step]:
        if not isinstance(self._script, Mapping):
            if self._played < len(self._script):
                return str(self._played), self._script[self._played]
            raise NoStepError(f"all {len(self._script)} steps of the script have been played")
        if "conversations" in self._script:
            return _in_conversation(messages, self._script["conversations"])
        last = (_texts(messages, "user") or [""])[-1]
        key = last if last in self._script else "*"
        if key in self._script:
            return key, self._script[key]
        raise NoStepError(f"the script has no answer to {last[:80]!r}")


def _in_conversation(
    messages: Messages, conversations: Sequence[Mapping[str, Any]]
) -> tuple[str, Step]:
    first = (_texts(messages, "user") or [""])[0]
    position = len(_texts(messages, "assistant"))
    for number, conversation in enumerate(conversations):
        if re.search(conversation["match"], first):
            steps = conversation["steps"]
            if position < len(steps):
                return f"{number}/{position}", steps[position]
            raise NoStepError(f"the script of {conversation['match']!r} has no step {position}")
    raise NoStepError(f"no conversation of the script matches {first[:80]!r}")


def _cut(items: Any) -> list[Any]:
    size = max(1, -(-len(items) // _PIECES))
    return [items[start : start + size] for start in range(0, len(items), size)]


@frozen(kw_only=True)
class Answer:
    """One chat completion, to be sent whole or as events."""

    step: Step
    body: Mapping[str, Any]

    def whole(self) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        message: dict[str, Any] = {"role": "assistant", "content": self.step.get("text")}
        if "reasoning" in self.step:
            message["reasoning_content"] = self.step["reasoning"]
        if calls := self._calls():
            message["tool_calls"] = calls
        tokens = self._tokens()
        choice = {"index": 0, "message": message, "finish_reason": self._finish()}
        return {
            **self._head("chat.completion"),
            **({"prompt_token_ids": tokens["prompt_ids"]} if "prompt_ids" in tokens else {}),
            "choices": [{**choice, **_token_fields(tokens)}],
            "usage": self._usage(),
        }

    def events(self) -> Iterator[dict[str, Any]]:
        """The chunks of a streamed answer, without the closing ``[DONE]``."""
        head = self._head("chat.completion.chunk")
        deltas = [{"role": "assistant", "content": ""}, *self._deltas()]
        traces = self._token_pieces(len(deltas))
        for index, (delta, trace) in enumerate(zip(deltas, traces, strict=True)):
            prompt = trace.get("prompt_ids") if index == 0 else None
            choice = {"index": 0, "delta": delta, "finish_reason": None, **_token_fields(trace)}
            yield {
                **head,
                **({} if prompt is None else {"prompt_token_ids": prompt}),
                "choices": [choice],
            }
        end = {"index": 0, "delta": {}, "finish_reason": self._finish()}
        yield {**head, "choices": [end]}
        if (self.body.get("stream_options") or {}).get("include_usage"):
            yield {**head, "choices": [], "usage": self._usage()}

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": "chatcmpl-scripted",
            "object": kind,
            "created": self.step.get("created", int(time.time())),
            "model": self.step.get("model", self.body.get("model", "")),
        }

    def _calls(self) -> list[dict[str, Any]]:
        position = len(_texts(self.body.get("messages", ()), "assistant"))
        calls = []
        for index, call in enumerate(self.step.get("calls", ())):
            arguments = call.get("arguments", {})
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            calls.append(
                {
                    "id": call.get("id", f"call_{position}_{index}"),
                    "type": "function",
                    "function": {"name": call["name"], "arguments": text},
                }
            )
        return calls

    def _deltas(self) -> Iterator[dict[str, Any]]:
        for piece in _cut(self.step.get("reasoning") or ""):
            yield {"reasoning_content": piece}
        for piece in _cut(self.step.get("text") or ""):
            yield {"content": piece}
        for index, call in enumerate(self._calls()):
            function = call["function"]
            opening = {**call, "index": index, "function": {**function, "arguments": ""}}
            yield {"tool_calls": [opening]}
            for piece in _cut(function["arguments"]):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}

    def _finish(self) -> str:
        default = "tool_calls" if self.step.get("calls") else "stop"
        reason: str = self.step.get("finish_reason", default)
        return reason

    def _usage(self) -> dict[str, int]:
        answer = [self.step.get("text") or "", self.step.get("reasoning") or ""]
        answer += [call["function"]["arguments"] for call in self._calls()]
        usage = {
            "prompt_tokens": sum(
                len(text.split()) for text in _texts(self.body.get("messages", ()))
            ),
            "completion_tokens": sum(len(text.split()) for text in answer),
            **self.step.get("usage", {}),
        }
        return {**usage, "total_tokens": usage["prompt_tokens"] + usage["completion_tokens"]}

    def _tokens(self) -> dict[str, Any]:
        """The parts of the step's tokens that the request asks for."""
        tokens = dict(self.step.get("tokens", {}))
        if not self.body.get("return_token_ids"):
            tokens.pop("ids", None)
            tokens.pop("prompt_ids", None)
        if not self.body.get("logprobs"):
            tokens.pop("logprobs", None)
        return tokens

    def _token_pieces(self, count: int) -> list[dict[str, Any]]:
        """The tokens spread over `count` chunks, none in the first, the rest in the last."""
        tokens = self._tokens()
        pieces: list[dict[str, Any]] = [{} for _ in range(count)]
        if "prompt_ids" in tokens:
            pieces[0]["prompt_ids"] = tokens["prompt_ids"]
        for name in ("ids", "logprobs", "texts"):
            for index, item in enumerate(tokens.get(name, ())):
                pieces[min(index + 1, count - 1)].setdefault(name, []).append(item)
        return pieces


def _token_fields(tokens: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if "ids" in tokens:
        fields["token_ids"] = tokens["ids"]
    if "logprobs" in tokens:
        texts = tokens.get("texts", [""] * len(tokens["logprobs"]))
        fields["logprobs"] = {
            "content": [
                {"token": text, "logprob": value, "bytes": list(text.encode()), "top_logprobs": []}
                for text, value in zip(texts, tokens["logprobs"], strict=False)
            ]
        }
    return fields


class OpenAIWire(Wire):
    """OpenAI's chat completions, whole and streamed."""

    path = "/chat/completions"

    def messages(self, body: Mapping[str, Any]) -> Messages:
        """The messages, unchanged."""
        messages: Messages = body.get("messages", ())
        return messages

    def answer(self, step: Step, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A chat completion."""
        return Answer(step=step, body=body).whole()

    def error(self, step: Step) -> Mapping[str, Any]:
        """An object ``error`` with message, code and type."""
        if step["fault"] == "context_length":
            text = "This model's maximum context length is 4096 tokens. Your messages are longer."
            code, kind = "context_length_exceeded", "invalid"
            return {"error": {"message": text, "code": code, "type": kind}}
        message = step.get("message", f"scripted fault {step['fault']}")
        return {"error": {"message": message, "code": step.get("code"), "type": "scripted"}}

    def events(self, step: Step, body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]] | None:
        """The chunks of a completion."""
        return Answer(step=step, body=body).events() if body.get("stream") else None
