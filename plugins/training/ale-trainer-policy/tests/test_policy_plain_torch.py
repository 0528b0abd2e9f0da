"""The trainer's updates against a loop in plain torch: a row per episode, one backward pass."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from ale.plugin import BuildContext
from ale_trainer_policy.build import policy_trainer
from ale_trainer_policy.options import KlOptions, ObjectiveOptions, PolicyOptions

PROMPT = [1, 2, 3]
ANSWERS = [[4, 5], [6, 7, 8, 9], [10], [4, 11, 12]]
REWARDS = [1.0, 0.0, 0.25, 0.0]
LR, WARMUP, BETA, STEPS = 0.01, 4, 0.3, 3
EPS = 1e-3
"""Large, as AdamW would otherwise make a rounding error of a gradient of 0 a whole step."""

KL: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "k1": lambda ours, ref: ours - ref,
    "k2": lambda ours, ref: (ours - ref).square() / 2,
    "k3": lambda ours, ref: ref.exp() / ours.exp() - 1 - (ref - ours),
}
"""Of log-probabilities, as in http://joschu.net/blog/kl-approx.html."""


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """RLOO's advantages: each reward less the mean of the others."""
    total, others = sum(rewards), len(rewards) - 1
    return [each - (total - each) / others for each in rewards]


def logps(model: Any, answer: Sequence[int]) -> Tensor:
    """Of each token of an answer."""
    scores = model(torch.tensor([[*PROMPT, *answer]])).logits[0].log_softmax(-1)
    first = len(PROMPT) - 1
    return torch.stack([scores[first + i, token] for i, token in enumerate(answer)])


def learned_plainly(model: Any, estimator: str) -> tuple[list[float], Tensor]:
    """The KL term of each step, and the weights after all of them."""
    with torch.no_grad():
        reference = [logps(model, answer) for answer in ANSWERS]
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), eps=EPS, weight_decay=0.1)
    found = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = LR * (step + 1) / WARMUP
        optimizer.zero_grad()
        gain, penalty = torch.zeros(2, dtype=torch.float64)
        weighted = zip(ANSWERS, leave_one_out(REWARDS), reference, strict=True)
        for answer, advantage, ref in weighted:
            ours = logps(model, answer)
            gain = gain + advantage * ours.sum() / len(ANSWERS)
            penalty = penalty + BETA * KL[estimator](ours, ref).sum() / len(ANSWERS)
        (penalty - gain).backward()
        optimizer.step()
        found.append(float(penalty.detach()))
    return found, flat(model)


def flat(model: Any) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("packing", ["tree", "packed", "padded"])
@pytest.mark.parametrize("tokens", [1, 8, 16384], ids=["one at a time", "two or one", "at once"])
@pytest.mark.parametrize("estimator", KL)
async def test_advantages_kl_warm_up_and_accumulation_are_those_of_a_plain_loop(
    lab: Any, estimator: Any, tokens: int, packing: Any
) -> None:
    """However the batch is split into micro-batches: each update is one of the whole batch."""
    options = PolicyOptions(
        objective=ObjectiveOptions(
            preset="reinforce", kl=KlOptions(coefficient=BETA, estimator=estimator)
        ),
        lr=LR,
        warmup_updates=WARMUP,
        eps=EPS,
        weight_decay=0.1,
        max_grad_norm=None,
        max_tokens_per_microbatch=tokens,
        packing=packing,
    )
    llm = lab.InProcessLLM(lab.tiny_model().double())
    before = flat(llm.policy.model)
    trainer = policy_trainer(options, BuildContext())
    trainer.attach(llm)
    group = lab.credited(
        *(
            lab.TokenEpisode(
                turns=[lab.TokenTurn(prompt=PROMPT, output=answer)],
                reward=reward,
                weights=[advantage],
            )
            for answer, reward, advantage in zip(
                ANSWERS, REWARDS, leave_one_out(REWARDS), strict=True
            )
        )
    )
    reports = [await trainer.step(lab.batch_of(group, step=step)) for step in range(STEPS)]
    penalties, weights = learned_plainly(lab.tiny_model().double(), estimator)
    assert [report.metrics["lr"] for report in reports] == [0.0025, 0.005, 0.0075]
    assert [report.metrics["loss_kl"] for report in reports] == pytest.approx(penalties, rel=1e-6)
    assert any(penalties)
    moved = weights - before
    assert float((flat(llm.policy.model) - weights).norm() / moved.norm()) < 1e-6
