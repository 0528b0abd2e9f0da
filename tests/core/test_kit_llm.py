"""The kits for language models can fail: each broken model here is caught by the test for it."""

import asyncio
import contextlib
import http.client
import itertools
import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from attrs import evolve

from ale.errors import LLMError
from ale.testing import llm as llm_kit
from ale.testing.llm import CAPITAL, COUNT, LLMContract, ask
from ale.testing.openai import OpenAIServerContract
from ale.types import (
    Completion,
    CompletionRequest,
    LLMCapabilities,
    Message,
    TokenTrace,
    ToolCall,
    Usage,
)

CALL = ToolCall(id="call_1", name="add", arguments='{"a": 17, "b": 25}')


class GoodLLM:
    """Keeps every promise: a model in this process that knows a few answers."""

    capabilities = LLMCapabilities(token_ids=True, logprobs=True, deterministic=True)

    def answer(self, request: CompletionRequest) -> Completion:
        text = "Paris." if request.messages[-1].content == CAPITAL else "One"
        calls = (CALL,) if request.tools and request.messages[-1].role == "user" else ()
        n = 1 if request.sampling.max_tokens == 1 else 2
        return Completion(
            message=Message(role="assistant", content=text, tool_calls=calls),
            finish_reason="length" if n == 1 else "stop",
            usage=Usage(prompt_tokens=3, completion_tokens=n),
            tokens=TokenTrace(
                prompt_ids=(1, 2),
                output_ids=(7,) * n,
                logprobs=(-0.5,) * n,
                policy_versions=(0,) * n,
                text_offsets=(0,) * n,
            ),
        )

    async def complete(self, request: CompletionRequest) -> Completion:
        await asyncio.sleep(0.01)
        return self.answer(request)

    async def aclose(self) -> None:
        pass


class TestGood(LLMContract):
    @pytest.fixture
    def llm(self) -> GoodLLM:
        return GoodLLM()

    @pytest.fixture
    def known_answer(self) -> str:
        return "Paris."

    @pytest.fixture
    def calls_when_asked(self) -> bool:
        return True


kit = LLMContract()


def broken(message: dict[str, Any] | None = None, **fields: Any) -> GoodLLM:
    """A good model whose every answer has these fields in place of its own."""

    class Broken(GoodLLM):
        def answer(self, request: CompletionRequest) -> Completion:
            made = super().answer(request)
            return evolve(made, message=evolve(made.message, **(message or {})), **fields)

    return Broken()


@pytest.mark.parametrize(
    "llm",
    [
        broken({"role": "user"}),
        broken({"content": "Paris"}),
        broken({"tool_calls": (CALL,)}),
        broken(finish_reason="abort"),
    ],
    ids=["role", "text", "call", "reason"],
)
async def test_a_wrong_answer_is_caught(llm: GoodLLM) -> None:
    with pytest.raises(AssertionError):
        await kit.test_an_answer_is_a_message_of_the_assistant(llm, "Paris.")


async def test_missing_usage_is_caught() -> None:
    with pytest.raises(AssertionError):
        await kit.test_usage_counts_the_tokens_of_both_sides(broken(usage=Usage()))


async def test_an_answer_longer_than_asked_for_is_caught() -> None:
    with pytest.raises(AssertionError):
        await kit.test_max_tokens_bounds_the_answer(broken(usage=Usage(completion_tokens=2)))


async def test_answers_that_mix_are_caught() -> None:
    class Mixing(GoodLLM):
        async def complete(self, request: CompletionRequest) -> Completion:
            self.latest = request
            await asyncio.sleep(0.01)
            return self.answer(self.latest)

    with pytest.raises(AssertionError):
        await kit.test_many_at_once_do_not_mix(Mixing(), "Paris.")


@pytest.mark.parametrize(
    "calls",
    [(evolve(CALL, id=""),), (CALL, CALL), (evolve(CALL, name="sub"),), ()],
    ids=["no-id", "same-id", "other-tool", "none"],
)
async def test_calls_that_can_not_be_answered_are_caught(calls: tuple[ToolCall, ...]) -> None:
    with pytest.raises(AssertionError):
        await kit.test_a_tool_call_makes_the_round_trip(broken({"tool_calls": calls}), True)


async def test_a_model_that_ignores_cancellation_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Deaf(GoodLLM):
        async def complete(self, request: CompletionRequest) -> Completion:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.5)
            await asyncio.sleep(0.5)
            return self.answer(request)

    real = asyncio.wait
    monkeypatch.setattr(asyncio, "wait", lambda tasks, timeout: real(tasks, timeout=0.1))
    with pytest.raises(AssertionError, match="still runs"):
        await kit.test_a_cancelled_request_ends_and_the_next_is_answered(Deaf(), "Paris.")


async def test_a_model_that_a_cancellation_breaks_is_caught() -> None:
    class Fragile(GoodLLM):
        gone = False

        async def complete(self, request: CompletionRequest) -> Completion:
            if self.gone:
                raise LLMError("the connection is gone")
            try:
                return await super().complete(request)
            except asyncio.CancelledError:
                self.gone = True
                raise

    with pytest.raises(LLMError):
        await kit.test_a_cancelled_request_ends_and_the_next_is_answered(Fragile(), None)


TRACE = GoodLLM().answer(ask(COUNT)).tokens
assert TRACE is not None


