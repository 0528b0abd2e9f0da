"""On a GPU: the gradients of a processor, whatever the packing, and a step taken again."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ale.plugin import BuildContext
from ale_trainer_policy.critic_options import CriticOptions
from ale_trainer_policy.imitation_options import ImitationOptions
from ale_trainer_policy.learner import Learner
from ale_trainer_policy.options import PRESETS, LearnOptions, LoraOptions, PolicyOptions
from ale_trainer_policy.plugin import ale_trainers
from ale_trainer_policy.targets import Reinforcement
from ale_trainer_policy.tree import pack

from .test_policy_critic import for_critic

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    # PyTorch's compiler warns.
    pytest.mark.filterwarnings("ignore"),
]

WIDE = {"head_dim": 32}
"""Flex attention has no kernel for heads of fewer than 16 numbers."""


def gradient(model: Any, groups: list[Any], lab: Any, **options: Any) -> torch.Tensor:
    """Of all parameters in one vector, on the processor."""
    target = Reinforcement(objective=PRESETS["ipa"], imitation=ImitationOptions(when="off"))
    samples = target.normalised(target.read(lab.batch_of(*groups)).samples)
    learner = Learner(model, LearnOptions(**options))
    learner.forward_backward(pack(samples), PRESETS["ipa"])
    found = [p.grad.flatten().cpu() for p in learner.parameters if p.grad is not None]
    return torch.cat(found)


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@pytest.mark.parametrize("seed", range(4))
def test_each_packing_has_the_gradient_of_a_processor(lab: Any, kind: str, seed: int) -> None:
    groups = [lab.random_group(seed, task="a"), lab.random_group(seed + 1000, task="b")]
    wanted = gradient(lab.tiny_model(kind, **WIDE), groups, lab, packing="padded")
    for packing in ("tree", "packed", "padded"):
        found = gradient(lab.tiny_model(kind, **WIDE).to("cuda"), groups, lab, packing=packing)
        assert relative(found, wanted) < 1e-4, packing


def test_long_rows_with_a_sliding_window_have_it_too(lab: Any) -> None:
    window = {"sliding_window": 100, "use_sliding_window": True, "max_window_layers": 0}
    start = [i % lab.VOCAB for i in range(700)]
    turns = [
        lab.TokenTurn(prompt=start[:n], output=[(7 * i) % lab.VOCAB for i in range(m)])
        for n, m in ((700, 300), (650, 10), (500, 129), (1, 64))
    ]
    group = lab.credited(*(lab.TokenEpisode(turns=[turn]) for turn in turns))
    wanted = gradient(lab.tiny_model(**WIDE, **window), [group], lab, packing="padded")
    found = gradient(lab.tiny_model(**WIDE, **window).to("cuda"), [group], lab)
    assert relative(found, wanted) < 1e-4
    full = gradient(lab.tiny_model(**WIDE).to("cuda"), [group], lab)
    assert relative(full, wanted) > 1e-3


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activations": "recompute"},
        {"lora": LoraOptions(r=4)},
        {"sync": "copy"},
        {"sync": "copy", "offload": "host"},
        {"critic": CriticOptions(type="head", gradient="policy")},
        {"critic": CriticOptions(type="model")},
    ],
    ids=str,
)
async def test_steps_are_those_of_a_processor_and_go_on_from_a_checkpoint(
    lab: Any, tmp_path: Path, options: dict[str, Any]
) -> None:
    (component,) = [each for each in ale_trainers() if each.name == "policy"]
    groups = [lab.random_group(3, task="a"), lab.random_group(4, task="b")]
    batch = lab.batch_of(*(map(for_critic, groups) if "critic" in options else groups))

    def attached(device: str) -> Any:
        llm = lab.InProcessLLM(lab.tiny_model(**WIDE).to(device))
        trainer = component.build(PolicyOptions(lr=1e-2, **options), BuildContext(seed=7))
        trainer.attach(llm)
        return trainer

    here, there = attached("cpu"), attached("cuda")
    for _ in range(2):
        wanted, found = await here.step(batch), await there.step(batch)
        values = {name for name in wanted.metrics if name.startswith("value")}
        assert bool(values) == ("critic" in options)
        for name in ("loss", "grad_norm", "entropy", "ratio_max", *values):
            assert found.metrics[name] == pytest.approx(wanted.metrics[name], rel=1e-3), name
    there.save(tmp_path)
    again = attached("cuda")
    again.load(tmp_path)
    after, resumed = await there.step(batch), await again.step(batch)
    assert resumed.metrics["loss"] == pytest.approx(after.metrics["loss"], rel=1e-5)
    assert resumed.policy_version == after.policy_version
