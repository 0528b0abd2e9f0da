"""Exact to the token: ids, log-probabilities, and what the rest of the batch must not change."""

import asyncio
import math
from collections.abc import Sequence

import pytest
import torch
from attrs import evolve

from ale.types import Completion, Sampling, TokenTrace
from ale_llm_policy.build import wrap_policy
from ale_llm_policy.options import PolicyOptions
from ale_llm_policy.packed import MIN_ROWS
from ale_llm_policy.pretrained import TorchPolicy
from ale_llm_policy.sampling import nucleus
from ale_llm_policy.testing import CORPUS, SHAPE, Make, forward_logits, new_policy, request

TEXTS = [CORPUS[0] * n for n in (1, 3, 1, 9, 2, 30, 5)]


def trace(answer: Completion) -> TokenTrace:
    assert answer.tokens is not None
    return answer.tokens


async def ask_all(llm: object, **fields: object) -> list[TokenTrace]:
    asked = [request(text, seed=i, **fields) for i, text in enumerate(TEXTS)]
    return [trace(a) for a in await asyncio.gather(*(llm.complete(each) for each in asked))]


def bits_are_kept() -> bool:
    """Does this machine's matrix product give a row the same bits in batches of any size?"""
    generator = torch.Generator().manual_seed(0)
    for inner in (32, 128, 512):
        x, w = (torch.randn(64, inner, generator=generator) for _ in range(2))
        whole = x @ w.t()
        if not all(torch.equal(x[:n] @ w.t(), whole[:n]) for n in range(MIN_ROWS, 64)):
            return False
    return True


@pytest.mark.parametrize("decoder", ["packed", "modules"])
@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (1.0, 0.8), (1.3, 0.5)])
async def test_log_probabilities_are_those_of_one_forward_pass(
    policy: TorchPolicy, make: Make, decoder: str, temperature: float, top_p: float
) -> None:
    llm = make(decoder=decoder, temperature=temperature, top_p=top_p)
    for found in await ask_all(llm):
        logits = forward_logits(policy, found.prompt_ids, found.output_ids)
        meant = [
            math.log(distribution(row.tolist(), temperature, top_p)[token])
            for row, token in zip(logits, found.output_ids, strict=True)
        ]
        assert found.logprobs == pytest.approx(meant, abs=1e-5)


def distribution(logits: Sequence[float], temperature: float, top_p: float) -> dict[int, float]:
    """The sampling distribution, without the sampler's own code: probabilities by token."""
    top = max(logits)
    mass = [math.exp((each - top) / temperature) for each in logits]
    kept: dict[int, float] = {}
    for token in sorted(range(len(mass)), key=lambda t: -mass[t]):
        if sum(kept.values()) >= top_p * sum(mass):
            break
        kept[token] = mass[token]
    return {token: part / sum(kept.values()) for token, part in kept.items()}


async def test_greedy_takes_the_likeliest_token(policy: TorchPolicy, make: Make) -> None:
    found = trace(await make().complete(request("a b", sampling=Sampling(temperature=0.0))))
    logits = forward_logits(policy, found.prompt_ids, found.output_ids)
    assert found.output_ids == tuple(logits.argmax(-1).tolist())
    assert set(found.logprobs) == {0.0}


async def test_sampled_frequencies_match_the_reported_probabilities(make: Make) -> None:
    """2,000 first tokens: each frequency within 4.5 standard errors of its probability."""
    llm = make(max_batch=256)
    asked = [request("x y", seed=seed, n=1) for seed in range(2000)]
    answers = await asyncio.gather(*(llm.complete(each) for each in asked))
    counts: dict[int, list[float]] = {}
    for answer in answers:
        found = trace(answer)
        counts.setdefault(found.output_ids[0], []).append(found.logprobs[0])
    for logprobs in counts.values():
        p = float(torch.tensor(logprobs[0]).exp())
        error = (p * (1 - p) / 2000) ** 0.5
        assert abs(len(logprobs) / 2000 - p) < 4.5 * error + 1 / 2000
    assert len(counts) > 5


@pytest.mark.parametrize("decoder", ["packed", "modules"])
async def test_a_request_gets_the_same_answer_alone_and_in_a_batch(
    policy: TorchPolicy, make: Make, decoder: str
) -> None:
    together = await ask_all(make(decoder=decoder))
    alone_llm = make(decoder=decoder, max_batch=1, prefix_cache_mb=0)
    alone = [trace(await alone_llm.complete(request(text, seed=i))) for i, text in enumerate(TEXTS)]
    for one, other in zip(alone, together, strict=True):
        assert one.output_ids == other.output_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


@pytest.mark.skipif(not bits_are_kept(), reason="this CPU's products depend on the batch")
async def test_not_a_bit_depends_on_the_batch_or_the_cache(make: Make) -> None:
    together = await ask_all(make(), n=60)
    narrow = make(max_batch=2, prefix_cache_mb=0)
    assert await ask_all(narrow, n=60) == together
    cached = make(max_batch=3)
    await ask_all(cached, n=7)
    assert await ask_all(cached, n=60) == together


@pytest.mark.skipif(not bits_are_kept(), reason="this CPU's products depend on the batch")
async def test_not_a_bit_of_wide_layers_depends_on_the_batch() -> None:
    """Sums over many numbers are where products of few rows are cut otherwise."""
    wide = new_policy(shape=evolve(SHAPE, width=128, mlp=512))
    found = []
    for options in ({}, {"max_batch": 1}, {"max_batch": 5, "prefix_cache_mb": 0}):
        llm = wrap_policy(wide, PolicyOptions(**options))
        found.append(await ask_all(llm, n=12))
        await llm.aclose()
    assert found[1:] == found[:1] * 2


async def test_seed_and_turn_choose_the_answer(make: Make) -> None:
    llm = make()
    first, same, other_seed, other_turn = [
        trace(await llm.complete(request("a b", **fields))).output_ids
        for fields in ({}, {}, {"seed": 1}, {"turn": 1})
    ]
    assert first == same
    assert len({first, other_seed, other_turn}) == 3


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    logits = torch.tensor([[0.5, 0.1, 0.3, 0.1], [0.5, 0.1, 0.3, 0.1], [0.25] * 4]).log()
    kept = nucleus(logits, [0.79, 0.5, 1e-9]).isfinite()
    assert kept.tolist() == [
        [True, False, True, False],
        [True, False, False, False],
        [True, False, False, False],
    ]


async def test_bfloat16_runs(policy: TorchPolicy) -> None:
    policy.model.to(torch.bfloat16)
    llm = wrap_policy(policy, PolicyOptions())
    found = trace(await llm.complete(request("a b")))
    assert len(found.output_ids) == len(found.logprobs) > 0
    await llm.aclose()
