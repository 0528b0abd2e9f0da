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
    items,
    mapping,
    n_of,
    read_event,
)


class CompletionsApi:
    """``/v1/completions``. A prompt is recorded as a user's message, each request alone."""

    name = "completions"
    token_fields: Mapping[str, Any] = {"logprobs": 0, "return_token_ids": True}

    def asked(self, body: Mapping[str, Any]) -> Asked:
        """The prompt of a request."""
        given = body.get("prompt")
        given = given if isinstance(given, list) else [given]
        texts = [text for text in given if isinstance(text, str)]
        if not texts or len(texts) < len(given):
            raise UnreadableError("a prompt is no text")
        prompts = tuple((Message(role="user", content=text),) for text in texts)
        return Asked(
            messages=prompts[0],
            prompts=prompts if len(prompts) > 1 else (),
            n=n_of(body),
            model=str(body.get("model") or ""),
            stream=bool(body.get("stream")),
            alone=True,
            exact=samples_as_model(body),
        )

    def reader(self, asked: Asked) -> AnswerReader:
        """For the answer to one request."""
        return _Stream() if asked.stream else _Whole()

    def with_head(
        self, body: Mapping[str, Any], before: Sequence[Message], after: Sequence[Message]
    ) -> dict[str, Any]:
        """With the messages' texts as the prompt."""
        return {**body, "prompt": "\n\n".join(message.content for message in after)}


class _Choice:
    """What has come of one answer."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reason: str | None = None
        self._prompt: list[int] = []
        self._ids: list[int] = []
        self._logprobs: list[float] = []

    def add(self, choice: Mapping[str, Any]) -> None:
        self.text.append(choice.get("text") or "")
        self.reason = choice.get("finish_reason") or self.reason
        self._prompt = self._prompt or choice.get("prompt_token_ids") or []
        self._ids += choice.get("token_ids") or []
        self._logprobs += (choice.get("logprobs") or {}).get("token_logprobs") or []

    def trace(self) -> TokenTrace | None:
        if not self._prompt or not self._ids or len(self._ids) != len(self._logprobs):
            return None
        return TokenTrace(
            prompt_ids=tuple(self._prompt),
            output_ids=tuple(self._ids),
            logprobs=tuple(self._logprobs),
            policy_versions=(0,) * len(self._ids),
        )


class _Parts:
    """What has come of the answers."""

    def __init__(self) -> None:
        self._choices: dict[int, _Choice] = {}
        self._usage: Mapping[str, Any] = {}
        self._model: str | None = None

    def add(self, body: Mapping[str, Any]) -> None:
        if body.get("error"):
            raise UnreadableError("the answer is an error")
        self._usage = body.get("usage") or self._usage
        self._model = self._model or body.get("model")
        for choice in items(body.get("choices"), "choices"):
            index = int(mapping(choice, "a choice").get("index") or 0)
            self._choices.setdefault(index, _Choice()).add(choice)

    def so_far(self) -> Message | None:
        texts = ("".join(self._choices[index].text) for index in sorted(self._choices))
        return next((Message(role="assistant", content=text) for text in texts), None)

    def answers(self, asked: Asked, *, trace: bool) -> Sequence[Answered]:
        """By prompt, and for each prompt the `n` answers to it."""
        found = [(index, self._choices[index]) for index in sorted(self._choices)]
        if not found or any(choice.reason is None for _, choice in found):
            raise UnreadableError("the answer ended before it was complete")
        return [self._answered(asked, *each, trace=trace) for each in found]

    def _answered(self, asked: Asked, index: int, choice: _Choice, *, trace: bool) -> Answered:
        used = self._usage if index == 0 else {}  # of all answers: counted once
        made = Completion(
            message=Message(role="assistant", content="".join(choice.text)),
            finish_reason=finish_reason(choice.reason),
            usage=Usage(
                prompt_tokens=used.get("prompt_tokens") or 0,
                completion_tokens=used.get("completion_tokens") or 0,
            ),
            model=self._model or asked.model,
            tokens=choice.trace() if trace else None,
        )
        if not asked.prompts:
            return Answered(completion=made)
        if index // asked.n >= len(asked.prompts):
            raise UnreadableError("it has more answers than were asked for")
        return Answered(completion=made, messages=asked.prompts[index // asked.n])


class _Whole(WholeBody):
    def answers(self, asked: Asked, *, turn: int, trace: bool) -> Sequence[Answered]:
        parts = _Parts()
        parts.add(self.body())
        return parts.answers(asked, trace=trace)


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

    def answers(self, asked: Asked, *, turn: int, trace: bool) -> Sequence[Answered]:
        return self._parts.answers(asked, trace=trace)

    def so_far(self) -> Message | None:
        return self._parts.so_far()
