"""On a toy problem small enough to enumerate, IPA on-policy is the exact policy gradient."""

import itertools
from typing import Any

import pytest
import torch
from attrs import evolve

from ale_trainer_policy.imitation_options import ImitationOptions
from ale_trainer_policy.learner import Learner
from ale_trainer_policy.options import PRESETS, LearnOptions
from ale_trainer_policy.targets import Reinforcement
from ale_trainer_policy.tree import by_sample, pack

ACTIONS = (0, 1, 2)
OBSERVATIONS = {0: 3, 1: 4, 2: 3}
START = [5, 6]
TURNS = 2


def paths() -> list[tuple[int, ...]]:
    return list(itertools.product(ACTIONS, repeat=2 * TURNS))


def reward(actions: tuple[int, ...]) -> float:
    """Of two turns of two tokens each; signed, and of the whole path."""
    first, second = actions[:2], actions[2:]
    return float(first == (0, 1)) + 0.5 * float(second[0] == 2) - 0.7 * float(second == (1, 1))


def turns(lab: Any, actions: tuple[int, ...]) -> list[Any]:
    """The environment answers a turn with what its first token makes it say."""
    first, second = list(actions[:2]), list(actions[2:])
    seen = [*START, *first, OBSERVATIONS[first[0]]]
    return [lab.TokenTurn(prompt=START, output=first), lab.TokenTurn(prompt=seen, output=second)]


class OnlyActions(torch.nn.Module):
    """A model that can say nothing but the actions, so that all it can say is enumerated."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner = model
        self.config = model.config

    def forward(self, **inputs: Any) -> Any:
        out = self.inner(**inputs)
        barred = torch.full_like(out.logits, -1e9)
        barred[..., list(ACTIONS)] = 0.0
        out.logits = out.logits + barred
        return out


def log_probability(model: Any, actions: tuple[int, ...]) -> torch.Tensor:
    """Of a path, by plain forward passes."""
    first, second = list(actions[:2]), list(actions[2:])
    ids = [*START, *first, OBSERVATIONS[first[0]], *second]
    scores = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    places = [(1, ids[2]), (2, ids[3]), (4, ids[5]), (5, ids[6])]
    return torch.stack([scores[at, token] for at, token in places]).sum()


@pytest.mark.parametrize("preset", ["ipa", "reinforce", "topr", "token-tis", "ipa-baseline"])
def test_on_policy_the_expected_gradient_is_the_policy_gradient(lab: Any, preset: str) -> None:
    """Every path once, weighted by its probability: d/d theta of E[R], by autograd of E[R] itself.

    Gamma is 1 and every ratio and mask is 1, so that IPA's estimator is REINFORCE's.
    """
    model = OnlyActions(lab.tiny_model().double())
    with torch.no_grad():
        chances = [float(log_probability(model, path).exp()) for path in paths()]
    assert sum(chances) == pytest.approx(1.0)

    expected = sum(log_probability(model, path).exp() * reward(path) for path in paths())
    gradients = torch.autograd.grad(expected, list(model.parameters()))
    wanted = torch.cat([gradient.flatten() for gradient in gradients])

    learner = Learner(model, LearnOptions(logits_mb=None))
    episodes = [
        lab.TokenEpisode(
            turns=turns(lab, path), reward=reward(path), weights=[chance * reward(path)] * 2
        )
        for path, chance in zip(paths(), chances, strict=True)
    ]
    target = Reinforcement(objective=PRESETS[preset], imitation=ImitationOptions(when="off"))
    samples = [
        sample
        for sample in target.normalised(target.read(lab.batch_of(lab.credited(*episodes))).samples)
        if sample.trainable
    ]
    exact = _with_behaviour(learner, samples)
    learner.forward_backward(pack(exact), PRESETS[preset])
    found = torch.cat([p.grad.flatten() for p in learner.parameters if p.grad is not None])
    # The loss is a mean over the paths, and its gradient goes down.
    assert float((-found * len(paths()) - wanted).norm() / wanted.norm()) < 1e-6


def _with_behaviour(learner: Learner, samples: list[Any]) -> list[Any]:
    own = by_sample(samples, learner.logp(samples))
    return [
        evolve(each, old_logp=logp, behaviour_logp=logp)
        for each, logp in zip(samples, own, strict=True)
    ]
