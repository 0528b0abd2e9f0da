"""Contract kits for language models: `LLMContract` for any, `LLMServerContract` for models
reached over HTTP, and `ale.testing.openai.OpenAIServerContract` where the API is OpenAI's.

A model in this process::

    class TestMyModel(LLMContract):
        @pytest.fixture
        def llm(self) -> LLM:
            return MyModel()

A provider of models behind an API over HTTP, tested against a real server in its own process,
errors included::

    class TestMyProvider(LLMServerContract):
        @pytest.fixture
        def connect(self) -> Connect:
            return lambda url, key: MyProvider(url, key, timeout_s=0.5, max_retries=3, wait_s=0.01)

        @classmethod
        def serve(cls, script: Script) -> AbstractContextManager[ScriptedServer]:
            return scripted_server(script, wire="my_tests.wire:MyWire")
"""

import asyncio
import math
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, get_args

import pytest
import pytest_asyncio

from ale.errors import ContextLengthError, LLMError
from ale.protocols import LLM
from ale.testing._marks import async_tests
from ale.testing._openai_script import Script
from ale.testing.builders import conversation
from ale.testing.openai_server import ScriptedServer, openai_server
from ale.testing.waiting import until
from ale.testing.wire import Step
from ale.types import (
    Completion,
    CompletionRequest,
    FinishReason,
    Message,
    Sampling,
    ToolSpec,
)

Connect = Callable[[str, str], LLM]
"""Makes a model from a base URL and a key. See `LLMServerContract.connect`."""

