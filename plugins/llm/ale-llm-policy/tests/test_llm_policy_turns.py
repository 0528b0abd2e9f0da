"""Turns that add up: prompts, prefix cache, demonstrations, limits."""

import asyncio
import threading
from itertools import pairwise

import pytest
import torch

from ale.errors import ContextLengthError, LLMError
from ale.types import (
    Completion,
    CompletionRequest,
    Message,
    Sampling,
    TokenTrace,
    ToolCall,
    replace,
)
from ale_llm_policy.model import PolicyLLM
from ale_llm_policy.pretrained import TorchPolicy
from ale_llm_policy.testing import CORPUS, SHELL, Make, forward_logits, request
from ale_training.chat.sessions import Sessions


def following(
    asked: CompletionRequest, answer: Completion, *added: Message, fresh: bool = False
) -> CompletionRequest:
    messages = (*asked.messages, answer.message, *added)
    return replace(asked, messages=messages, turn=asked.turn + 1, fresh_context=fresh)


def ids(answer: Completion) -> tuple[int, ...]:
    assert answer.tokens is not None
    return answer.tokens.prompt_ids + answer.tokens.output_ids


GO_ON = Message(role="user", content="Go on.")


async def test_the_next_prompt_begins_with_the_ids_that_were_sampled(make: Make) -> None:
    llm = make()
    asked = request("a b", episode="e", tools=(SHELL,))
    for _ in range(3):
        answer = await llm.complete(asked)
        begun = ids(answer)
        asked = following(asked, answer, GO_ON)
        later = await llm.complete(asked)
        assert later.tokens is not None
        assert later.tokens.prompt_ids[: len(begun)] == begun


async def test_a_fresh_context_is_rendered_anew(policy: TorchPolicy, make: Make) -> None:
    llm = make()
    asked = request("a b", episode="e")
    answer = await llm.complete(asked)
    again = following(asked, answer, GO_ON, fresh=True)
    found = (await llm.complete(again)).tokens
    assert found is not None
    assert found.prompt_ids == policy.template.prompt(again.messages)


async def test_the_next_turn_computes_only_what_was_added(make: Make) -> None:
    llm = make()
    asked = request(CORPUS[0] * 20, episode="e")
    answer = await llm.complete(asked)
    before = llm.engine.n_prefilled
    later = await llm.complete(following(asked, answer, GO_ON))
    assert later.tokens is not None
    added = len(later.tokens.prompt_ids) - len(ids(answer))
    assert llm.engine.n_prefilled - before == added + 1  # and the token sampled last


async def test_the_prompt_of_a_group_is_computed_once(make: Make) -> None:
    llm = make()
    asked = [request(CORPUS[0] * 20, seed=i, episode=f"e{i}") for i in range(8)]
    answers = await asyncio.gather(*(llm.complete(each) for each in asked))
    n_prompt = answers[0].usage.prompt_tokens
    assert llm.engine.n_prefilled == n_prompt + 7
    assert len({ids(answer) for answer in answers}) == 8


async def test_a_small_cache_evicts_and_does_not_change_answers(make: Make) -> None:
    small, large = make(prefix_cache_mb=1), make()
    asked = [request(CORPUS[0] * 30 + str(i), episode=f"e{i}") for i in range(12)]
    first = await asyncio.gather(*(small.complete(each) for each in asked))
    assert small.engine.prefix_cache.n_bytes <= 1 << 20
    assert 0 < len(small.engine.prefix_cache) < 12
    for llm in (small, large):
        await asyncio.gather(*(llm.complete(each) for each in asked))
    later = [following(a, b, GO_ON) for a, b in zip(asked, first, strict=True)]
    one, two = [
        await asyncio.gather(*(llm.complete(each) for each in later)) for llm in (small, large)
    ]
    for a, b in zip(one, two, strict=True):
        assert a.tokens is not None
        assert b.tokens is not None
        assert a.tokens.output_ids == b.tokens.output_ids
        assert a.tokens.logprobs == pytest.approx(b.tokens.logprobs, abs=1e-5)


async def test_a_demonstration_has_the_ids_and_log_probabilities_of_the_model(
    policy: TorchPolicy, make: Make
) -> None:
    llm = make(temperature=0.5, top_p=0.3)
    asked = request(CORPUS[0], episode="e", tools=(SHELL,))
    call = ToolCall(id="call_0_0", name="shell", arguments='{"command": "ls"}')
    says = Message(role="assistant", content="I list.", tool_calls=(call,))
    answer = await llm.force(asked, says)
    assert answer.forced
    assert answer.message == says
    assert answer.finish_reason == "tool_calls"
    found = answer.tokens
    assert found is not None
    assert found.output_ids == policy.template.answer(says)
    logp = forward_logits(policy, found.prompt_ids, found.output_ids).log_softmax(-1)
    meant = logp.gather(1, torch.tensor(found.output_ids)[:, None])[:, 0]
    assert torch.tensor(found.logprobs) == pytest.approx(meant, abs=1e-5)
    seen = Message(role="tool", content="a.txt", tool_call_id="call_0_0")
    later = await llm.complete(following(asked, answer, seen))
    assert later.tokens is not None
    assert not later.forced
    assert later.tokens.prompt_ids == policy.template.extend(ids(answer), (seen,))


async def test_a_demonstration_ends_where_a_sample_would(policy: TorchPolicy, make: Make) -> None:
    call = ToolCall(id="call_0_0", name="shell", arguments='{"command": "ls"}')
    says = Message(role="assistant", content="", tool_calls=(call,))
    asked = request(CORPUS[0], episode="e", tools=(SHELL,))
    answer = await make(stop=("never there", "</tool_call>")).force(asked, says)
    assert answer.message == says
    assert answer.finish_reason == "tool_calls"
    assert answer.tokens is not None
    found = answer.tokens.output_ids
    whole = policy.template.answer(says)
    assert found == whole[: len(found)]
    assert len(found) < len(whole)
    text = policy.template.token_bytes.text
    assert "</tool_call>" in text(found).text
    assert "</tool_call>" not in text(found[:-1]).text
    free = await make(stop=("never there",)).force(asked, says)
    assert free.tokens is not None
    assert free.tokens.output_ids == whole


