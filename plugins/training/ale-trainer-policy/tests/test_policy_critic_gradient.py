"""Losses, advantages and gradients of PPO against an independent one: plain, dense and padded.

In double precision throughout, on a model whose norms are too. The reference is written from the
formulas of arXiv:1506.02438 and arXiv:1707.06347 over (episodes, tokens) tables, and shares no code
with the trainer.
"""

import copy
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from attrs import evolve
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from ale.types import Gae
from ale_trainer_policy.critic import make_critic
from ale_trainer_policy.critic_options import CriticOptions
from ale_trainer_policy.imitation_options import ImitationOptions
from ale_trainer_policy.learner import Learner
from ale_trainer_policy.options import PRESETS, PolicyOptions
from ale_trainer_policy.samples import Sample
from ale_trainer_policy.targets import Reinforcement
from ale_trainer_policy.tree import by_sample, split
from ale_trainer_policy.valuing import with_values

GAMMA, LAM, CLIP, VALUE_CLIP, COEFFICIENT = 0.9, 0.7, 0.2, 0.3, 0.4
CLOSE = 1e-10


def gpt2(lab: Any, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=lab.VOCAB,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=128,
        initializer_range=0.3,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config).double().eval()


def valued_group(lab: Any, seed: int, unit: Any) -> Any:
    """A random group for a critic; every other episode was cut off, and chunks have rewards."""
    group = lab.random_group(seed)
    credits = []
    for number, credit in enumerate(group.credits):
        gae = Gae(gamma=GAMMA, lam=LAM, unit=unit, truncated=number % 2 == 0)
        rewards = tuple(0.1 * k - 0.05 for k in range(len(credit.weights)))
        rewards = (*rewards[:-1], 0.0 if gae.truncated else 1.0)
        credits.append(evolve(credit, rewards=rewards, gae=gae))
    return evolve(group, credits=tuple(credits))


