"""Presets, KL and corrections of trainer `policy` have the gradients of TRL's own loss."""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = [pytest.mark.long, pytest.mark.needs("torch", "trl")]

LENGTHS = (4, 3, 5, 2)
"""Sampled tokens of each completion; TRL pads them."""
CAP = 1.2


@pytest.fixture
def batch() -> SimpleNamespace:
    """Log-probabilities and advantages, (4, 5), in double precision."""
    import torch

    generator = torch.Generator().manual_seed(0)

    def normal(scale: float) -> Any:
        return scale * torch.randn(4, 5, generator=generator, dtype=torch.float64)

    old = -normal(1.0).abs() - 0.1
    return SimpleNamespace(
        old=old,
        logp=old + normal(0.3),
        sampler=old + normal(0.3),
        reference=old + normal(0.4),
        advantages=torch.tensor([1.0, -0.5, 0.25, -2.0], dtype=torch.float64),
        mask=torch.tensor([[float(i < n) for i in range(5)] for n in LENGTHS]),
    )


def theirs(batch: SimpleNamespace, fields: dict[str, Any], ratio: Any) -> Any:
    """The gradient of TRL's loss by the log-probabilities, (4, 5)."""
    import torch
    from trl import GRPOTrainer

    logp = batch.logp.clone().requires_grad_()
    trainer = SimpleNamespace(
        **{
            "loss_type": "grpo",
            "importance_sampling_level": "token",
            "epsilon_low": 0.2,
            "epsilon_high": 0.2,
            "beta": 0.0,
            **fields,
        },
        args=SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1),
        _get_per_token_logps_and_entropies=lambda *_, **__: (logp, torch.zeros_like(logp), None),
        use_vllm=ratio is not None,
        vllm_importance_sampling_correction=True,
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        max_completion_length=5,
        model=SimpleNamespace(training=False),
        _entropy_bonus_enabled=False,
        current_gradient_accumulation_steps=1,
        accelerator=SimpleNamespace(
            num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x
        ),
        _metrics=defaultdict(lambda: defaultdict(list)),
    )
    inputs = {
        "prompt_ids": torch.zeros(4, 1, dtype=torch.long),
        "prompt_mask": torch.ones(4, 1),
        "completion_ids": torch.zeros(4, 5, dtype=torch.long),
        "completion_mask": batch.mask,
        "advantages": batch.advantages,
        "old_per_token_logps": batch.old,
        "ref_per_token_logps": batch.reference,
        "importance_sampling_ratio": ratio,
        "num_items_in_batch": batch.mask.sum(),
    }
    loss = GRPOTrainer._compute_loss(trainer, None, inputs)
    return torch.autograd.grad(loss, logp)[0]


def ours(batch: SimpleNamespace, parts: Any) -> Any:
    """The gradient of the preset's loss by the log-probabilities, (4, 5); 0 for padding."""
    import torch

    from ale_trainer_policy.objective import Tokens, evaluate
    from ale_training.normalise import NORMALISERS, Counted

    counted = [Counted(tokens=n, skipped=False) for n in LENGTHS]
    z = NORMALISERS[parts.normaliser](counted, parts.normaliser_constant)
    real = batch.mask.bool()
    given = batch.advantages if batch.advantages.dim() == 2 else batch.advantages[:, None]
    advantages = given.expand(4, 5)
    share = (1 / torch.tensor(z, dtype=torch.float64))[:, None].expand(4, 5)
    trajectory = torch.arange(4)[:, None].expand(4, 5)[real]
    logp = batch.logp.clone().requires_grad_()
    tokens = Tokens(
        weight=(advantages * share)[real],
        imitation=torch.zeros(len(trajectory), dtype=torch.float64),
        behaviour_logp=batch.sampler[real],
        sampled=torch.ones(len(trajectory), dtype=torch.bool),
        positive=(advantages > 0)[real],
        chunk_id=trajectory,
        trajectory_id=trajectory,
        regularised=share[real],
        reference_logp=batch.reference[real],
    )
    terms = evaluate(parts, logp[real], batch.old[real], tokens)
    return torch.autograd.grad(terms.loss, logp)[0]


@pytest.mark.parametrize(
    ("preset", "parts", "fields"),
    [
        ("grpo", {"kl": "off"}, {}),
        ("grpo", {}, {"beta": 0.04}),
        ("dr-grpo", {"normaliser_constant": 5.0}, {"loss_type": "dr_grpo"}),
        ("dapo", {}, {"loss_type": "dapo", "epsilon_high": 0.28}),
        (
            "gspo",
            {},
            {
                "importance_sampling_level": "sequence",
                "epsilon_low": 3e-4,
                "epsilon_high": 4e-4,
            },
        ),
        ("cispo", {}, {"loss_type": "cispo", "epsilon_high": 5.0}),
    ],
)
def test_a_preset_has_the_gradient_of_trls_loss(
    batch: SimpleNamespace, preset: Any, parts: dict[str, Any], fields: dict[str, Any]
) -> None:
    import torch

    from ale_trainer_policy.options import ObjectiveOptions, resolve_objective

    chosen = resolve_objective(ObjectiveOptions(preset=preset, **parts))
    wanted = theirs(batch, fields, None)
    assert float(wanted.abs().max()) > 0.01
    torch.testing.assert_close(ours(batch, chosen), wanted, rtol=1e-9, atol=1e-12)


def test_ppo_has_the_gradient_of_trls_loss_of_advantages_per_token(batch: SimpleNamespace) -> None:
    """TRL 1.16 has no PPO trainer; its loss type `bnpo` is PPO's mean over all tokens."""
    import torch

    from ale_trainer_policy.options import resolve_objective

    generator = torch.Generator().manual_seed(1)
    batch.advantages = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    wanted = theirs(batch, {"loss_type": "bnpo"}, None)
    assert float(wanted.abs().max()) > 0.01
    found = ours(batch, resolve_objective("ppo"))
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["truncate", "mask"])
@pytest.mark.parametrize("level", ["token", "trajectory"])
def test_a_correction_has_the_gradient_of_trls_importance_sampling(
    batch: SimpleNamespace, method: Any, level: Any
) -> None:
    """As TRL computes its modes token_truncate, token_mask, sequence_truncate and sequence_mask."""
    import torch
    from attrs import evolve

    from ale_trainer_policy.options import CorrectionOptions, ObjectiveOptions, resolve_objective

    difference = (batch.old - batch.sampler) * batch.mask
    if level == "trajectory":
        difference = difference.sum(-1, keepdim=True)
    ratio = difference.exp()
    if method == "truncate":
        ratio = ratio.clamp(max=CAP)
    else:
        ratio = ratio.masked_fill((ratio < 1 / CAP) | (ratio > CAP), 0.0)
    given = CorrectionOptions(method=method, level=level, cap=CAP)
    chosen = resolve_objective(ObjectiveOptions(preset="grpo", kl="off"))
    wanted = theirs(batch, {}, ratio)
    found = ours(batch, evolve(chosen, correction=given))
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
