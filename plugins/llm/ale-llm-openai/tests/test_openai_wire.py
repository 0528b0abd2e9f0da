"""What goes over the wire, and what becomes of what comes back; a real server answers."""

import asyncio
import logging
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ale.errors import ContextLengthError, LLMError, ToolsUnsupportedError
from ale.plugin import BuildContext
from ale.protocols import LLM, Checkable, CountsRefusals
from ale.testing.llm import ADD, CAPITAL, SUM, ask
from ale.testing.openai_server import ScriptedServer, openai_server
from ale.types import Message, Sampling, TokenTrace
from ale_llm_openai.options import OllamaOptions, OpenAIOptions, SemanticRouterOptions
from ale_llm_openai.plugin import ale_llms

KEY = "sk-very-secret"
TOKENS = {"prompt_ids": [1, 2], "ids": [7, 8], "logprobs": [-0.25, -0.5], "texts": ["Par", "is."]}
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@asynccontextmanager
async def session(script: Any, **options: Any) -> AsyncIterator[tuple[LLM, ScriptedServer]]:
    with openai_server(script) as server:
        defaults = {"timeout_s": 5.0, "retry_min_s": 0.01, "retry_max_s": 0.02}
        made = OpenAIOptions(base_url=server.url, model="m", **{**defaults, **options})
        llm = ale_llms()[0].build(made, BuildContext(environ={"KEY": KEY}))
        try:
            yield llm, server
        finally:
            await llm.aclose()


async def test_the_request_has_what_the_options_and_the_agent_want_and_nothing_else() -> None:
    options = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 9, "extra_body": {"top_k": 20}}
    async with session([{"text": "Hm."}], **options) as (llm, server):
        await llm.complete(ask(CAPITAL, sampling=Sampling(temperature=0.0)))
        (request,) = server.requests()
    seed = request["body"].pop("seed")
    assert 0 <= seed < 2**31
    assert request["body"] == {
        "model": "m",
        "messages": [{"role": "user", "content": CAPITAL}],
        "temperature": 0.0,
        "top_p": 0.9,
        "max_tokens": 9,
        "top_k": 20,
    }


async def test_ollama_is_told_how_much_to_reason_in_the_field_that_it_reads() -> None:
    with openai_server([{"text": "Hm."}]) as server:
        options = {"base_url": server.url, "model": "qwen3", "send_seed": False}
        made = OllamaOptions(**options, extra_body={"reasoning_effort": "none"})
        llm = ale_llms()[0].build(made, BuildContext())
        await llm.complete(ask(CAPITAL))
        await llm.aclose()
        (request,) = server.requests()
    assert request["body"] == {
        "model": "qwen3",
        "messages": [{"role": "user", "content": CAPITAL}],
        "reasoning_effort": "none",
    }


async def test_the_model_that_a_router_chose_is_recorded() -> None:
    with openai_server([{"text": "Hm.", "model": "qwen3-math"}]) as server:
        llm = ale_llms()[0].build(SemanticRouterOptions(base_url=server.url), BuildContext())
        answer = await llm.complete(ask(CAPITAL))
        await llm.aclose()
        (request,) = server.requests()
    assert request["body"]["model"] == "auto"
    assert answer.model == "qwen3-math"


async def test_a_server_that_checks_no_key_gets_a_placeholder() -> None:
    async with session([{"text": "Hm."}], send_seed=False) as (llm, server):
        await llm.complete(ask(CAPITAL))
        (request,) = server.requests()
    assert request["headers"]["authorization"] == "Bearer none"
    assert "seed" not in request["body"]


async def test_the_sdks_own_key_and_place_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    async with session([{"text": "Hm."}]) as (llm, server):
        await llm.complete(ask(CAPITAL))
        (request,) = server.requests()
    assert request["headers"]["authorization"] == "Bearer none"


async def test_openai_reasoning_models_get_the_longer_name_of_max_tokens() -> None:
    field = "max_completion_tokens"
    async with session([{"text": "Hm."}], max_tokens_field=field) as (llm, server):
        await llm.complete(ask(CAPITAL, sampling=Sampling(max_tokens=7)))
        (request,) = server.requests()
    assert request["body"][field] == 7
    assert "max_tokens" not in request["body"]


async def test_reasoning_goes_back_in_the_field_that_is_named() -> None:
    answer = Message(role="assistant", content="Hm.", reasoning="Why?")
    messages = (Message(role="user", content="a"), answer, Message(role="user", content="b"))
    async with session([{"text": "Hm."}], reasoning_field="reasoning_content") as (llm, server):
        await llm.complete(ask(messages=messages, turn=1))
        (request,) = server.requests()
    assert request["body"]["messages"][1]["reasoning_content"] == "Why?"