@pytest.mark.parametrize(
    "trace",
    [
        None,
        evolve(TRACE, prompt_ids=()),
        evolve(TRACE, logprobs=(-0.5,)),
        evolve(TRACE, logprobs=(0.5, 0.5)),
        evolve(TRACE, logprobs=(float("nan"), -0.5)),
        evolve(TRACE, policy_versions=()),
        evolve(TRACE, text_offsets=(1, 0)),
        evolve(TRACE, text_offsets=(0, 99)),
    ],
    ids=["none", "prompt", "count", "positive", "nan", "versions", "order", "range"],
)
async def test_a_trace_that_breaks_the_promise_is_caught(trace: TokenTrace | None) -> None:
    with pytest.raises(AssertionError):
        await kit.test_tokens_are_given_exactly_where_they_are_promised(broken(tokens=trace))


async def test_tokens_that_were_not_promised_are_caught() -> None:
    llm = GoodLLM()
    llm.capabilities = LLMCapabilities(token_ids=False)
    with pytest.raises(AssertionError, match="deny it"):
        await kit.test_tokens_are_given_exactly_where_they_are_promised(llm)


async def test_a_false_promise_of_determinism_is_caught() -> None:
    class Moody(GoodLLM):
        count = itertools.count()

        def answer(self, request: CompletionRequest) -> Completion:
            return evolve(super().answer(request), model=str(next(self.count)))

    with pytest.raises(AssertionError):
        await kit.test_the_same_seed_gives_the_same_answer_where_that_is_promised(Moody())


async def test_a_close_that_can_be_done_once_is_caught() -> None:
    class Once(GoodLLM):
        closed = False

        async def aclose(self) -> None:
            if self.closed:
                raise RuntimeError("closed already")
            self.closed = True

    with pytest.raises(RuntimeError):
        await kit.test_closing_twice_is_harmless(Once())


class NaiveLLM:
    """What one writes in five minutes over HTTP: one attempt, no retry, one kind of error."""

    capabilities = LLMCapabilities()

    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url, key

    def _ask(self, request: CompletionRequest) -> Completion:
        messages = [{"role": m.role, "content": m.content} for m in request.messages]
        call = urllib.request.Request(
            f"{self._url}/chat/completions",
            json.dumps({"messages": messages}).encode(),
            {"Authorization": f"Bearer {self._key}"},
        )
        with urllib.request.urlopen(call, timeout=3) as response:
            message = json.loads(response.read())["choices"][0]["message"]
        return Completion(message=Message(role="assistant", content=message["content"] or ""))

    async def complete(self, request: CompletionRequest) -> Completion:
        try:
            return await asyncio.to_thread(self._ask, request)
        except urllib.error.HTTPError as error:
            with error:
                body = error.read().decode()
            raise LLMError(f"{self._key} got {body}", transient=True) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise LLMError(str(error)) from error

    async def aclose(self) -> None:
        pass


server_kit = OpenAIServerContract()


@pytest.mark.parametrize(
    "fault",
    [
        {"fault": 503},
        {"fault": "drop"},
        {"fault": "half", "text": "cut"},
        {"fault": "invalid_json"},
    ],
    ids=lambda fault: str(fault["fault"]),
)
async def test_a_client_that_does_not_retry_is_caught(fault: dict[str, Any]) -> None:
    with pytest.raises(LLMError):
        await server_kit.test_a_transient_error_is_retried(NaiveLLM, fault)


async def test_a_client_that_gives_up_too_soon_is_caught() -> None:
    with pytest.raises(AssertionError):
        await server_kit.test_what_does_not_pass_is_a_transient_error_in_the_end(NaiveLLM)


async def test_an_error_that_does_not_name_a_dead_server_is_caught() -> None:
    with pytest.raises(AssertionError):
        await server_kit.test_a_server_that_is_not_there_is_named_in_the_error(NaiveLLM)


async def test_a_client_error_marked_as_transient_is_caught() -> None:
    with pytest.raises(AssertionError):
        await server_kit.test_what_is_wrong_for_good_is_asked_once(NaiveLLM, 400)


async def test_an_error_that_shows_the_key_is_caught() -> None:
    class Leaking(NaiveLLM):
        async def complete(self, request: CompletionRequest) -> Completion:
            try:
                return await super().complete(request)
            except LLMError as error:
                error.transient = False
                raise

    with pytest.raises(AssertionError, match="shows the key"):
        await server_kit.test_what_is_wrong_for_good_is_asked_once(Leaking, 401)


async def test_a_context_error_without_its_kind_is_caught() -> None:
    with pytest.raises(AssertionError):
        await server_kit.test_a_conversation_too_long_has_an_error_of_its_own(NaiveLLM)


async def test_a_connection_left_open_by_cancellation_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(NaiveLLM):
        def _ask(self, request: CompletionRequest) -> Completion:
            call = urllib.request.Request(f"{self._url}/chat/completions", b'{"messages": []}')
            with urllib.request.urlopen(call, timeout=9) as response:
                response.read()
            raise AssertionError

    monkeypatch.setattr(llm_kit, "CANCEL_S", 0.5)
    with pytest.raises(AssertionError, match="the end of request 0 did not happen"):
        await server_kit.test_cancellation_closes_the_connection(Slow, "silence")


async def test_calls_that_are_lost_are_caught() -> None:
    with pytest.raises(AssertionError):
        await server_kit.test_calls_stay_as_the_model_wrote_them(NaiveLLM)