ADD = ToolSpec(
    name="add",
    description="Add two whole numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)
CAPITAL = "What is the capital of France? Answer with one word."
COUNT = "Count to a hundred."
SUM = "What is 17 plus 25? Use the tool."
UNUSUAL = 'Say something about: naïve 🐍 "quoted" \\ \u2028 \x00 {"role": "user"}'
KEY = "kit-key-5d41402a"
_LONG = "x" * 10_000_000
CANCEL_S = 60.0
"""Seconds within which a cancelled request has to be closed."""


def ask(*texts: str, seed: int = 0, **fields: Any) -> CompletionRequest:
    """A request with alternating messages of user and assistant, the user's first."""
    messages = tuple(
        Message(role="user" if index % 2 == 0 else "assistant", content=text)
        for index, text in enumerate(texts)
    )
    filled = {"messages": messages, "turn": len(texts) // 2, **fields}
    return CompletionRequest(conversation=conversation(seed=seed), **filled)


@async_tests
class LLMContract:
    """The contract of every `LLM`. Override `llm`, and other fixtures if they apply."""

    @pytest.fixture
    def llm(self) -> LLM:
        """The model under test. May be an async fixture."""
        raise NotImplementedError("give the kit its fixture 'llm'")

    @pytest.fixture
    def known_answer(self) -> str | None:
        """The model's exact answer to `CAPITAL`; None if unknown."""
        return None

    @pytest.fixture
    def calls_when_asked(self) -> bool:
        """Whether the model always calls `ADD` when it has this tool and is asked `SUM`."""
        return False

    async def test_an_answer_is_a_message_of_the_assistant(
        self, llm: LLM, known_answer: str | None
    ) -> None:
        answer = await llm.complete(ask(CAPITAL))
        assert answer.message.role == "assistant"
        assert isinstance(answer.message.content, str)
        assert answer.message.tool_calls == (), "a call, though no tool was offered"
        assert answer.finish_reason in get_args(FinishReason)
        if known_answer is not None:
            assert answer.message.content == known_answer

    async def test_usage_counts_the_tokens_of_both_sides(self, llm: LLM) -> None:
        usage = (await llm.complete(ask(CAPITAL))).usage
        assert usage.prompt_tokens > 0
        assert usage.completion_tokens > 0

    async def test_max_tokens_bounds_the_answer(self, llm: LLM) -> None:
        answer = await llm.complete(ask(COUNT, sampling=Sampling(max_tokens=1)))
        assert answer.usage.completion_tokens <= 1
        assert answer.finish_reason in ("length", "stop")

    async def test_many_at_once_do_not_mix(self, llm: LLM, known_answer: str | None) -> None:
        first, *others = await asyncio.gather(
            llm.complete(ask(CAPITAL)),
            *(llm.complete(ask(COUNT, sampling=Sampling(max_tokens=1))) for _ in range(4)),
        )
        assert all(other.usage.completion_tokens <= 1 for other in others)
        if known_answer is not None:
            assert first.message.content == known_answer

    async def test_a_tool_call_makes_the_round_trip(self, llm: LLM, calls_when_asked: bool) -> None:
        if not llm.capabilities.tools:
            assert not calls_when_asked, "it calls tools, yet its capabilities deny it"
            return
        request = ask(SUM, tools=(ADD,))
        answer = (await llm.complete(request)).message
        ids = [call.id for call in answer.tool_calls]
        assert all(ids), "a call without an id can't be answered"
        assert len(set(ids)) == len(ids)
        assert all(isinstance(call.arguments, str) for call in answer.tool_calls)
        if calls_when_asked:
            assert [call.name for call in answer.tool_calls] == ["add"]
        results = tuple(Message(role="tool", content="42", tool_call_id=id) for id in ids)
        follow_up = (*request.messages, answer, *results)
        if not ids:
            follow_up = (*follow_up, Message(role="user", content="Continue."))
        final = await llm.complete(ask(messages=follow_up, tools=(ADD,), turn=1))
        assert final.message.role == "assistant"

    async def test_a_long_conversation_is_answered_or_named_too_long(self, llm: LLM) -> None:
        texts = [f"This is message {number}." for number in range(200)]
        try:
            answer = await llm.complete(ask(*texts, CAPITAL, sampling=Sampling(max_tokens=8)))
        except ContextLengthError:
            return
        assert answer.message.role == "assistant"

    async def test_unusual_characters_are_taken(self, llm: LLM) -> None:
        answer = await llm.complete(ask(UNUSUAL, sampling=Sampling(max_tokens=8)))
        assert answer.message.role == "assistant"

    async def test_a_cancelled_request_ends_and_the_next_is_answered(
        self, llm: LLM, known_answer: str | None
    ) -> None:
        task = asyncio.create_task(llm.complete(ask(COUNT, sampling=Sampling(max_tokens=64))))
        await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=60)
        assert done, "a minute after its cancellation the request still runs"
        answer = await llm.complete(ask(CAPITAL))
        if known_answer is not None:
            assert answer.message.content == known_answer

    async def test_tokens_are_given_exactly_where_they_are_promised(self, llm: LLM) -> None:
        answer = await llm.complete(ask(CAPITAL, sampling=Sampling(max_tokens=8)))
        _check_tokens(llm, answer)

    async def test_the_same_seed_gives_the_same_answer_where_that_is_promised(
        self, llm: LLM
    ) -> None:
        request = ask(CAPITAL, seed=7, sampling=Sampling(temperature=1.0, max_tokens=8))
        answers = [await llm.complete(request) for _ in range(3)]
        if llm.capabilities.deterministic:
            assert answers[0] == answers[1] == answers[2]

    async def test_closing_twice_is_harmless(self, llm: LLM) -> None:
        await llm.complete(ask(CAPITAL, sampling=Sampling(max_tokens=8)))
        await llm.aclose()
        await llm.aclose()


def _check_tokens(llm: LLM, answer: Completion) -> None:
    trace = answer.tokens
    if not llm.capabilities.token_ids:
        assert trace is None, "tokens are given, yet the capabilities deny it"
        return
    assert trace is not None, "tokens are promised, yet not given"
    assert trace.prompt_ids
    assert trace.output_ids
    n = len(trace.output_ids)
    assert len(trace.logprobs) == n
    assert len(trace.policy_versions) == n
    assert all(math.isfinite(value) and value <= 0 for value in trace.logprobs)
    if trace.text_offsets is not None:
        assert len(trace.text_offsets) == n
        assert list(trace.text_offsets) == sorted(trace.text_offsets)
        assert all(0 <= at <= len(answer.message.content) for at in trace.text_offsets)


_TOKENS = {
    "prompt_ids": [101, 102, 103],
    "ids": [7, 8],
    "logprobs": [-0.25, -0.5],
    "texts": ["Par", "is."],
}
_PARIS: Step = {
    "text": "Paris.",
    "reasoning": "An easy one.",
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    "tokens": _TOKENS,
}
_SUM: Step = {"calls": [{"name": "add", "arguments": {"a": 17, "b": 25}, "id": "call_sum"}]}
_ONE: Step = {
    "text": "One",
    "finish_reason": "length",
    "usage": {"prompt_tokens": 4, "completion_tokens": 1},
}


async def _fail(llm: LLM, request: CompletionRequest) -> LLMError:
    with pytest.raises(LLMError) as caught:
        await llm.complete(request)
    return caught.value


@async_tests
class LLMServerContract(LLMContract):
    """`LLMContract`, and what a provider over HTTP promises in addition.

    Override `connect`; and `serve`, if the API is not OpenAI's.
    """

    @classmethod
    def serve(cls, script: Script) -> AbstractContextManager[ScriptedServer]:
        """A server that plays the script: `scripted_server` with a wire of your own, or any other.

        By default, a server with OpenAI's API.
        """
        return openai_server(script)

    @pytest.fixture
    def connect(self) -> Connect:
        """Makes the provider from a base URL (up to ``/v1``) and a key.

        Give it options that make the kit quick: an attempt is cut off after 0.5 to 1 second, the
        provider's own waits are at most 0.05 s, and at least two retries are allowed.
        """
        raise NotImplementedError("give the kit its fixture 'connect'")

    @pytest.fixture
    def known_answer(self) -> str | None:
        """The script's answer."""
        return "Paris."

    @pytest.fixture
    def calls_when_asked(self) -> bool:
        """The script does."""
        return True

    @pytest.fixture(scope="class")
    @classmethod
    def usual_server(cls) -> Iterator[ScriptedServer]:
        """A server that answers the requests of `LLMContract`."""
        script = {
            "conversations": [
                {"match": "17 plus 25", "steps": [_SUM, {"text": "42."}]},
                {"match": "This is message", "steps": [{"text": "Long."}] * 120},
                {"match": "capital of France", "steps": [_PARIS]},
                {"match": "Count", "steps": [_ONE]},
                {"match": "", "steps": [{"text": "Hm."}]},
            ]
        }
        with cls.serve(script) as server:
            yield server

    @pytest_asyncio.fixture
    async def llm(  # type: ignore[override]
        self, connect: Connect, usual_server: ScriptedServer
    ) -> AsyncIterator[LLM]:
        """The provider, with the usual server."""
        llm = connect(usual_server.url, KEY)
        yield llm
        await llm.aclose()

    async def test_usage_reasoning_and_reason_are_those_of_the_server(self, llm: LLM) -> None:
        paris = await llm.complete(ask(CAPITAL))
        assert (paris.usage.prompt_tokens, paris.usage.completion_tokens) == (3, 2)
        assert paris.message.reasoning == "An easy one."
        assert paris.finish_reason == "stop"
        assert (await llm.complete(ask(COUNT))).finish_reason == "length"
        assert (await llm.complete(ask(SUM, tools=(ADD,)))).finish_reason == "tool_calls"

    @pytest.mark.parametrize(
        ("given", "expected"),
        [("content_filter", "content_filter"), ("abort", "other"), ("eos_token", "other")],
    )
    async def test_reasons_without_a_name_become_other(
        self, connect: Connect, given: str, expected: str
    ) -> None:
        async with self._session(connect, [{"text": "Hm.", "finish_reason": given}]) as (llm, _):
            assert (await llm.complete(ask(CAPITAL))).finish_reason == expected

    @pytest.mark.parametrize(
        "fault",
        [
            {"fault": 429, "retry_after": 0.01},
            {"fault": 429},
            {"fault": 500},
            {"fault": 503},
            {"fault": "drop"},
            {"fault": "half", "text": "A text of some length, cut off in its middle."},
            {"fault": "invalid_json", "text": "Hm."},
        ],
        ids=lambda fault: str(fault["fault"]),
    )
    async def test_a_transient_error_is_retried(self, connect: Connect, fault: Step) -> None:
        async with self._session(connect, [fault, _PARIS]) as (llm, server):
            assert (await llm.complete(ask(CAPITAL))).message.content == "Paris."
            assert [request["method"] for request in server.requests()].count("POST") == 2

    async def test_a_server_that_does_not_answer_is_retried(self, connect: Connect) -> None:
        async with self._session(connect, [{"fault": "silence"}, _PARIS]) as (llm, server):
            assert (await llm.complete(ask(CAPITAL))).message.content == "Paris."
            assert await server.outcome(0) == "client_left", "the first attempt was left open"

    @pytest.mark.parametrize(("wait", "least"), [(0.4, 0.4), ("date", 0.9)], ids=["s", "date"])
    async def test_the_wait_that_a_server_asks_for_is_kept(
        self, connect: Connect, wait: float | str, least: float
    ) -> None:
        async with self._session(connect, [{"fault": 429, "retry_after": wait}, _PARIS]) as (
            llm,
            server,
        ):
            await llm.complete(ask(CAPITAL))
            first, second = (request["at"] for request in server.requests())
        assert second - first >= least

    async def test_what_does_not_pass_is_a_transient_error_in_the_end(
        self, connect: Connect
    ) -> None:
        async with self._session(connect, {"*": {"fault": 503}}) as (llm, server):
            error = await _fail(llm, ask(CAPITAL))
            assert error.transient
            assert "503" in str(error)
            assert len(server.requests()) >= 3

    async def test_a_server_that_is_not_there_is_named_in_the_error(self, connect: Connect) -> None:
        with self.serve([]) as server:
            url = server.url
        llm = connect(url, KEY)
        try:
            assert url in str(await _fail(llm, ask(CAPITAL)))
        finally:
            await llm.aclose()

    @pytest.mark.parametrize("status", [400, 401, 403, 404])
    async def test_what_is_wrong_for_good_is_asked_once(
        self, connect: Connect, status: int
    ) -> None:
        fault = {"fault": status, "message": f"no, and your key is {KEY}"}
        async with self._session(connect, {"*": fault}) as (llm, server):
            error = await _fail(llm, ask(CAPITAL))
            assert not error.transient
            assert not isinstance(error, ContextLengthError)
            assert [request["method"] for request in server.requests()].count("POST") == 1
        shown = "".join(traceback.format_exception(error))
        assert KEY not in shown + repr(error) + repr(llm), "an error shows the key"

    async def test_a_conversation_too_long_has_an_error_of_its_own(self, connect: Connect) -> None:
        async with self._session(connect, {"*": {"fault": "context_length"}}) as (llm, server):
            assert isinstance(await _fail(llm, ask(CAPITAL)), ContextLengthError)
            assert len(server.requests()) == 1

    @pytest.mark.parametrize("fault", ["silence", "stall"])
    async def test_cancellation_closes_the_connection(self, connect: Connect, fault: str) -> None:
        text = "A text of some length that stops."
        async with self._session(connect, [{"fault": fault, "text": text}]) as (llm, server):
            task = asyncio.create_task(llm.complete(ask(CAPITAL)))
            await until(server.requests, "the request's arrival")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await server.outcome(0, timeout_s=CANCEL_S) == "client_left"
            assert len(server.requests()) == 1

    async def test_ten_megabytes_are_a_message_or_a_clear_error(self, connect: Connect) -> None:
        async with self._session(connect, {"*": {"text": _LONG}}) as (llm, _):
            try:
                content = (await llm.complete(ask(CAPITAL))).message.content
            except LLMError as error:
                # A second attempt would take as long.
                transient, content = error.transient, _LONG
            else:
                transient = False
        assert not transient
        assert content == _LONG

    async def test_one_failure_does_not_harm_the_next(self, connect: Connect) -> None:
        async with self._session(connect, [{"fault": 400}, _PARIS]) as (llm, _):
            await _fail(llm, ask(CAPITAL))
            assert (await llm.complete(ask(CAPITAL))).message.content == "Paris."

    @asynccontextmanager
    async def _session(
        self, connect: Connect, script: Script
    ) -> AsyncIterator[tuple[LLM, ScriptedServer]]:
        """A server with this script and a provider connected to it."""
        with self.serve(script) as server:
            llm = connect(server.url, KEY)
            try:
                yield llm, server
            finally:
                await llm.aclose()