@BOTH
async def test_the_trace_is_what_the_server_gave(stream: bool) -> None:
    options = {"return_token_ids": True, "temperature": 1.0, "top_p": 1.0, "stream": stream}
    async with session([{"text": "Paris.", "tokens": TOKENS}], **options) as (llm, server):
        answer = await llm.complete(ask(CAPITAL))
        (request,) = server.requests()
    assert answer.tokens == TokenTrace(
        prompt_ids=(1, 2),
        output_ids=(7, 8),
        logprobs=(-0.25, -0.5),
        policy_versions=(0, 0),
        text_offsets=(0, 3),
    )
    assert request["body"]["return_token_ids"] is True
    assert request["body"]["logprobs"] is True


@BOTH
async def test_tokens_that_nobody_asked_for_are_not_recorded(stream: bool) -> None:
    extra = {"return_token_ids": True, "logprobs": True}
    script = [{"text": "Paris.", "tokens": TOKENS}]
    async with session(script, extra_body=extra, stream=stream) as (llm, _):
        assert (await llm.complete(ask(CAPITAL))).tokens is None


@BOTH
async def test_a_server_without_token_ids_gives_no_trace_and_is_told_of_once(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"return_token_ids": True, "logprobs_mode": "processed", "stream": stream}
    async with session([{"text": "Paris."}] * 2, **options) as (llm, _):
        assert (await llm.complete(ask(CAPITAL))).tokens is None
        assert (await llm.complete(ask(CAPITAL))).tokens is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no token trace" in caplog.text


async def test_raw_logprobs_at_another_temperature_are_no_trace() -> None:
    options = {"return_token_ids": True, "temperature": 1.0, "top_p": 1.0}
    async with session([{"text": "Paris.", "tokens": TOKENS}] * 2, **options) as (llm, _):
        warmer = await llm.complete(ask(CAPITAL, sampling=Sampling(temperature=1.5)))
        assert warmer.tokens is None
        assert (await llm.complete(ask(CAPITAL))).tokens is not None


@BOTH
async def test_ten_megabytes_are_taken_in_little_more_than_their_room(stream: bool) -> None:
    text = "x" * 10_000_000
    async with session([{"text": text}], stream=stream) as (llm, _):
        tracemalloc.start()
        try:
            answer = await llm.complete(ask(CAPITAL))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert answer.message.content == text
        assert peak < 4 * len(text)


