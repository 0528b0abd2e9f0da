"""Two processes give the gradients, the weights and the checkpoints of one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from ale.plugin import BuildContext
from ale.types import Gae
from ale_trainer_policy.build import policy_trainer
from ale_trainer_policy.critic_options import CriticOptions
from ale_trainer_policy.options import KlOptions, ObjectiveOptions, PolicyOptions

COMPARED = (
    "loss",
    "loss_kl",
    "loss_entropy",
    "loss_value",
    "value_mean",
    "explained_variance",
    "grad_norm",
    "critic_grad_norm",
    "ratio_max",
    "tokens_trained",
    "tokens_computed",
)


def trainer(lab: Any, processes: int, critic: CriticOptions | None) -> Any:
    options = PolicyOptions(
        lr=1e-3,
        sync="copy",
        processes=processes,
        objective=ObjectiveOptions(
            preset="ipa",
            mask="none",
            kl=KlOptions(coefficient=0.1, estimator="k2"),
            entropy=0.01,
        ),
        epochs=2,
        max_grad_norm=None,
        max_tokens_per_microbatch=60,
        logits_mb=0.002,
        critic=critic,
    )
    made = policy_trainer(options, BuildContext())
    made.attach(lab.InProcessLLM(lab.tiny_model()))
    return made


@pytest.mark.long
@pytest.mark.parametrize(
    "critic",
    [None, CriticOptions(type="head", gradient="policy"), CriticOptions(type="model")],
    ids=["without a critic", "head", "model"],
)
async def test_two_processes_give_the_gradients_of_one(
    lab: Any, tmp_path: Path, critic: CriticOptions | None
) -> None:
    """Over an odd number of micro-batches; moments are sums of gradients, and so compare them."""
    batches = [
        lab.batch_of(
            for_critic(lab.random_group(seed), critic),
            for_critic(lab.random_group(seed + 9, task="u"), critic),
            step=seed,
        )
        for seed in range(3)
    ]
    one, two = trainer(lab, 1, critic), trainer(lab, 2, critic)
    try:
        for number, batch in enumerate(batches):
            mine, theirs = [(await each.step(batch)).metrics for each in (one, two)]
            for name in COMPARED:
                if name not in mine:
                    assert critic is None
                    continue
                assert theirs[name] == pytest.approx(mine[name], rel=1e-4), (number, name)
            if number == 0:
                both = one._learner.state(), two._learner.state()
                _same(*both, "optimizer/exp_avg/", 1e-5)
                if critic is not None:
                    _same(*both, "critic/optimizer/exp_avg/", 1e-5)
        _same(one.snapshot().weights, two.snapshot().weights, "", 1e-4)

        two.save(tmp_path)
        expected = (await two.step(batches[0])).metrics
        again = trainer(lab, 1, critic)
        again.load(tmp_path)
        found = (await again.step(batches[0])).metrics
        assert found["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-4)
        two.load(tmp_path)
        found = (await two.step(batches[0])).metrics
        assert found["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-6)
    finally:
        two._learner.close()


def for_critic(group: Any, critic: CriticOptions | None) -> Any:
    """The group, with credits that a critic completes if there is one; the episodes are cut off."""
    if critic is None:
        return group
    gae = Gae(gamma=0.9, lam=0.9, unit="chunk", truncated=True)
    return evolve(group, credits=tuple(evolve(each, gae=gae) for each in group.credits))


def _same(mine: dict[str, torch.Tensor], theirs: dict[str, Any], prefix: str, far: float) -> None:
    names = [name for name in mine if name.startswith(prefix)]
    assert names
    for name in names:
        apart = (theirs[name] - mine[name]).norm() / mine[name].norm().clamp_min(1e-12)
        assert apart < far, name


def test_several_processes_need_a_copy() -> None:
    with pytest.raises(ValueError, match="needs sync: copy"):
        PolicyOptions(processes=2)
    with pytest.raises(ValueError, match="needs processes: 1"):
        PolicyOptions(processes=2, sync="copy", old_policy="rollout_version")
