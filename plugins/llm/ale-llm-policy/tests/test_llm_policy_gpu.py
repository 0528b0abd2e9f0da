"""The sampler on a GPU."""

import asyncio

import pytest
import torch

from ale.types import TokenTrace
from ale_llm_policy.build import wrap_policy
from ale_llm_policy.options import PolicyOptions
from ale_llm_policy.pretrained import TorchPolicy
from ale_llm_policy.sampling import Draw, scale
from ale_llm_policy.testing import CORPUS, forward_logits, new_policy, request

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

TEXTS = [CORPUS[0] * n for n in (1, 3, 1, 9, 2, 30, 5)]


@pytest.fixture
def policy() -> TorchPolicy:
    made = new_policy()
    made.model.to("cuda")
    return made


async def sampled(policy: TorchPolicy, **options: object) -> list[TokenTrace]:
    llm = wrap_policy(policy, PolicyOptions(device="cuda", **options))  # type: ignore[arg-type]
    try:
        asked = [request(text, seed=i) for i, text in enumerate(TEXTS)]
        answers = await asyncio.gather(*(llm.complete(each) for each in asked))
    finally:
        await llm.aclose()
    traces = [answer.tokens for answer in answers if answer.tokens is not None]
    assert len(traces) == len(TEXTS)
    return traces


@pytest.mark.parametrize("decoder", ["packed", "modules"])
@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 0.8)])
async def test_log_probabilities_are_those_of_one_forward_pass(
    policy: TorchPolicy, decoder: str, temperature: float, top_p: float
) -> None:
    for trace in await sampled(policy, decoder=decoder, temperature=temperature, top_p=top_p):
        logits = forward_logits(policy, trace.prompt_ids, trace.output_ids).float().cpu()
        draws = [Draw(temperature=temperature, top_p=top_p, uniform=0.0)] * len(logits)
        logp = scale(logits, draws).log_softmax(-1)
        meant = logp.gather(1, torch.tensor(trace.output_ids)[:, None])[:, 0]
        assert torch.tensor(trace.logprobs) == pytest.approx(meant, abs=1e-4)


async def test_in_bfloat16_they_are_close(policy: TorchPolicy) -> None:
    policy.model.to(torch.bfloat16)
    for trace in await sampled(policy):
        logits = forward_logits(policy, trace.prompt_ids, trace.output_ids).float().cpu()
        logp = logits.log_softmax(-1)
        meant = logp.gather(1, torch.tensor(trace.output_ids)[:, None])[:, 0]
        assert torch.tensor(trace.logprobs) == pytest.approx(meant, abs=0.1)


async def test_a_seed_gives_the_same_answers_again(policy: TorchPolicy) -> None:
    assert await sampled(policy) == await sampled(policy)
