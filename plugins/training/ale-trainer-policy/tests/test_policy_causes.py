"""Metrics that say why: shares of tokens by cause, ties of groups, and lengths by outcome."""

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from attrs import evolve
from torch import Tensor

from ale.plugin import BuildContext
from ale_trainer_policy.build import policy_trainer
from ale_trainer_policy.imitation_options import ImitationOptions
from ale_trainer_policy.metrics import _causes
from ale_trainer_policy.objective import Tokens, evaluate
from ale_trainer_policy.options import PRESETS, CorrectionOptions, ObjectiveOptions, PolicyOptions

RATIOS = (0.5, 1.0, 1.5, 0.5, 1.0, 1.5)
WEIGHTS = (1.0, 1.0, 1.0, -1.0, -1.0, -1.0)
SAMPLER = (0.2, 1.0, 1.0, 1.0, 1.0, 5.0)
"""pi_old / mu_old."""


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def causes(preset: str, **parts: Any) -> dict[str, list[int]]:
    """The tokens of each cause."""
    old = tensor([-2.0] * 6)
    n = torch.arange(6)
    tokens = Tokens(
        weight=tensor(WEIGHTS),
        imitation=torch.zeros(6, dtype=torch.float64),
        behaviour_logp=old - tensor(SAMPLER).log(),
        sampled=torch.ones(6, dtype=torch.bool),
        positive=tensor(WEIGHTS) > 0,
        chunk_id=n,
        trajectory_id=n,
    )
    terms = evaluate(evolve(PRESETS[preset], **parts), old + tensor(RATIOS).log(), old, tokens)
    return {
        name.removesuffix("_fraction"): where.nonzero()[0].tolist()
        for name, where in _causes(terms).items()
        if where.any()
    }


def test_a_clip_is_counted_by_its_side() -> None:
    assert causes("ppo") == {"clipped": [2, 3], "clipped_above": [2], "clipped_below": [3]}


def test_a_clamp_and_a_bound_are_counted_where_they_change_the_ratio() -> None:
    assert causes("token-tis") == {"clamped": [5]}
    assert causes("cispo", clip_high=0.2, clip_low=0.2) == {"clamped": [0, 2, 3, 5]}


def test_a_mask_is_counted_by_its_side() -> None:
    found = causes("reinforce", mask="token", mask_threshold=2.0, mask_floor=0.5)
    assert found == {"masked": [0, 5], "masked_above": [5], "masked_below": [0]}


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("truncate", {"corrected": [5], "corrected_capped": [5]}),
        ("mask", {"corrected": [0, 5], "corrected_dropped": [0, 5]}),
    ],
)
def test_a_correction_is_counted_by_what_it_does(method: Any, expected: Any) -> None:
    assert causes("reinforce", correction=CorrectionOptions(method=method, cap=2.0)) == expected


async def test_a_chunk_is_masked_if_any_of_its_tokens_is(
    lab: Any, make_llm: Callable[..., Any]
) -> None:
    parts = ObjectiveOptions(preset="reinforce", mask="token", mask_threshold=1e6)
    made = policy_trainer(PolicyOptions(objective=parts), BuildContext())
    made.attach(make_llm())
    turns = [
        lab.TokenTurn(prompt=[1], output=[2, 3, 4], logps=[-1.0, -40.0, -40.0]),
        lab.TokenTurn(prompt=[1, 2, 3, 4], output=[5, 6], cuts=[0, 1]),
        lab.TokenTurn(prompt=[1, 2, 3, 4, 5, 6], output=[7], forced=True),
    ]
    batch = lab.batch_of(lab.credited(lab.TokenEpisode(turns=turns, reward=1.0)))
    metrics = (await made.step(batch)).metrics
    assert metrics["masked_fraction"] == pytest.approx(2 / 5)
    assert metrics["masked_chunks_fraction"] == pytest.approx(1 / 3)
    assert metrics["clamped_chunks_fraction"] == 0.0


async def test_ties_and_lengths_are_counted_by_outcome(
    lab: Any, make_llm: Callable[..., Any]
) -> None:
    def episode(reward: float, n: int) -> Any:
        turns = [
            lab.TokenTurn(prompt=[1], output=[2, 2], forced=True),
            lab.TokenTurn(prompt=[1, 2, 2], output=[3] * n),
        ]
        return lab.TokenEpisode(turns=turns, reward=reward, weights=[reward or 0.1] * 2)

    made = policy_trainer(PolicyOptions(), BuildContext())
    made.attach(make_llm())
    groups = [
        lab.credited(episode(1.0, 2), episode(1.0, 4), task="solved"),
        lab.credited(episode(0.0, 5), episode(0.0, 7), task="failed"),
        lab.credited(episode(0.5, 9), episode(0.5, 9), task="halved"),
        lab.credited(episode(0.0, 6), task="alone"),
    ]
    metrics = (await made.step(lab.batch_of(*groups))).metrics
    assert (metrics["groups_all_succeeded"], metrics["groups_all_failed"]) == (1.0, 1.0)
    assert metrics["groups_equal_rewards"] == 3.0
    assert metrics["tokens_of_successes"] == 3.0
    assert metrics["tokens_of_others"] == pytest.approx((5 + 7 + 9 + 9 + 6) / 5)


async def test_the_entropy_is_that_of_the_tokens_trained_on(
    lab: Any, make_llm: Callable[..., Any]
) -> None:
    turns = [
        lab.TokenTurn(prompt=[1], output=[2, 3], forced=True),
        lab.TokenTurn(prompt=[1, 2, 3, 9], output=[4]),
    ]
    batch = lab.batch_of(lab.credited(lab.TokenEpisode(turns=turns, reward=-1.0)))
    with torch.no_grad():
        scores = make_llm().policy.model(tensor([[1, 2, 3, 9]]).long()).logits.log_softmax(-1)[0]
    entropy = -(scores.exp() * scores).sum(-1)
    trained: dict[Literal["off", "always"], list[int]] = {"off": [3], "always": [0, 1, 3]}
    for when, tokens in trained.items():
        options = PolicyOptions(imitation=ImitationOptions(when=when))
        trainer = policy_trainer(options, BuildContext())
        trainer.attach(make_llm())
        found = (await trainer.step(batch)).metrics["entropy"]
        assert found == pytest.approx(float(entropy[tokens].mean()))
