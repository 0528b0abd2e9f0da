"""Asking again, and what a status means."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ale.errors import ContextLengthError, LLMError
from ale.testing.fakes import ManualClock
from ale_openai_wire import Fault, Redactor, RetryPolicy, error_fault, persist, status_fault
from ale_openai_wire.retry import backoff

POLICY = RetryPolicy(max_retries=3, min_wait_s=0.0, max_wait_s=0.0, timeout_s=1, deadline_s=10)
NOW = 1_700_000_000.0


def failing(*faults: Fault | str) -> Callable[[], Awaitable[str]]:
    left = iter(faults)

    async def attempt() -> str:
        outcome = next(left)
        if isinstance(outcome, Fault):
            raise outcome
        return outcome

    return attempt


async def run(attempt: Callable[[], Awaitable[str]], policy: RetryPolicy = POLICY) -> str:
    return await persist(attempt, policy, where="here", rng=random.Random(0))


async def test_the_first_answer_is_returned() -> None:
    busy = Fault("status 503", transient=True)
    assert await run(failing(busy, busy, busy, "yes")) == "yes"


async def test_the_error_in_the_end_counts_what_was_met() -> None:
    faults = [Fault("status 503", transient=True)] * 2 + [Fault("status 429", transient=True)] * 2
    with pytest.raises(LLMError) as caught:
        await run(failing(*faults))
    assert caught.value.transient
    assert "after 4 attempts" in str(caught.value)
    assert str(caught.value).endswith("2 times status 503; then 2 times status 429")


async def test_a_fault_for_good_ends_it_at_once() -> None:
    with pytest.raises(LLMError, match=r"^here: no such model$") as caught:
        await run(failing(Fault("no such model", transient=False)))
    assert not caught.value.transient
    assert caught.value.__context__ is None


async def test_a_context_too_long_has_its_own_error() -> None:
    fault = Fault("too long", transient=False, context_length=True)
    with pytest.raises(ContextLengthError):
        await run(failing(fault))


async def test_a_wait_past_the_deadline_is_not_begun() -> None:
    fault = Fault("status 429", transient=True, wait_s=11)
    with pytest.raises(LLMError, match="a wait of 11 s would pass the deadline of 10 s"):
        await run(failing(fault))


async def test_the_deadline_counts_the_attempts_too() -> None:
    busy = Fault("status 503", transient=True)
    clock = ManualClock(start=0.0, tick=3.0)
    with pytest.raises(LLMError, match="after 2 attempts"):
        await persist(
            failing(*[busy] * 9),
            RetryPolicy(max_retries=8, min_wait_s=0.0, max_wait_s=0.0, timeout_s=1, deadline_s=10),
            where="here",
            rng=random.Random(0),
            monotonic=clock,
        )


def test_waits_double_up_to_their_bound_and_are_spread_over_their_upper_half() -> None:
    policy = RetryPolicy(max_retries=9, min_wait_s=1, max_wait_s=8, timeout_s=1, deadline_s=99)
    waits = [[backoff(policy, n, random.Random(s)) for s in range(200)] for n in range(5)]
    assert [round(max(w)) for w in waits] == [1, 2, 4, 8, 8]
    assert [min(w) > top / 2 for w, top in zip(waits, (1, 2, 4, 8, 8), strict=True)] == [True] * 5
    assert backoff(policy, 3, random.Random(1)) == backoff(policy, 3, random.Random(1))
    assert backoff(policy, 10_000, random.Random(1)) <= 8


def fault(status: int, text: str = "", headers: dict[str, str] | None = None) -> Fault:
    return status_fault(
        status,
        text,
        headers or {},
        redact=Redactor("sk-key"),
        key="the key in KEY",
        clock=lambda: NOW,
    )


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_these_pass(status: int) -> None:
    assert fault(status).transient


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
def test_these_do_not(status: int) -> None:
    assert not fault(status).transient


def test_no_wait_helps_against_an_empty_account() -> None:
    assert not fault(429, '{"error": {"code": "insufficient_quota", "message": "m"}}').transient


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
def test_servers_have_many_words_for_too_long(text: str) -> None:
    found = fault(400, text)
    assert found.context_length
    assert not found.transient


def test_other_bad_requests_are_not_too_long() -> None:
    assert not fault(400, '{"error": {"message": "temperature must be at most 2"}}').context_length


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
def test_the_wait_is_read_in_each_of_its_forms(headers: dict[str, str], wait: float | None) -> None:
    assert fault(429, headers=headers).wait_s == wait


def test_a_401_names_the_variable_and_repeats_nothing() -> None:
    found = fault(401, "Incorrect API key provided: sk-k**")
    assert found.reason == "401: the server refused the key in KEY"


def test_a_servers_words_are_cleaned_and_shortened() -> None:
    reason = fault(500, "Bearer sk-key\n\n  " + "x" * 10_000).reason
    assert reason.startswith("status 500 (Bearer *** xxx")
    assert len(reason) < 450


@pytest.mark.parametrize(
    ("error", "transient", "too_long"),
    [
        ({"message": "overloaded", "code": 503}, True, False),
        ({"message": "overloaded"}, True, False),
        ({"message": "bad", "code": 400}, False, False),
        ({"message": "the context window is full"}, False, True),
        ("gone", True, False),
    ],
)
def test_an_error_within_a_stream_is_judged_by_its_code(
    error: Any, transient: bool, too_long: bool
) -> None:
    found = error_fault(error, redact=Redactor())
    assert (found.transient, found.context_length) == (transient, too_long)


async def test_a_servers_wish_is_a_lower_bound_and_never_zero_under_backoff(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("ale_openai_wire.retry.asyncio.sleep", sleep)
    policy = RetryPolicy(max_retries=3, min_wait_s=1, max_wait_s=8, timeout_s=1, deadline_s=99)
    asked = [Fault("status 429", transient=True, wait_s=wait) for wait in (0, 7, None)]
    assert await run(failing(*asked, "yes"), policy) == "yes"
    first, second, third = waits
    assert 0.5 <= first <= 1
    assert 7 <= second <= 8
    assert 2 <= third <= 4
