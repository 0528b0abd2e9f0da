"""Logits a slice at a time: the same numbers and gradients, and never more than a slice held."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ale.errors import InputError
from ale_trainer_policy.imitation_options import ImitationOptions
from ale_trainer_policy.learner import Learner
from ale_trainer_policy.logit_slices import LogprobReader, check_head, read_instead
from ale_trainer_policy.models import prepare
from ale_trainer_policy.options import PRESETS, LearnOptions, LoraOptions
from ale_trainer_policy.targets import Reinforcement
from ale_trainer_policy.tree import Datum, pack

FEW = 3 * 64 * 4 / 2**20
"""MiB of three rows of logits."""


def datum_of(lab: Any, seed: int) -> Datum:
    target = Reinforcement(objective=PRESETS["ipa"], imitation=ImitationOptions(when="always"))
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


# Said by PEFT 0.19 of every model of a class whose layers can be tied.
@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
def test_adapters_on_the_output_layer_are_in_every_slice(lab: Any) -> None:
    datum = datum_of(lab, 4)
    gradients = []
    for logits_mb in (None, FEW):
        options = LearnOptions(lora=LoraOptions(r=2, target=("lm_head", "q_proj")))
        plain = lab.tiny_model("llama").double()
        plain.lm_head.weight = torch.nn.Parameter(plain.lm_head.weight.clone())  # not tied
        model = prepare(lab.InProcessLLM(plain).policy, options)
        torch.manual_seed(1)
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, std=0.1)
        gradients.append(found(model, datum, logits_mb=logits_mb)[2])
    assert float((gradients[0] - gradients[1]).norm() / gradients[0].norm()) < 1e-12


SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
FAMILIES: dict[str, dict[str, Any]] = {
    # Capped.
    "gemma2": {"final_logit_softcapping": 2.0},
    "gemma3_text": {"final_logit_softcapping": 2.0},
    "nanochat": {"final_logit_softcapping": 2.0},
    # Multiplied.
    "cohere": {"logit_scale": 0.25},
    "cohere2": {"logit_scale": 0.25},
    "hyperclovax": {"logits_scaling": 0.25},
    "falcon_h1": {
        "lm_head_multiplier": 0.25,
        "mamba_d_ssm": 32,
        "mamba_n_heads": 4,
        "mamba_d_head": 8,
        "mamba_d_state": 8,
        "mamba_chunk_size": 8,
    },
    # Divided, or the hidden states before them.
    "granite": {"logits_scaling": 4.0},
    "granitemoe": {"logits_scaling": 4.0, "num_local_experts": 2, "num_experts_per_tok": 1},
    "minicpm3": {
        "dim_model_base": 8,
        "num_key_value_heads": 4,
        "q_lora_rank": 8,
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8,
        "v_head_dim": 8,
    },
}


def of_family(family: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**SIZES, **FAMILIES[family], **changes})
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_model_does_to_its_logits_is_done_to_each_slice(lab: Any, family: str) -> None:
    model, datum = of_family(family), datum_of(lab, 3)
    check_head(model)
    whole = found(model, datum, logits_mb=None, packing="padded")
    rows = watch(model)
    sliced = found(model, datum, logits_mb=FEW, packing="padded")
    assert max(rows) == 3
    for a, b in zip(sliced, whole, strict=True):
        assert float((a - b).norm() / b.norm()) < 2e-6
    # It does something: the numbers would be others without.
    key = next(iter(FAMILIES[family]))
    without = {"final_logit_softcapping": None, "dim_model_base": SIZES["hidden_size"]}
    plain = of_family(family, **{key: without.get(key, 1.0)})
    logp = found(plain, datum, logits_mb=None, packing="padded")[0]
    assert float((logp - whole[0]).norm() / logp.norm()) > 1e-3


def changing(lab: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A model that does this to its logits, of which nobody knows."""

    class Changing(type(lab.tiny_model())):  # type: ignore[misc]
        def forward(self, *arguments: Any, **named: Any) -> Any:
            out = super().forward(*arguments, **named)
            out.logits = change(out.logits)
            return out

    model = lab.tiny_model()
    model.__class__ = Changing
    return model


def test_an_unknown_change_of_each_position_is_done_to_each_slice(lab: Any) -> None:
    def change(logits: torch.Tensor) -> torch.Tensor:
        return 3 * torch.nn.functional.softsign(logits.float() / 3)[..., :60] - logits[..., 4:]

    model = changing(lab, change)
    prepare(lab.InProcessLLM(model).policy, LearnOptions())
    nothing = np.zeros(1, np.int64)
    reader = LogprobReader(at=nothing, ids=nothing, rows=1, temperature=1.0)
    ids = torch.tensor([[3, 9, 1]])
    with torch.no_grad(), read_instead(model, reader.read):
        found = float(model(ids).logits)
        expected = change(lab.tiny_model()(ids).logits).log_softmax(-1)[0, 0, 0]
    assert found == pytest.approx(float(expected))


def test_a_model_that_names_no_output_layer_is_refused(lab: Any) -> None:
    model = lab.tiny_model()
    model.get_output_embeddings = lambda: None
    with pytest.raises(InputError, match="come from no output layer"):
        check_head(model)


def only_tokens_of_one(logits: torch.Tensor) -> torch.Tensor:
    logits[:, :, 5] = -1e9
    return logits


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda logits: logits - logits.mean(dim=-2, keepdim=True), "differ where"),
        (lambda logits: logits.flip(0) + logits.cumsum(-2), "differ where"),
        (only_tokens_of_one, "can't be computed in slices: .*does not support item assignment"),
        (lambda logits: logits if logits.max() > 0 else 2 * logits, "can't be computed in slices"),
        (lambda logits: torch.zeros(1, 5, 64), "not made from what its output layer gives"),
    ],
    ids=["means of positions", "sums of positions", "written", "a condition", "made elsewhere"],
)
def test_a_change_that_slices_would_not_get_right_is_refused(
    lab: Any, change: Any, error: str
) -> None:
    model = changing(lab, change)
    with pytest.raises(
        InputError, match=rf"trainer\.logits_mb: the logits of Changing.*{error}"
    ) as refused:
        prepare(lab.InProcessLLM(model).policy, LearnOptions())
    assert refused.value.problems[0].expected == "logits_mb: null, for this model"
    prepare(lab.InProcessLLM(model).policy, LearnOptions(logits_mb=None))
