"""Models of other families, adapters, and models that this loop can't sample."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from ale.errors import InputError
from ale_llm_policy.build import wrap_policy
from ale_llm_policy.options import PolicyOptions
from ale_llm_policy.packed import Packed, weight_of
from ale_llm_policy.pretrained import TinyShape, TorchPolicy, tiny_policy
from ale_llm_policy.testing import CORPUS, forward_logits, new_policy, request

SIZE = {
    "vocab_size": 330,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 1024,
}
GPT2 = {"vocab_size": 330, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 1024}
SLIDING = {"sliding_window": 12}
LLAMA3 = {
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
}
MODELS: list[tuple[str, dict[str, Any]]] = [
    ("Llama", SIZE),
    ("Llama", {**SIZE, "attention_bias": True, "tie_word_embeddings": False, **LLAMA3}),
    ("Qwen2", SIZE),
    ("Mistral", {**SIZE, **SLIDING}),
    ("Gemma2", {**SIZE, **SLIDING, "query_pre_attn_scalar": 8}),
    ("Gemma3", {**SIZE, **SLIDING, "query_pre_attn_scalar": 8}),
    ("GPT2", GPT2),
    # What these do to their logits.
    ("Cohere2", {**SIZE, **SLIDING, "logit_scale": 0.5}),
    ("Granite", {**SIZE, "logits_scaling": 2.0}),
    ("HyperCLOVAX", {**SIZE, "logits_scaling": 0.5}),
    ("NanoChat", {**SIZE, "final_logit_softcapping": 1.0}),
]


def policy_of(family: str, fields: dict[str, Any]) -> TorchPolicy:
    """A policy whose model has random weights, far from uniform, and the tiny one's tokenizer."""
    tiny = new_policy()
    suffix = "TextConfig" if family == "Gemma3" else "Config"
    config = getattr(transformers, f"{family}{suffix}")(**fields, eos_token_id=1, pad_token_id=0)
    name = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = getattr(transformers, name)(config).eval()
        for weight in model.parameters():
            if weight.ndim > 1:
                nn.init.normal_(weight, std=0.15)
    return TorchPolicy(model, tiny.tokenizer, tiny.template, name=family)


async def check(policy: TorchPolicy, **options: Any) -> None:
    """Several ragged requests, long enough to pass a window: all as one forward pass has it."""
    llm = wrap_policy(policy, PolicyOptions(**options))
    asked = [request(CORPUS[0] * n, seed=n) for n in (1, 4, 2)]
    for answer in await asyncio.gather(*(llm.complete(each) for each in asked)):
        found = answer.tokens
        assert found is not None
        logp = forward_logits(policy, found.prompt_ids, found.output_ids).log_softmax(-1)
        meant = logp.gather(1, torch.tensor(found.output_ids)[:, None])[:, 0]
        assert torch.tensor(found.logprobs) == pytest.approx(meant, abs=1e-5)
    await llm.aclose()


@pytest.mark.parametrize(("family", "fields"), MODELS)
@pytest.mark.parametrize("decoder", ["auto", "modules"])
def test_in_bfloat16_roundings_are_no_reason_to_refuse_a_model(
    family: str, fields: dict[str, Any], decoder: Any
) -> None:
    policy = policy_of(family, fields)
    policy.model.to(torch.bfloat16)
    wrap_policy(policy, PolicyOptions(decoder=decoder))


def test_large_logits_are_rounded_more(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = new_policy()
    with torch.no_grad():
        policy.model.lm_head.weight *= 30  # up to some 200: a unit in the last place is 1
    policy.model.to(torch.bfloat16)
    wrap_policy(policy, PolicyOptions())


def test_in_bfloat16_a_model_that_is_sampled_wrongly_by_a_tenth_of_a_nat_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = Packed.logits
    monkeypatch.setattr(Packed, "logits", lambda self, hidden: 0.95 * plain(self, hidden))
    policy = new_policy()
    policy.model.to(torch.bfloat16)
    with pytest.raises(InputError, match=r"differ from the model's own by 0\.1"):
        wrap_policy(policy, PolicyOptions())


@pytest.mark.parametrize(("family", "fields"), MODELS)
async def test_any_family_gives_the_numbers_of_its_own_forward_pass(
    family: str, fields: dict[str, Any]
) -> None:
    policy = policy_of(family, fields)
    await check(policy)
    await check(policy, decoder="modules")


def test_a_model_whose_state_is_not_keys_and_values_is_refused() -> None:
    fields = {"vocab_size": 330, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}
    with pytest.raises(InputError, match="attention"):
        wrap_policy(policy_of("Mamba", fields), PolicyOptions())


def test_a_model_that_is_not_of_the_family_is_not_packed() -> None:
    with pytest.raises(InputError, match="can't be packed"):
        wrap_policy(policy_of("GPT2", GPT2), PolicyOptions(decoder="packed"))


class Adapted(nn.Module):
    """What PEFT puts in the place of a linear layer, as far as packing looks at it."""

    def __init__(self, base: nn.Linear, delta: torch.Tensor) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_A = {"default": None}
        self.active_adapters = ["default"]
        self.disable_adapters = self.merged = False
        self._delta = delta

    def get_delta_weight(self, name: str) -> torch.Tensor:
        """What the adapter adds."""
        return self._delta


def test_adapters_are_merged_into_what_is_packed() -> None:
    base = nn.Linear(3, 2, bias=False)
    adapted = Adapted(base, torch.ones(2, 3))
    assert torch.equal(weight_of(adapted), base.weight + 1)
    adapted.disable_adapters = True
    assert torch.equal(weight_of(adapted), base.weight)
    assert weight_of(base).data_ptr() == base.weight.data_ptr()


LOADED = """
import sys
from pathlib import Path
from ale_llm_policy.pretrained import load_policy

def anonymous():
    (line,) = (l for l in Path("/proc/self/status").read_text().splitlines() if "RssAnon" in l)
    return int(line.split()[1]) * 1024

load_policy(sys.argv[1], device="cpu", dtype=sys.argv[2])  # what it imports is not counted
before = anonymous()
policy = load_policy(sys.argv[1], device="cpu", dtype=sys.argv[2])
for weight in policy.model.parameters():
    weight.sum()
print(anonymous() - before)
"""


@pytest.mark.parametrize(("dtype", "share"), [("float32", 0.0), ("bfloat16", 0.5)])
def test_a_model_is_mapped_from_its_files(tmp_path: Path, dtype: str, share: float) -> None:
    """Not copied, except to another type. Trainers with several ranks rely on it."""
    shape = TinyShape(layers=2, width=1024, heads=8, kv_heads=8, head_dim=128, mlp=2048)
    tiny_policy(CORPUS, shape).save(tmp_path)
    command = [sys.executable, "-c", LOADED, str(tmp_path), dtype]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    size = (tmp_path / "model.safetensors").stat().st_size
    assert int(done.stdout) / size == pytest.approx(share, abs=0.1)
