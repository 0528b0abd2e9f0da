"""The model component, over the SDK and a service at loopback."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from ale.errors import InputError, LLMError, NotUsableError
from ale.protocols import LLM
from ale.testing.llm import CAPITAL, LLMContract, ask
from ale.types import Message, PolicySnapshot, Sampling, replace
from ale_tinker.model import TinkerLLM
from ale_tinker.testing import LoopbackService, answer


@pytest_asyncio.fixture
async def tinker_llm(make_llm: Callable[..., TinkerLLM]) -> AsyncIterator[TinkerLLM]:
    made = make_llm()
    yield made
    await made.aclose()


class TestModel(LLMContract):
    @pytest.fixture
    def llm(self, tinker_llm: TinkerLLM) -> LLM:
        return tinker_llm


async def test_tokens_are_those_of_the_service(
    tinker_llm: TinkerLLM, service: LoopbackService
) -> None:
    found = await tinker_llm.complete(ask(CAPITAL))
    trace = found.tokens
    assert trace is not None
    (asked,) = service.asked("asample")
    assert tuple(asked.prompt.chunks[0].tokens) == trace.prompt_ids
    assert {*asked.sampling_params.stop} == {257}
    assert asked.sampling_params.max_tokens == 16
    table = service.base - np.log(np.exp(service.base).sum(axis=1, keepdims=True))
    before = [trace.prompt_ids[-1], *trace.output_ids[:-1]]
    assert trace.logprobs == pytest.approx(table[before, list(trace.output_ids)], abs=1e-5)


async def test_a_forced_answer_is_scored_by_the_service(
    tinker_llm: TinkerLLM, service: LoopbackService
) -> None:
    found = await tinker_llm.force(ask(CAPITAL), Message(role="assistant", content="Paris."))
    trace = found.tokens
    assert trace is not None
    assert len(trace.output_ids) == len("Paris.") + 1
    table = service.base - np.log(np.exp(service.base).sum(axis=1, keepdims=True))
    before = [trace.prompt_ids[-1], *trace.output_ids[:-1]]
    assert trace.logprobs == pytest.approx(table[before, list(trace.output_ids)], abs=1e-5)


async def test_the_next_prompt_extends_the_ids_so_far(tinker_llm: TinkerLLM) -> None:
    request = ask(CAPITAL)
    first = await tinker_llm.complete(request)
    messages = (*request.messages, first.message, Message(role="user", content="Sure?"))
    second = await tinker_llm.complete(
        replace(request, messages=messages, turn=1, fresh_context=False)
    )
    assert first.tokens is not None
    assert second.tokens is not None
    so_far = (*first.tokens.prompt_ids, *first.tokens.output_ids)
    assert second.tokens.prompt_ids[: len(so_far)] == so_far


async def test_an_answer_is_cut_at_a_stop_string(
    tinker_llm: TinkerLLM, service: LoopbackService
) -> None:
    whole = await tinker_llm.complete(ask(CAPITAL))
    assert whole.tokens is not None
    mark = next(each for each in whole.message.content[3:] if each.isascii())
    cut = await tinker_llm.complete(ask(CAPITAL, sampling=Sampling(stop=(mark,))))
    assert cut.tokens is not None
    assert cut.finish_reason == "stop"
    assert mark not in cut.message.content
    n = len(cut.tokens.output_ids)
    assert 0 < n < 16
    assert cut.tokens.output_ids == whole.tokens.output_ids[:n]
    assert cut.tokens.logprobs == whole.tokens.logprobs[:n]


@pytest.mark.parametrize(("status", "transient"), [(400, False), (403, False)])
async def test_a_refusal_of_the_service_is_an_error_of_the_model(
    tinker_llm: TinkerLLM, service: LoopbackService, status: int, transient: bool
) -> None:
    service.failures["asample"] = [answer(status, detail="not with this prompt")]
    with pytest.raises(LLMError, match="not with this prompt") as failed:
        await tinker_llm.complete(ask(CAPITAL))
    assert failed.value.transient is transient
    assert (await tinker_llm.complete(ask(CAPITAL))).message.role == "assistant"


async def test_a_failed_request_is_an_error_of_the_model(
    tinker_llm: TinkerLLM, service: LoopbackService
) -> None:
    service.failures["asample"] = [service._future(answer(error="too long", category="user"))]
    with pytest.raises(LLMError, match="too long"):
        await tinker_llm.complete(ask(CAPITAL))


async def test_a_wrong_key_is_named_and_not_shown(make_llm: Callable[..., TinkerLLM]) -> None:
    llm = make_llm(key="tml-wrong-5d41")
    with pytest.raises(LLMError, match="no such key") as failed:
        await llm.complete(ask(CAPITAL))
    assert "5d41" not in str(failed.value) + repr(llm)
    assert not failed.value.transient
    await llm.aclose()


def test_no_key_is_an_error_before_the_run(make_llm: Callable[..., TinkerLLM]) -> None:
    with pytest.raises(NotUsableError, match="TINKER_API_KEY is not set"):
        make_llm(key=None)


def test_a_tokenizer_that_is_not_there_is_named(
    make_llm: Callable[..., TinkerLLM], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"llm\.tokenizer"):
        make_llm(tokenizer=tmp_path / "none")


@pytest.mark.parametrize(
    "snapshot",
    [PolicySnapshot(version=1, weights={"a": 1}), PolicySnapshot(version=1, path="/a/folder")],
    ids=["tensors", "folder"],
)
async def test_weights_from_here_are_refused(
    tinker_llm: TinkerLLM, snapshot: PolicySnapshot
) -> None:
    with pytest.raises(InputError, match="takes no weights"):
        await tinker_llm.load_policy(snapshot)
    assert tinker_llm.policy_version == 0


async def test_the_session_is_ended_once(
    make_llm: Callable[..., TinkerLLM], service: LoopbackService
) -> None:
    llm = make_llm()
    await llm.aclose()
    assert service.requests == []
    await llm.complete(ask(CAPITAL))
    await llm.aclose()
    await llm.aclose()
    (finish,) = service.asked("finish")
    assert finish["reason"]["type"] == "success"
