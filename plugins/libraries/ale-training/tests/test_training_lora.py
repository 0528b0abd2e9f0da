"""Adapters are merged into the weights that a trainer hands over."""

import subprocess
import sys

import pytest
import torch
from peft import inject_adapter_in_model
from transformers import LlamaConfig, LlamaForCausalLM

from ale.errors import InputError
from ale_training.lora import LoraOptions, check_targets, full_weights, lora_config


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_merged_weights_have_the_names_and_the_results_of_the_adapted_model(
    dtype: torch.dtype,
) -> None:
    config = LlamaConfig(
        vocab_size=16,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    torch.manual_seed(0)
    plain = LlamaForCausalLM(config).to(dtype).eval()
    names = set(plain.state_dict())
    adapted = LlamaForCausalLM(config).to(dtype).eval()
    adapted.load_state_dict(plain.state_dict())
    inject_adapter_in_model(lora_config(LoraOptions(r=2)), adapted)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    merged = full_weights(adapted)
    assert set(merged) == names
    assert {tensor.dtype for tensor in merged.values()} == {dtype}
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        wanted, before = adapted(ids).logits, plain(ids).logits
        plain.load_state_dict(merged)
        found = plain(ids).logits
    bound = 1e-5 if dtype == torch.float32 else 0.1
    assert float((found - wanted).abs().max()) < bound
    assert float((before - wanted).abs().max()) > bound


@pytest.mark.parametrize(("r", "alpha"), [(2, 6.0), (4, 2.0)])
def test_an_update_is_alpha_by_r_times_the_product_of_the_two_matrices(
    r: int, alpha: float
) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(5, 3, bias=False)
    model = torch.nn.Sequential(layer)
    plain = layer.weight.detach().clone()
    options = LoraOptions(r=r, alpha=alpha, target=("0",))
    inject_adapter_in_model(lora_config(options), model)
    down, up = torch.randn(r, 5), torch.randn(3, r)
    model[0].lora_A["default"].weight.data.copy_(down)
    model[0].lora_B["default"].weight.data.copy_(up)
    expected = plain + (alpha / r) * (up @ down)
    x = torch.randn(4, 5)
    assert torch.allclose(model(x), x @ expected.T, atol=1e-5)
    assert torch.allclose(full_weights(model)["0.weight"], expected, atol=1e-5)


def test_options_are_read_without_torch() -> None:
    code = "import ale_training.lora, ale_training.policy, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_options_there_are_no_adapters() -> None:
    assert lora_config(None) is None


def test_a_rank_above_the_width_of_any_model_is_refused() -> None:
    assert LoraOptions(r=1 << 14).r == 1 << 14
    with pytest.raises(ValueError, match="'r' must be <= 16384: 999999999"):
        LoraOptions(r=999_999_999)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (("q_proj", "v_porj"), r"no linear layer 'v_porj'\n(.*\n)*.*did you mean 'v_proj'\?"),
        (("norm",), "no linear layer 'norm'"),
        (("proj",), "no linear layer 'proj'"),
        ((), "lora.target: it names no layer"),
    ],
)
def test_each_layer_that_gets_adapters_has_to_be_there(
    target: tuple[str, ...], message: str
) -> None:
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=16, num_hidden_layers=1, **shape))
    check_targets(model, LoraOptions(target=("q_proj", "self_attn.k_proj", "lm_head")), path="")
    with pytest.raises(InputError, match=message):
        check_targets(model, LoraOptions(target=target), path="lora.target")


@pytest.mark.parametrize(("target", "tied"), [("embed_tokens", False), ("lm_head", True)])
def test_a_layer_whose_weight_is_that_of_embeddings_gets_no_adapters(
    target: str, tied: bool
) -> None:
    # Merged into the one weight, they would act in both layers: another policy would sample.
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=16, num_hidden_layers=1, tie_word_embeddings=tied, **shape)
    with pytest.raises(InputError, match=rf"x: '{target}' is of embeddings, or shares its weight"):
        check_targets(LlamaForCausalLM(config), LoraOptions(target=("q_proj", target)), path="x")