class Reference:
    """PPO's losses from their formulas, one row per context, one column per token.

    Args:
        policy: the model; its plain forward pass is all that is used.
        value: (states of a row, its ids) -> V of each position.
    """

    def __init__(self, policy: Any, value: Any) -> None:
        self.policy = policy
        self.value = value

    def tables(self, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
        """log pi of each token given those before it, and V after each token: (rows, columns)."""
        rows = [torch.tensor(row) for sample in samples for row in sample.rows]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence(list(map(torch.ones_like, rows)), batch_first=True)
        out = self.policy(input_ids=ids, attention_mask=mask, output_hidden_states=True)
        scores = out.logits.log_softmax(-1)[:, :-1]
        logp = scores.gather(-1, ids[:, 1:, None])[..., 0]
        return torch.cat([torch.zeros(len(rows), 1).to(logp), logp], 1), self.value(
            out.hidden_states[-1], ids, mask
        )

    def per_token(self, samples: Sequence[Sample]) -> tuple[list[Tensor], list[Tensor], Any]:
        """log pi and V of the state before each token, and V after the last sampled one."""
        logp, after = self.tables(samples)
        logps, values, lasts = [], [], []
        start = 0
        for sample in samples:
            row, at = torch.tensor(sample.row) + start, torch.tensor(sample.at)
            logps.append(logp[row, at])
            values.append(after[row, at - 1])
            final = torch.tensor(sample.sampled).nonzero()[-1] if sample.sampled.any() else None
            lasts.append(None if final is None else after[row[final], at[final]])
            start += len(sample.rows)
        return logps, values, lasts


def steps_of(sample: Sample, unit: str) -> list[list[int]]:
    """The sampled tokens of each unit."""
    found: dict[int, list[int]] = {}
    for token in range(len(sample.at)):
        if sample.sampled[token]:
            key = {"token": token, "turn": sample.turn[token], "chunk": sample.chunk[token]}[unit]
            found.setdefault(int(key), []).append(token)
    return list(found.values())


def explicit_gae(rewards: Sequence[float], values: Sequence[Tensor], after: float) -> list[float]:
    """A_k = sum_l (gamma lambda)^l delta_(k+l): the sum itself."""
    following = [*map(float, values[1:]), after]
    delta = [
        r + GAMMA * nxt - float(v) for r, v, nxt in zip(rewards, values, following, strict=True)
    ]
    n = len(delta)
    return [sum((GAMMA * LAM) ** (j - k) * delta[j] for j in range(k, n)) for k in range(n)]


def unit_rewards(sample: Sample, steps: Sequence[Sequence[int]], rewards: Sequence[float]) -> Any:
    """A chunk's reward, in the unit of its last sampled token or the last one before."""
    found = [0.0] * len(steps)
    for chunk, reward in enumerate(rewards):
        earned = [
            k for k, unit in enumerate(steps) for token in unit if sample.chunk[token] <= chunk
        ]
        if earned:
            found[max(earned)] += reward
    return found


def reference_loss(old: Reference, new: Reference, samples: Sequence[Sample], group: Any) -> Any:
    """Policy loss (a mean over sampled tokens), value loss (over units), and the advantages."""
    with torch.no_grad():
        old_logps, old_values, lasts = old.per_token(samples)
    logps, values, _ = new.per_token(samples)
    credit_of = {credit.episode_id: credit for credit in group.credits}
    surrogates, errors, advantages = [], [], {}
    for number, sample in enumerate(samples):
        credit = credit_of[sample.episode]
        steps = steps_of(sample, credit.gae.unit)
        before = [old_values[number][unit[0]] for unit in steps]
        after = float(lasts[number]) if credit.gae.truncated and steps else 0.0
        rewards = unit_rewards(sample, steps, credit.rewards)
        found = explicit_gae(rewards, before, after)
        advantages[sample.episode] = found
        for unit, advantage, v_old in zip(steps, found, before, strict=True):
            ratio = (logps[number][unit] - old_logps[number][unit]).exp()
            bounded = ratio.clamp(1 - CLIP, 1 + CLIP)
            surrogates.append(torch.minimum(ratio * advantage, bounded * advantage))
            v, target = values[number][unit[0]], advantage + v_old
            v_bounded = v_old + (v - v_old).clamp(-VALUE_CLIP, VALUE_CLIP)
            errors.append(0.5 * torch.maximum((v - target) ** 2, (v_bounded - target) ** 2))
    return SimpleNamespace(
        policy=-torch.cat(surrogates).mean(),
        value=torch.stack(errors).mean(),
        advantages=advantages,
    )


def disturbed(module: torch.nn.Module, scale: float) -> None:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(scale * noise)


def linear(critic: Any) -> Any:
    def value(states: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = states if critic.options.gradient == "policy" else states.detach()
        return cast(Tensor, hidden @ critic.head.weight[0] + critic.head.bias[0])

    return value


def own_model(critic: Any) -> Any:
    def value(states: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = critic.model(input_ids=ids, attention_mask=mask).last_hidden_state
        return cast(Tensor, hidden @ critic.head.weight[0] + critic.head.bias[0])

    return value


@pytest.mark.parametrize("packing", ["tree", "packed", "padded"])
@pytest.mark.parametrize("unit", ["token", "turn", "chunk"])
@pytest.mark.parametrize("kind", ["detached", "shared", "model"])
def test_loss_and_gradient_are_those_of_the_formulas(
    lab: Any, kind: Any, unit: str, packing: Any
) -> None:
    chosen = CriticOptions(
        type="model" if kind == "model" else "head",
        gradient="policy" if kind == "shared" else "head",
        value_clip=VALUE_CLIP,
        coefficient=COEFFICIENT,
    )
    options = PolicyOptions(critic=chosen, packing=packing, logits_mb=0.001)
    llm = lab.InProcessLLM(gpt2(lab))
    critic = make_critic(llm.policy, options, chosen)
    assert critic is not None
    disturbed(critic.head, 0.3)
    learner = Learner(llm.policy.model.requires_grad_(True), options, critic)
    value_of = own_model if kind == "model" else linear
    group = valued_group(lab, 3, unit)
    parts = PRESETS["ppo"]
    target = Reinforcement(objective=parts, imitation=ImitationOptions(when="off"))
    samples = target.read(lab.batch_of(group)).samples

    def pieces(given: Sequence[Sample]) -> list[list[Sample]]:
        return split(given, 60, packing=packing)

    completed, found = with_values(learner, samples, pieces, chosen)
    with_old = {}
    for piece in pieces(completed):
        for sample, logp in zip(piece, by_sample(piece, learner.logp(piece)), strict=True):
            with_old[sample.episode] = evolve(sample, old_logp=logp)
    old = copy.deepcopy(learner.model), copy.deepcopy(critic)
    disturbed(learner.model, 0.02)
    disturbed(critic, 0.02)
    measured = [
        one
        for _, one in learner.forward_backward_each(
            pieces(target.normalised(list(with_old.values()))), parts
        )
    ]

    before = Reference(old[0], value_of(old[1]))
    after = Reference(learner.model, value_of(critic))
    wanted = reference_loss(before, after, samples, group)
    for name, advantages in wanted.advantages.items():
        if advantages:
            assert found[name].advantages == pytest.approx(advantages, rel=0, abs=CLOSE)
    values = sum(float(one.value.loss) for one in measured if one.value is not None)
    assert values == pytest.approx(COEFFICIENT * float(wanted.value.detach()), rel=CLOSE)
    assert any(one.value is not None and one.value.clipped.any() for one in measured)
    assert any((one.terms.coefficient == 0).any() for one in measured)

    named = [*learner.model.named_parameters(), *critic.named_parameters()]
    total = wanted.policy + COEFFICIENT * wanted.value
    theirs = torch.autograd.grad(total, [each for _, each in named], allow_unused=True)
    for (name, parameter), other in zip(named, theirs, strict=True):
        assert (parameter.grad is None) == (other is None), name
        if parameter.grad is not None and other is not None:
            far = float((parameter.grad - other).norm())
            assert far <= CLOSE * (1.0 + float(other.norm())), name
