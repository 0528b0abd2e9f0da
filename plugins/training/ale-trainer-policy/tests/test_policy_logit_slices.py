"""Logits a slice at a time: the same numbers and gradients, and never more than a slice held."""

from typing import Any

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

from ale.errors import InputError
from ale_trainer_policy.learner import Learner
from ale_trainer_policy.models import prepare
from ale_trainer_policy.options import PRESETS, ImitationOptions, LearnOptions, LoraOptions
from ale_trainer_policy.targets import Reinforcement
from ale_trainer_policy.tree import Datum, pack

FEW = 3 * 64 * 4 / 2**20
"""MiB of three rows of logits."""


def datum_of(lab: Any, seed: int) -> Datum:
    target = Reinforcement(parts=PRESETS["ipa"], imitation=ImitationOptions(when="always"))
    groups = [lab.random_group(seed, task="a"), lab.random_group(seed + 1000, task="b")]
    return pack(target.normalised(target.read(lab.batch_of(*groups)).samples))


def found(model: Any, datum: Datum, **options: Any) -> list[torch.Tensor]:
    """Log-probabilities, entropies and gradients."""
    learner = Learner(model, LearnOptions(**options))
    measured = learner.forward_backward(datum, PRESETS["ipa"])
    grads = [p.grad.flatten() for p in learner.parameters if p.grad is not None]
    return [measured.logp, measured.entropy, torch.cat(grads)]


def watch(model: Any) -> list[int]:
    """Rows of logits that the output layer makes, call by call."""
    head, rows = model.get_output_embeddings(), []
    project = head.forward

    def watched(hidden: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = project(hidden)
        rows.append(out.numel() // 64)
        return out

    head.forward = watched
    return rows


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("packing", ["tree", "padded"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slices_change_no_number_and_no_gradient(
    lab: Any, dtype: torch.dtype, packing: Any, temperature: float
) -> None:
    model, datum = lab.tiny_model().to(dtype), datum_of(lab, 3)
    close = 1e-6 if dtype == torch.float32 else 1e-12
    options = {"packing": packing, "temperature": temperature}
    whole = found(model, datum, logits_mb=None, **options)
    sliced = found(model, datum, logits_mb=FEW, **options)
    for a, b in zip(sliced, whole, strict=True):
        assert float((a - b).norm() / b.norm()) < close


def test_never_more_than_a_slice_of_logits_is_made(lab: Any) -> None:
    model, datum = lab.tiny_model(), datum_of(lab, 3)
    rows = watch(model)
    watched = model.get_output_embeddings().forward
    found(model, datum, logits_mb=FEW)
    positions = len({int(datum.tree.parent[token]) for token in datum.token})
    assert max(rows) == 3
    assert sum(rows) == 2 * positions, "once forward, once more in the backward pass"
    assert model.get_output_embeddings().forward is watched, "as it was"
    rows.clear()
    found(model, datum)
    assert rows == [positions], "what fits is computed once"
    rows.clear()
    Learner(model, LearnOptions(logits_mb=FEW)).logp(datum.samples)
    assert (max(rows), sum(rows)) == (3, positions), "without a gradient nothing is done twice"


def test_adapters_on_the_output_layer_are_in_every_slice(lab: Any) -> None:
    datum = datum_of(lab, 4)
    gradients = []
    for logits_mb in (None, FEW):
        options = LearnOptions(lora=LoraOptions(r=2, target=("lm_head", "q_proj")))
        model = prepare(lab.InProcessLLM(lab.tiny_model("llama").double()).policy, options)
        torch.manual_seed(1)
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, std=0.1)
        gradients.append(found(model, datum, logits_mb=logits_mb)[2])
    assert float((gradients[0] - gradients[1]).norm() / gradients[0].norm()) < 1e-12


def test_logits_that_are_changed_afterwards_are_held_whole(lab: Any) -> None:
    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        initializer_range=0.3,
        final_logit_softcapping=2.0,
    )
    model, datum = Gemma2ForCausalLM(config).double(), datum_of(lab, 3)
    whole = found(model, datum, logits_mb=None, packing="padded")
    rows = watch(model)
    sliced = found(model, datum, logits_mb=FEW, packing="padded")
    assert len(rows) == 1
    for a, b in zip(sliced, whole, strict=True):
        torch.testing.assert_close(a, b)


def test_a_model_that_changes_its_logits_unasked_is_refused(lab: Any) -> None:
    class Doubling(type(lab.tiny_model())):  # type: ignore[misc]
        def forward(self, *arguments: Any, **named: Any) -> Any:
            out = super().forward(*arguments, **named)
            out.logits = 2 * out.logits
            return out

    model = lab.tiny_model()
    model.__class__ = Doubling
    with pytest.raises(InputError, match=r"trainer\.logits_mb: Doubling changes its logits"):
        prepare(lab.InProcessLLM(model).policy, LearnOptions())
    prepare(lab.InProcessLLM(model).policy, LearnOptions(logits_mb=None))
