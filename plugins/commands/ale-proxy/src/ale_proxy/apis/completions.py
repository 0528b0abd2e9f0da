"""OpenAI's older completions: a text is continued."""

from collections.abc import Mapping, Sequence
from typing import Any

from ale.types import Completion, Message, TokenTrace, Usage
from ale_openai_wire import samples_as_model
from ale_openai_wire.response import finish_reason
from ale_openai_wire.stream import EventReader
from ale_proxy.apis.api import (
    Answered,
    AnswerReader,
    Asked,
    UnreadableError,
    WholeBody,
    read_event,
)


class CompletionsApi:
    """``/v1/completions``. A prompt is recorded as a user's message, each request alone."""

    name = "completions"
    token_fields: Mapping[str, Any] = {"logprobs": 0, "return_token_ids": True}

    def asked(self, body: Mapping[str, Any]) -> Asked:
        """The prompt of a request."""
        prompt = body.get("prompt")
        if not isinstance(prompt, str) or body.get("n") not in (None, 1):
            raise UnreadableError("it asks for several answers, or its prompt is no text")
        return Asked(
            messages=(Message(role="user", content=prompt),),
            model=str(body.get("model") or ""),
            stream=bool(body.get("stream")),
            alone=True,
            exact=samples_as_model(body),
        )

    def reader(self, *, stream: bool) -> AnswerReader:
        """For one answer."""
        return _Stream() if stream else _Whole()

    def with_head(
        self, body: Mapping[str, Any], before: Sequence[Message], after: Sequence[Message]
    ) -> dict[str, Any]:
        """With the messages' texts as the prompt."""
        return {**body, "prompt": "\n\n".join(message.content for message in after)}


class _Parts:
    """What has come of an answer."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reason: str | None = None
        self._usage: Mapping[str, Any] = {}
        self._model: str | None = None
        self._prompt: list[int] = []
        self._ids: list[int] = []
        self._logprobs: list[float] = []

    def add(self, body: Mapping[str, Any]) -> None:
        if body.get("error"):
            raise UnreadableError("the answer is an error")
        self._usage = body.get("usage") or self._usage
        self._model = self._model or body.get("model")
        for choice in body.get("choices") or ():
            self.text.append(choice.get("text") or "")
            self.reason = choice.get("finish_reason") or self.reason
            self._prompt = self._prompt or choice.get("prompt_token_ids") or []
            self._ids += choice.get("token_ids") or []
            self._logprobs += (choice.get("logprobs") or {}).get("token_logprobs") or []

    def answered(self, asked: Asked, *, turn: int, trace: bool) -> Answered:
        if self.reason is None:
            raise UnreadableError("the answer ended before it was complete")
        made = Completion(
            message=Message(role="assistant", content="".join(self.text)),
            finish_reason=finish_reason(self.reason),
            usage=Usage(
                prompt_tokens=self._usage.get("prompt_tokens") or 0,
                completion_tokens=self._usage.get("completion_tokens") or 0,
            ),
            model=self._model or asked.model,
            tokens=self._trace() if trace else None,
        )
        return Answered(completion=made)

    def _trace(self) -> TokenTrace | None:
        if not self._prompt or not self._ids or len(self._ids) != len(self._logprobs):
            return None
        return TokenTrace(
            prompt_ids=tuple(self._prompt),
            output_ids=tuple(self._ids),
            logprobs=tuple(self._logprobs),
            policy_versions=(0,) * len(self._ids),
        )


class _Whole(WholeBody):
    def answered(self, asked: Asked, *, turn: int, trace: bool) -> Answered:
        parts = _Parts()
        parts.add(self.body())
        return parts.answered(asked, turn=turn, trace=trace)


class _Stream:
    ends: tuple[bytes, ...] = (b"[DONE]",)

    def __init__(self) -> None:
        self.complete = False
        self._events, self._parts = EventReader(), _Parts()

    def feed(self, data: bytes) -> None:
        for event in self._events.feed(data):
            if event.strip() == b"[DONE]":
                self.complete = True
            else:
                self._parts.add(read_event(event))

    def answered(self, asked: Asked, *, turn: int, trace: bool) -> Answered:
        return self._parts.answered(asked, turn=turn, trace=trace)
