"""QLoRA: adapters are trained over weights in 4 bits, which stay as they are."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from ale.errors import InputError
from ale.plugin import BuildContext
from ale.types import Batch, Gae
from ale_trainer_policy import adapters
from ale_trainer_policy.critic_options import CriticOptions
from ale_trainer_policy.memory_plan import Planner, Sampler
from ale_trainer_policy.models import fingerprint_of
from ale_trainer_policy.options import LoraOptions, PolicyOptions
from ale_trainer_policy.plugin import ale_trainers
from ale_trainer_policy.traced import trace
from ale_training.quantised import keep_format

LORA = LoraOptions(r=4, alpha=8.0)
TIMINGS = ("seconds", "tokens_per_second")
IDS = torch.tensor([[3, 9, 1, 7, 30, 2, 8, 8]])
(POLICY,) = [each for each in ale_trainers() if each.name == "policy"]


@pytest.fixture
def loaded(lab: Any, tmp_path: Path) -> Any:
    """A model component whose linear layers are in 4 bits."""
    if find_spec("bitsandbytes") is None:
        assert os.environ.get("CI") != "true", "CI must have bitsandbytes"
        pytest.skip("bitsandbytes is not installed")

    def load(seed: int = 0) -> Any:
        folder = tmp_path / f"base-{seed}"
        lab.tiny_model(seed=seed).save_pretrained(folder)
        config = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True
        )
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, quantization_config=config, device_map={"": "cpu"}
        )
        keep_format(model)
        return lab.InProcessLLM(model.eval())

    return load


def attached(llm: Any, **fields: Any) -> Any:
    trainer: Any = POLICY.build(PolicyOptions(lr=3e-2, **fields), BuildContext(seed=7))
    trainer.attach(llm)
    return trainer


def frozen(model: Any) -> dict[str, torch.Tensor]:
    return {
        name.replace(".base_layer", ""): each.detach().clone()
        for name, each in model.state_dict().items()
        if "lora_" not in name
    }


def probability(llm: Any, batch: Batch) -> float:
    """The mean log-probability of what was good."""
    (group,) = batch.groups
    turn = group.group.rollouts[0].episode.trajectory.turns[0].completion.tokens
    ids = torch.tensor([[*turn.prompt_ids, *turn.output_ids]])
    with torch.no_grad():
        logits = llm.policy.model.eval()(ids).logits[0, len(turn.prompt_ids) - 1 : -1]
    logps = logits.log_softmax(-1).gather(1, torch.tensor(turn.output_ids)[:, None])
    return float(logps.mean())


async def test_what_was_good_becomes_likelier_and_the_weights_under_the_adapters_stay(
    loaded: Any, lab: Any
) -> None:
    llm = loaded()
    before = frozen(llm.policy.model)
    turn = lab.TokenTurn(prompt=[1, 2, 3], output=[7, 30, 2, 9], logps=[-1.0] * 4)
    batch = lab.batch_of(lab.credited(lab.TokenEpisode(turns=[turn])))
    trainer = attached(llm, lora=LORA)
    likely = [probability(llm, batch)]
    for _ in range(3):
        await trainer.step(batch)
        likely.append(probability(llm, batch))
    assert likely == sorted(likely)
    assert likely[-1] > likely[0] + 1
    after = frozen(llm.policy.model)
    assert any(each.dtype == torch.uint8 for each in before.values())
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


async def test_what_samples_and_what_is_trained_have_the_same_logits(loaded: Any, lab: Any) -> None:
    llm = loaded()
    trainer = attached(llm, lora=LORA, packing="padded")
    await trainer.step(lab.batch_of(lab.random_group(1)))
    model = llm.policy.model
    with torch.no_grad():
        sampled = model.eval()(IDS).logits
    with trainer._learner.training():
        trained = model(IDS, use_cache=False).logits
    assert trained.requires_grad
    torch.testing.assert_close(trained.detach(), sampled, atol=1e-5, rtol=0)


@pytest.mark.parametrize("critic", [None, CriticOptions(type="model")], ids=["alone", "critic"])
async def test_a_resumed_trainer_continues_equal_to_the_bit_from_adapters_alone(
    loaded: Any, lab: Any, tmp_path: Path, critic: CriticOptions | None
) -> None:
    def batch(step: int) -> Batch:
        group = lab.random_group(step)
        gae = Gae(gamma=1.0, lam=0.95, unit="chunk", truncated=False)
        made = group.credits if critic is None else [evolve(c, gae=gae) for c in group.credits]
        found: Batch = lab.batch_of(evolve(group, credits=tuple(made)), step=step)
        return found

    first = attached(loaded(), lora=LORA, critic=critic)
    await first.step(batch(0))
    first.save(tmp_path)
    expected = (await first.step(batch(1))).metrics
    assert not [n for n in names(tmp_path) if "norm" in n or "base_layer" in n or "embed" in n]
    second = attached(loaded(), lora=LORA, critic=critic)
    second.load(tmp_path)
    again = (await second.step(batch(1))).metrics
    assert {k: v for k, v in again.items() if k not in TIMINGS} == {
        k: v for k, v in expected.items() if k not in TIMINGS
    }
    mine, other = first._learner.parameters, second._learner.parameters
    assert all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))


def names(directory: Path) -> list[str]:
    from safetensors import safe_open

    (file,) = directory.glob("*.safetensors")
    with safe_open(file, framework="pt") as tensors:
        return list(tensors.keys())


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "trainer.lora"),
        ({"lora": LORA, "sync": "copy"}, "trainer.sync"),
        ({"lora": LORA, "sync": "copy", "processes": 2}, "trainer.sync"),
        ({"lora": LORA, "sync": "copy", "offload": "host"}, "trainer.sync"),
    ],
)
def test_what_would_train_or_round_the_weights_is_refused(
    loaded: Any, fields: dict[str, Any], path: str
) -> None:
    with pytest.raises(InputError, match="quantised") as refused:
        attached(loaded(), **fields)
    assert [each.path for each in refused.value.problems] == [path]


def test_a_checkpoint_is_of_weights_in_4_bits_or_of_whole_ones(loaded: Any, lab: Any) -> None:
    options = PolicyOptions(lora=LORA)
    whole = lab.InProcessLLM(lab.tiny_model())
    prints = [fingerprint_of(each.policy, options) for each in (whole, loaded(), loaded())]
    assert prints[0] != prints[1] == prints[2]


async def test_merged_adapters_are_the_policy_that_was_trained(loaded: Any, lab: Any) -> None:
    llm = loaded()
    trainer = attached(llm, lora=LORA)
    await trainer.step(lab.batch_of(lab.random_group(1)))
    with torch.no_grad():
        expected = llm.policy.model.eval()(IDS).logits
        start = loaded().policy.model
        adapters.merge(start, LORA, trainer._learner.weights())
        assert all(each.is_floating_point() for each in start.parameters())
        torch.testing.assert_close(start(IDS).logits, expected, atol=1e-4, rtol=0)


def test_a_plan_counts_what_the_weights_take(loaded: Any) -> None:
    model = loaded().policy.model
    options = PolicyOptions(lora=LORA, max_tokens_per_microbatch=16)
    found = trace(model.config, torch.float32, options, False, 16)
    held = {id(each): each.nbytes for each in model.parameters()}
    scales = sum(
        weight.quant_state.absmax.nbytes + weight.quant_state.state2.absmax.nbytes
        for weight in model.parameters()
        if hasattr(weight, "quant_state")
    )
    assert found.quantised == sum(held.values()) + scales


def test_a_plan_of_weights_in_4_bits_has_no_packed_copy_and_is_named_where_it_helps(
    lab: Any,
) -> None:
    planner = Planner(lab.tiny_model(num_hidden_layers=1).config)
    alone = PolicyOptions(max_tokens_per_microbatch=64, activations="recompute", logits_mb=1.0)
    options = evolve(alone, lora=LORA)
    whole = Sampler(dtype=torch.float32, context=64, rows=1, packed=True, prefix_cache=0)
    by_name = {part.name: part.bytes for part in planner.plan(whole, options).parts}
    quantised = Sampler(
        dtype=torch.float32, context=64, rows=1, packed=True, prefix_cache=0, quantised=True
    )
    in_4_bits = {part.name: part.bytes for part in planner.plan(quantised, options).parts}
    assert in_4_bits["weights"] < 0.6 * by_name["weights"]
    assert "sampler's packed copy" not in in_4_bits
    peak = planner.plan(quantised, options).peak
    fitting, _ = planner.changes_that_fit(whole, options, peak)
    assert ("llm.quantise=nf4",) in [each.overrides for each in fitting]
    _, together = planner.changes_that_fit(whole, alone, 0.0)
    assert together.overrides[-2:] == ("trainer.lora.r=16", "llm.quantise=nf4")
