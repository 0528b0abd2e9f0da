"""While it runs: admission, cancellation, new weights, failures."""

import asyncio
from pathlib import Path

import pytest
import torch

from ale.errors import InputError, LLMError
from ale.types import PolicySnapshot, Sampling
from ale_llm_policy.model import PolicyLLM
from ale_llm_policy.pretrained import TorchPolicy
from ale_llm_policy.testing import CORPUS, Make, forward_logits, new_policy, request

LONG = Sampling(max_tokens=700)


async def steps(llm: PolicyLLM, n: int) -> None:
    """Wait until so many more tokens have been sampled."""
    until = llm.engine.n_steps + n
    while llm.engine.n_steps < until:  # noqa: ASYNC110 (another thread counts)
        await asyncio.sleep(0.001)


def endless(llm: PolicyLLM) -> None:
    """No token ends an answer."""
    llm._end_ids = frozenset()


async def test_a_request_is_admitted_while_others_run(make: Make) -> None:
    llm = make()
    endless(llm)
    long = asyncio.create_task(llm.complete(request("long", sampling=LONG)))
    await steps(llm, 3)
    short = await llm.complete(request("short", n=4))
    assert short.usage.completion_tokens == 4
    assert not long.done()
    assert (await long).usage.completion_tokens == 700


async def test_more_requests_than_rows_are_all_answered(make: Make) -> None:
    llm = make(max_batch=3)
    endless(llm)
    asked = [request(f"{i}", n=1 + i % 5) for i in range(20)]
    answers = await asyncio.gather(*(llm.complete(each) for each in asked))
    assert [a.usage.completion_tokens for a in answers] == [1, 2, 3, 4, 5] * 4


async def test_cancelling_frees_the_row(make: Make) -> None:
    llm = make(max_batch=1)
    endless(llm)
    long = asyncio.create_task(llm.complete(request("long", sampling=LONG)))
    waiting = asyncio.create_task(llm.complete(request("waiting", sampling=LONG)))
    await steps(llm, 2)
    waiting.cancel()
    long.cancel()
    started = llm.engine.n_steps
    await llm.complete(request("next", n=5))
    assert llm.engine.n_steps - started < 100
    with pytest.raises(asyncio.CancelledError):
        await long


async def test_new_weights_are_used_from_the_next_token_on(policy: TorchPolicy, make: Make) -> None:
    other = new_policy(seed=9)
    llm = make()
    endless(llm)
    running = asyncio.create_task(llm.complete(request(CORPUS[0] * 3, sampling=LONG)))
    await steps(llm, 20)
    old = {k: v.clone() for k, v in policy.model.state_dict().items()}
    weights = dict(other.model.named_parameters())
    await llm.load_policy(PolicySnapshot(version=4, weights=weights))
    assert llm.policy_version == 4
    found = (await running).tokens
    assert found is not None
    switch = found.policy_versions.index(4)
    assert switch >= 20
    assert set(found.policy_versions[:switch]) == {0}
    assert set(found.policy_versions[switch:]) == {4}
    # Every token has the log-probability of the weights that it is said to come from.
    new = forward_logits(policy, found.prompt_ids, found.output_ids).log_softmax(-1)
    policy.model.load_state_dict(old)
    before = forward_logits(policy, found.prompt_ids, found.output_ids).log_softmax(-1)
    chosen = torch.tensor(found.output_ids)[:, None]
    meant = torch.cat([before[:switch], new[switch:]]).gather(1, chosen)[:, 0]
    assert torch.tensor(found.logprobs) == pytest.approx(meant, abs=1e-5)


async def test_a_prefix_of_older_weights_is_never_reused(policy: TorchPolicy, make: Make) -> None:
    llm = make()
    asked = request(CORPUS[0] * 5)
    await llm.complete(asked)
    assert len(llm.engine.prefix_cache) > 0
    with torch.no_grad():  # as a trainer in this process does
        for weight in policy.model.parameters():
            weight *= 1.1
    await llm.load_policy(PolicySnapshot(version=1))
    assert len(llm.engine.prefix_cache) == 0
    found = (await llm.complete(asked)).tokens
    assert found is not None
    assert set(found.policy_versions) == {1}
    logp = forward_logits(policy, found.prompt_ids, found.output_ids).log_softmax(-1)
    meant = logp.gather(1, torch.tensor(found.output_ids)[:, None])[:, 0]
    assert torch.tensor(found.logprobs) == pytest.approx(meant, abs=1e-5)


async def test_weights_come_from_a_folder_too(
    policy: TorchPolicy, make: Make, tmp_path: Path
) -> None:
    other = new_policy(seed=9)
    other.save(tmp_path)
    llm = make()
    await llm.load_policy(PolicySnapshot(version=2, path=str(tmp_path)))
    assert torch.equal(policy.model.lm_head.weight, other.model.lm_head.weight)
    with pytest.raises(InputError, match="another model"):
        await llm.load_policy(PolicySnapshot(version=3, weights={"x": torch.zeros(1)}))
    assert llm.policy_version == 2


async def test_a_failure_ends_running_requests_and_no_others(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = make()
    endless(llm)
    model = llm.engine._model
    monkeypatch.setattr(model, "forward", lambda *_: 1 / 0)
    with pytest.raises(LLMError, match="ZeroDivisionError"):
        await llm.complete(request("a"))
    monkeypatch.undo()
    assert (await llm.complete(request("a", n=3))).usage.completion_tokens == 3


async def test_a_lack_of_memory_says_what_to_change(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = make()
    # The allocator's own error, for an exbibyte.
    monkeypatch.setattr(llm.engine, "_work", lambda: torch.empty(1 << 60))
    with pytest.raises(LLMError, match=r"needs more memory.*can't allocate") as named:
        await llm.complete(request("one", n=4))
    assert "`ale plan CONFIG`" in str(named.value)


async def test_a_closed_model_reports_that_it_is_closed(make: Make) -> None:
    llm = make()
    endless(llm)
    running = asyncio.create_task(llm.complete(request("a", sampling=LONG)))
    await steps(llm, 2)
    await llm.aclose()
    for call in (running, llm.complete(request("b"))):
        with pytest.raises(LLMError, match="closed"):
            await call