@BOTH
async def test_an_answer_past_the_bound_is_dropped_unread_and_not_asked_for_again(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale_llm_openai.client.MAX_RESPONSE_BYTES", 100_000)
    script = {"*": {"text": "x" * 10_000_000}}
    async with session(script, stream=stream) as (llm, server):
        with pytest.raises(LLMError, match="longer than 100000 bytes") as caught:
            await llm.complete(ask(CAPITAL))
        assert not caught.value.transient
        assert await server.outcome(0) == "client_left"
        assert len(server.requests()) == 1


async def test_a_streamed_answer_leaves_its_connection_to_the_next() -> None:
    async with session([{"text": "Hm."}] * 3, stream=True) as (llm, server):
        for _ in range(3):
            await llm.complete(ask(CAPITAL))
        assert {request["connection"] for request in server.requests()} == {0}


async def test_no_more_requests_are_under_way_than_allowed() -> None:
    script = {"*": {"text": "Hm.", "delay_s": 0.1}}
    async with session(script, max_concurrency=2) as (llm, server):
        started = time.perf_counter()
        await asyncio.gather(*(llm.complete(ask(CAPITAL)) for _ in range(6)))
        assert time.perf_counter() - started >= 0.3
        assert len({request["connection"] for request in server.requests()}) == 2


async def test_requests_that_a_server_refuses_for_now_are_counted() -> None:
    script = {"*": {"fault": 429}}
    async with session(script, max_retries=2, retry_min_s=0.0, retry_max_s=0.0) as (llm, _):
        assert isinstance(llm, CountsRefusals)
        assert llm.refused == 0
        with pytest.raises(LLMError, match="3 times status 429"):
            await llm.complete(ask(CAPITAL))
        assert llm.refused == 3


async def test_a_wait_past_the_deadline_ends_it_at_once() -> None:
    script = {"*": {"fault": 429, "retry_after": 60}}
    async with session(script, deadline_s=30.0) as (llm, server):
        with pytest.raises(LLMError, match="a wait of 60 s would pass the deadline") as caught:
            await llm.complete(ask(CAPITAL))
        assert caught.value.transient
        assert len(server.requests()) == 1


async def test_a_server_that_stalls_is_cut_off_by_the_attempts_time() -> None:
    script = {"*": {"text": "Hm.", "fault": "stall"}}
    async with session(script, timeout_s=0.3, max_retries=1, stream=True) as (llm, server):
        with pytest.raises(LLMError, match=r"2 times no answer within 0\.3 s"):
            await llm.complete(ask(CAPITAL))
        assert [await server.outcome(n) for n in (0, 1)] == ["client_left", "client_left"]


async def test_an_empty_account_is_not_asked_again() -> None:
    fault = {"fault": 429, "code": "insufficient_quota", "message": "You are out of money."}
    async with session({"*": fault}) as (llm, server):
        with pytest.raises(LLMError, match="out of money") as caught:
            await llm.complete(ask(CAPITAL))
        assert not caught.value.transient
        assert len(server.requests()) == 1


async def test_an_error_with_status_200_is_taken_by_its_code() -> None:
    """As OpenRouter sends those of the provider behind it."""
    fault = {"fault": 200, "code": 402, "message": "You are out of credits."}
    async with session({"*": fault}) as (llm, server):
        with pytest.raises(LLMError, match="out of credits") as caught:
            await llm.complete(ask(CAPITAL))
        assert not caught.value.transient
        assert len(server.requests()) == 1
    long = {"fault": 200, "code": 400, "message": "maximum context length is 8 tokens"}
    async with session({"*": long}) as (llm, _):
        with pytest.raises(ContextLengthError):
            await llm.complete(ask(CAPITAL))
    busy = {"before": [{"fault": 200, "code": 503, "message": "overloaded"}], "text": "Hm."}
    async with session([busy]) as (llm, server):
        assert (await llm.complete(ask(CAPITAL))).message.content == "Hm."
        assert len(server.requests()) == 2


@pytest.mark.parametrize(
    ("variable", "words"), [("KEY", "the key in KEY"), (None, "a request without a key")]
)
async def test_a_refused_key_is_named_and_never_shown(
    variable: str | None, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    script = {"*": {"fault": 401, "message": f"Incorrect API key provided: {KEY}"}}
    with caplog.at_level(logging.DEBUG):
        async with session(script, api_key_env=variable) as (llm, _):
            with pytest.raises(LLMError, match=words) as caught:
                await llm.complete(ask(CAPITAL))
            shown = [str(caught.value), repr(llm), caplog.text, str(caught.value.__context__)]
    assert KEY not in "".join(shown)


async def test_a_closed_model_says_so() -> None:
    async with session([]) as (llm, _):
        await llm.aclose()
        with pytest.raises(LLMError, match="closed"):
            await llm.complete(ask(CAPITAL))


async def test_tools_are_refused_where_the_model_takes_none() -> None:
    async with session([], tools=False) as (llm, server):
        assert not llm.capabilities.tools
        with pytest.raises(LLMError, match="tools"):
            await llm.complete(ask(SUM, tools=(ADD,)))
        assert server.requests() == []


async def test_a_server_that_never_answered_is_not_retried_and_is_named() -> None:
    options = OpenAIOptions(
        base_url="http://127.0.0.1:9/v1", model="m", retry_min_s=99, retry_max_s=99
    )
    llm = ale_llms()[0].build(options, BuildContext())
    started = time.perf_counter()
    for request in (llm.complete(ask(CAPITAL)), check(llm)):
        with pytest.raises(LLMError, match=r"cannot connect to http://127\.0\.0\.1:9/v1") as caught:
            await request
        assert not caught.value.transient
        assert "lms server start" in str(caught.value)
    assert time.perf_counter() - started < 60
    await llm.aclose()


@pytest.mark.parametrize(
    ("preset", "start"),
    [
        ("vllm", "start the server (vllm serve org/m) or"),
        ("sglang", "start the server (python -m sglang.launch_server --model-path org/m) or"),
        ("lmstudio", "start the server (lms server start) or"),
        ("ollama", "start the server (ollama serve) or"),
    ],
)
async def test_a_preset_that_does_not_answer_says_how_its_own_server_is_started(
    preset: str, start: str
) -> None:
    (made,) = [each for each in ale_llms() if each.name == preset]
    assert made.options is not None
    options = made.options(base_url="http://127.0.0.1:9/v1", model="org/m")
    llm = made.build(options, BuildContext())
    with pytest.raises(LLMError, match="cannot connect") as caught:
        await check(llm)
    assert start in str(caught.value)
    await llm.aclose()


async def test_a_server_that_goes_away_after_an_answer_is_retried() -> None:
    with openai_server({"*": {"text": "Hm."}}) as server:
        options = OpenAIOptions(
            base_url=server.url, model="m", max_retries=2, retry_min_s=0.01, retry_max_s=0.02
        )
        llm = ale_llms()[0].build(options, BuildContext())
        await llm.complete(ask(CAPITAL))
    with pytest.raises(LLMError, match="after 3 attempts") as caught:
        await llm.complete(ask(CAPITAL))
    assert caught.value.transient
    await llm.aclose()


async def test_a_password_in_the_url_is_not_shown() -> None:
    options = OpenAIOptions(base_url="http://me:hush@127.0.0.1:9/v1", model="m")
    llm = ale_llms()[0].build(options, BuildContext())
    with pytest.raises(LLMError, match=r"cannot connect to http://127\.0\.0\.1:9/v1") as caught:
        await check(llm)
    assert "hush" not in str(caught.value)


async def test_an_unknown_model_is_asked_for_once_and_the_known_ones_are_named() -> None:
    models = [{"id": "qwen"}, {"id": "gemma"}]
    script = {"*": {"fault": 404, "message": "no such model"}, "models": models}
    async with session(script) as (llm, server):
        with pytest.raises(LLMError, match=r"set llm\.model to one of: gemma, qwen") as caught:
            await llm.complete(ask(CAPITAL))
        assert not caught.value.transient
        assert [request["method"] for request in server.requests()] == ["POST", "GET"]


async def test_a_404_of_a_server_without_a_list_points_at_the_url() -> None:
    script = {"*": {"fault": 404, "message": "nothing here"}, "models": {"fault": 404}}
    async with session(script) as (llm, _):
        with pytest.raises(LLMError, match=r"llm\.base_url, http://.*/v1, which often ends in /v1"):
            await llm.complete(ask(CAPITAL))


@BOTH
async def test_a_refusal_of_tools_has_its_own_error_and_is_not_retried(stream: bool) -> None:
    script = {"*": {"fault": 400, "message": "this model does not support tools"}}
    async with session(script, stream=stream) as (llm, server):
        with pytest.raises(ToolsUnsupportedError, match=r"llm\.tools: false"):
            await llm.complete(ask(SUM, tools=(ADD,)))
        assert len(server.requests()) == 1


async def check(llm: LLM) -> None:
    assert isinstance(llm, Checkable)
    await llm.check()


async def test_a_check_passes_with_the_model_listed_and_asks_for_no_answer() -> None:
    async with session({"models": [{"id": "m", "owned_by": "vllm"}]}) as (llm, server):
        await check(llm)
        assert [request["path"] for request in server.requests()] == ["/v1/models"]


async def test_a_check_refuses_a_model_that_the_server_would_refuse() -> None:
    async with session({"models": [{"id": "qwen", "owned_by": "vllm"}]}) as (llm, _):
        with pytest.raises(LLMError, match=r"has no model 'm'; set llm\.model to one of: qwen"):
            await check(llm)


async def test_a_check_warns_where_the_server_takes_a_name_that_it_does_not_list(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with session([]) as (llm, server):
        await check(llm)
        asked = server.requests()[1:]
    assert "the server answers as 'm', but lists only scripted" in caplog.text
    assert [request["body"]["max_tokens"] for request in asked] == [1]


async def test_a_check_asks_a_server_that_does_not_say_whether_it_takes_other_names() -> None:
    async with session({"models": [{"id": "qwen", "owned_by": "somebody"}]}) as (llm, _):
        with pytest.raises(LLMError, match=r"set llm\.model to one of: qwen"):
            await check(llm)


@pytest.mark.parametrize(
    ("variable", "words"), [("KEY", "the server refused the key in KEY"), (None, "llm.api_key_env")]
)
async def test_a_check_names_the_variable_of_a_refused_key(
    variable: str | None, words: str
) -> None:
    async with session({"models": {"fault": 401}}, api_key_env=variable) as (llm, _):
        with pytest.raises(LLMError, match=words):
            await check(llm)


@pytest.mark.parametrize("status", [404, 405, 500])
async def test_a_server_without_a_list_is_asked_for_one_token(status: int) -> None:
    async with session({"models": {"fault": status}}) as (llm, server):
        await check(llm)
        assert server.requests()[1]["body"]["max_tokens"] == 1


@pytest.mark.parametrize(
    "fault",
    [
        {"fault": 404, "message": "Not Found"},
        {"fault": 200, "message": "Unexpected endpoint or method."},  # as LM Studio says it
        {"fault": "invalid_json"},  # a web page
    ],
)
async def test_a_server_without_a_list_and_without_an_answer_fails_the_check(fault: Any) -> None:
    script = {"*": fault, "models": {"fault": 404}}
    async with session(script) as (llm, _):
        with pytest.raises(LLMError):
            await check(llm)


async def test_a_server_that_loads_its_model_passes_the_check(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ale_openai_wire.client._ASK_S", 0.5)
    script = {"*": {"fault": "silence"}, "models": {"fault": 404}}
    async with session(script) as (llm, _):
        await check(llm)
    assert "the server may be loading the model" in caplog.text