async def test_a_demonstration_with_text_after_a_stop_string_is_refused(make: Make) -> None:
    says = Message(role="assistant", content="one STOP two")
    with pytest.raises(LLMError, match="'STOP', which can't be sampled: 'two'"):
        await make(stop=("STOP",)).force(request("a"), says)
    forced = Message(role="assistant", content="one STOP ")
    answer = await make(stop=("STOP",)).force(request("a"), forced)
    assert answer.message.content == "one "


async def test_a_turn_that_was_demonstrated_is_sampled_as_if_it_had_not_been(make: Make) -> None:
    """The stop string cuts the answer before, so that its ids are not those of its text."""
    says = Message(role="assistant", content="one STOP ")
    asked = request(CORPUS[0], episode="e")

    async def sampled(llm: PolicyLLM, *, shown: bool) -> list[TokenTrace | None]:
        begun = await llm.force(asked, says)
        found = []
        now = following(asked, begun, GO_ON)
        for _ in range(2):
            if shown:
                await llm.force(now, Message(role="assistant", content="Otherwise."))
            answer = await llm.complete(now)
            found.append(answer.tokens)
            now = following(now, answer, GO_ON)
        return found

    plain = await sampled(make(stop=("STOP",)), shown=False)
    assert await sampled(make(stop=("STOP",)), shown=True) == plain


async def test_demonstrations_and_samples_share_a_batch(make: Make) -> None:
    llm = make()
    says = Message(role="assistant", content=CORPUS[0] * 3)
    alone = await make().force(request("q", episode="f"), says)
    asked = [request(f"{i} a", episode=f"e{i}") for i in range(5)]
    *_, forced = await asyncio.gather(
        *(llm.complete(each) for each in asked), llm.force(request("q", episode="f"), says)
    )
    assert forced.tokens is not None
    assert alone.tokens is not None
    assert forced.tokens.logprobs == pytest.approx(alone.tokens.logprobs, abs=1e-5)


async def test_a_long_demonstration_is_scored_in_parts(policy: TorchPolicy, make: Make) -> None:
    says = Message(role="assistant", content="xyz " * 230)
    found = (await make().force(request("q"), says)).tokens
    assert found is not None
    assert len(found.output_ids) > 512
    logp = forward_logits(policy, found.prompt_ids, found.output_ids).log_softmax(-1)
    meant = logp.gather(1, torch.tensor(found.output_ids)[:, None])[:, 0]
    assert torch.tensor(found.logprobs) == pytest.approx(meant, abs=1e-5)


async def test_other_requests_do_not_wait_until_a_long_prompt_is_tokenised(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm, answered = make(context=64), threading.Event()
    prompt = Sessions.prompt

    def after_the_other(sessions: Sessions, asked: CompletionRequest) -> tuple[int, ...]:
        if asked.conversation.episode_id == "long":
            assert answered.wait(60)
        return prompt(sessions, asked)

    monkeypatch.setattr(Sessions, "prompt", after_the_other)
    long = asyncio.create_task(llm.complete(request("a " * 200_000, episode="long")))
    await asyncio.sleep(0)
    await llm.complete(request("a b"))
    answered.set()
    with pytest.raises(ContextLengthError, match="the context holds 64"):
        await long


async def test_the_context_is_a_limit(make: Make) -> None:
    llm = make(context=64)
    with pytest.raises(ContextLengthError, match="64"):
        await llm.complete(request(CORPUS[0] * 30))
    with pytest.raises(ContextLengthError, match="64"):
        await llm.force(request("a"), Message(role="assistant", content=CORPUS[0] * 30))
    answer = await llm.complete(request("a" * 40, n=500, seed=2))
    assert len(ids(answer)) <= 64


async def test_a_stop_text_ends_the_answer_across_tokens(make: Make) -> None:
    llm = make()
    free = await llm.complete(request("a b", n=60, sampling=Sampling(max_tokens=60)))
    text, found = free.message.content, free.tokens
    assert found is not None
    assert found.text_offsets is not None
    # From the middle of one token to the middle of a later one.
    start = next(a + 1 for a, b in pairwise(found.text_offsets[5:]) if b > a + 1)
    stop = text[start : start + 7]
    short = await llm.complete(request("a b", sampling=Sampling(max_tokens=60, stop=(stop,))))
    assert short.finish_reason == "stop"
    assert short.message.content == text[: text.index(stop)]
    assert short.tokens is not None
    n = len(short.tokens.output_ids)
    assert short.tokens.output_ids == found.output_ids[:n]
    assert n < len(found.output_ids)


async def test_max_tokens_cuts_and_the_next_prompt_ends_the_turn(
    policy: TorchPolicy, make: Make
) -> None:
    llm = make()
    asked = request("a b", n=3, episode="e")
    answer = await llm.complete(asked)
    assert answer.finish_reason == "length"
    assert answer.usage.completion_tokens == 3
    later = await llm.complete(following(asked, answer, GO_ON))
    assert later.tokens is not None
    assert later.tokens.prompt_ids[len(ids(answer))] in policy.template.end_ids


def test_the_sampling_defaults_are_readable(make: Make) -> None:
    """A trainer in this process takes it from here."""
    sampling = make(temperature=0.5, top_p=0.3).sampling
    assert (sampling.temperature, sampling.top_p) == (0.5, 0.3)
