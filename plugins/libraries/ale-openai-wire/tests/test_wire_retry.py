"""Retries, and what a status means."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ale.errors import ContextLengthError, LLMError, ToolsUnsupportedError
from ale.testing.fakes import ManualClock
from ale_openai_wire import AttemptError, Redactor, read_models, status_error, stream_error
from ale_openai_wire.hints import unknown_model
from ale_openai_wire.models import checks_names, lists
from ale_openai_wire.options import ChatOptions
from ale_openai_wire.retry import backoff, with_retries

POLICY = ChatOptions(max_retries=3, retry_min_s=0.0, retry_max_s=0.0, timeout_s=1, deadline_s=10)
NOW = 1_700_000_000.0


def failing(*outcomes: AttemptError | str) -> Callable[[], Awaitable[str]]:
    left = iter(outcomes)

    async def attempt() -> str:
        outcome = next(left)
        if isinstance(outcome, AttemptError):
            raise outcome
        return outcome

    return attempt


async def run(attempt: Callable[[], Awaitable[str]], policy: ChatOptions = POLICY) -> str:
    return await with_retries(attempt, policy, where="here", rng=random.Random(0))


async def test_the_first_answer_is_returned() -> None:
    busy = AttemptError("status 503", transient=True)
    assert await run(failing(busy, busy, busy, "yes")) == "yes"


async def test_the_final_error_counts_the_failures_by_reason() -> None:
    errors = [AttemptError("status 503", transient=True)] * 2 + [
        AttemptError("status 429", transient=True)
    ] * 2
    with pytest.raises(LLMError) as caught:
        await run(failing(*errors))
    assert caught.value.transient
    assert "after 4 attempts" in str(caught.value)
    assert str(caught.value).endswith("2 times status 503; then 2 times status 429")


async def test_a_permanent_error_is_not_retried() -> None:
    with pytest.raises(LLMError, match=r"^here: no such model$") as caught:
        await run(failing(AttemptError("no such model", transient=False)))
    assert not caught.value.transient
    assert caught.value.__context__ is None


async def test_a_conversation_that_is_too_long_has_its_own_error() -> None:
    error = AttemptError("too long", transient=False, kind=ContextLengthError)
    with pytest.raises(ContextLengthError):
        await run(failing(error))


async def test_a_wait_past_the_deadline_is_not_started() -> None:
    error = AttemptError("status 429", transient=True, wait_s=11)
    with pytest.raises(LLMError, match="a wait of 11 s would pass the deadline of 10 s"):
        await run(failing(error))


async def test_the_deadline_counts_the_attempts_too() -> None:
    busy = AttemptError("status 503", transient=True)
    clock = ManualClock(start=0.0, tick=3.0)
    with pytest.raises(LLMError, match="after 2 attempts"):
        await with_retries(
            failing(*[busy] * 9),
            ChatOptions(
                max_retries=8, retry_min_s=0.0, retry_max_s=0.0, timeout_s=1, deadline_s=10
            ),
            where="here",
            rng=random.Random(0),
            monotonic=clock,
        )


def test_waits_double_up_to_a_maximum_with_jitter_over_the_upper_half() -> None:
    policy = ChatOptions(max_retries=9, retry_min_s=1, retry_max_s=8, timeout_s=1, deadline_s=99)
    waits = [[backoff(policy, n, random.Random(s)) for s in range(200)] for n in range(5)]
    assert [round(max(w)) for w in waits] == [1, 2, 4, 8, 8]
    assert [min(w) > top / 2 for w, top in zip(waits, (1, 2, 4, 8, 8), strict=True)] == [True] * 5
    assert backoff(policy, 3, random.Random(1)) == backoff(policy, 3, random.Random(1))
    assert backoff(policy, 10_000, random.Random(1)) <= 8


def failed(
    status: int,
    text: str = "",
    headers: dict[str, str] | None = None,
    *,
    with_tools: bool = False,
) -> AttemptError:
    return status_error(
        status,
        text,
        headers or {},
        redact=Redactor("sk-key"),
        key="the key in KEY",
        clock=lambda: NOW,
        with_tools=with_tools,
    )


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_these_are_transient(status: int) -> None:
    assert failed(status).transient


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
def test_these_are_permanent(status: int) -> None:
    assert not failed(status).transient


@pytest.mark.parametrize("status", [429, 503])
def test_these_say_that_there_are_too_many_requests(status: int) -> None:
    assert failed(status).refused
    assert stream_error({"code": str(status)}, redact=Redactor()).refused


@pytest.mark.parametrize("status", [400, 404, 408, 409, 500, 502])
def test_these_do_not_say_that_there_are_too_many_requests(status: int) -> None:
    assert not failed(status).refused
    assert not stream_error({"code": str(status)}, redact=Redactor()).refused


def test_a_429_for_an_exhausted_quota_is_permanent() -> None:
    assert not failed(429, '{"error": {"code": "insufficient_quota", "message": "m"}}').refused
    assert not failed(429, '{"error": {"code": "insufficient_quota", "message": "m"}}').transient


@pytest.mark.parametrize(
    "text",
    [
        '{"error": {"message": "m", "code": "context_length_exceeded"}}',
        '{"error": {"message": "This model\'s maximum context length is 8 tokens."}}',
        '{"message": "The input (9 tokens) is longer than the model\'s context length (8)."}',
        '{"error": {"code": 400, "message": "m", "type": "exceed_context_size_error"}}',
        '{"error": {"message": "decoder prompt is longer than the maximum model length of 8"}}',
        '{"error": "the request exceeds the available context size"}',
    ],
)
def test_too_long_is_recognised_in_the_messages_of_many_servers(text: str) -> None:
    found = failed(400, text)
    assert found.kind is ContextLengthError
    assert not found.transient


def test_other_bad_requests_are_not_too_long() -> None:
    assert failed(400, '{"error": {"message": "temperature must be at most 2"}}').kind is LLMError


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"Retry-After": "Tue, 14 Nov 2023 22:13:30 GMT"}, 10.0),
        ({"Retry-After": "Tue, 14 Nov 2023 22:13:00 GMT"}, 0.0),
        ({"Retry-After": "-3"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "nan"}, None),
    ],
)
def test_retry_after_is_read_in_each_form(headers: dict[str, str], wait: float | None) -> None:
    assert failed(429, headers=headers).wait_s == wait


def test_a_401_names_the_variable_and_repeats_nothing_of_the_server() -> None:
    found = failed(401, "Incorrect API key provided: sk-k**")
    assert found.reason == "401: the server refused the key in KEY"


def test_a_servers_message_is_redacted_and_shortened() -> None:
    reason = failed(500, "Bearer sk-key\n\n  " + "x" * 10_000).reason
    assert reason.startswith("status 500 (Bearer *** xxx")
    assert len(reason) < 450


@pytest.mark.parametrize(
    ("error", "transient", "kind"),
    [
        ({"message": "overloaded", "code": 503}, True, LLMError),
        ({"message": "overloaded"}, True, LLMError),
        ({"message": "bad", "code": 400}, False, LLMError),
        ({"message": "the context window is full"}, False, ContextLengthError),
        ("gone", True, LLMError),
    ],
)
def test_an_error_in_a_stream_is_classified_by_its_code(
    error: Any, transient: bool, kind: type[LLMError]
) -> None:
    found = stream_error(error, redact=Redactor())
    assert (found.transient, found.kind) == (transient, kind)


async def test_retry_after_is_a_lower_bound_and_never_shortens_the_backoff(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("ale_openai_wire.retry.asyncio.sleep", sleep)
    policy = ChatOptions(max_retries=3, retry_min_s=1, retry_max_s=8, timeout_s=1, deadline_s=99)
    asked = [AttemptError("status 429", transient=True, wait_s=wait) for wait in (0, 7, None)]
    assert await run(failing(*asked, "yes"), policy) == "yes"
    first, second, third = waits
    assert 0.5 <= first <= 1
    assert 7 <= second <= 8
    assert 2 <= third <= 4


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (
            400,
            '{"error": {"message": "library/gemma3:4b does not support tools"}}',
        ),
        (400, '{"message": "\\"auto\\" tool choice requires --enable-auto-tool-choice and ..."}'),
        (500, '{"error": {"message": "tools param requires --jinja flag"}}'),
        (404, '{"error": {"message": "No endpoints found that support tool use."}}'),
        (422, '{"error": "tool calling is not supported by this model"}'),
    ],
)
def test_a_refusal_of_tools_is_recognised_and_says_what_to_do(status: int, text: str) -> None:
    found = failed(status, text, with_tools=True)
    assert (found.kind, found.transient) == (ToolsUnsupportedError, False)
    assert "llm.tools: false" in found.reason
    assert failed(status, text).kind is LLMError


def test_too_long_says_how_to_get_more_context() -> None:
    found = failed(400, '{"error": {"code": "context_length_exceeded"}}')
    assert "agent.context_max_tokens" in found.reason


def test_a_missing_model_is_named_with_those_that_there_are() -> None:
    assert unknown_model("m", ["b", "a"]).endswith("set llm.model to one of: a, b")
    assert unknown_model("m", [f"m{n:02}" for n in range(25)]).endswith("m19 and 5 more")


def test_the_list_of_models_is_read_and_anything_else_is_no_list() -> None:
    body = b'{"data": [{"id": "qwen3:latest", "owned_by": "library"}, {"id": "x"}]}'
    models = read_models(body)
    assert lists(models, "qwen3")
    assert not lists(models, "qwen2")
    assert checks_names(models)
    assert not checks_names(read_models(b'{"data": [{"id": "x", "owned_by": "llamacpp"}]}'))
    assert read_models(b"<html>") == {}
