"""The distribution that is trained is the one that is sampled from, or the trainer refuses."""

from typing import Any

import pytest
import torch

from ale.errors import InputError
from ale.plugin import BuildContext
from ale_trainer_policy.critic_options import CriticOptions
from ale_trainer_policy.options import PolicyOptions, SftOptions
from ale_trainer_policy.plugin import ale_trainers


def attached(llm: Any, name: str = "policy", **fields: Any) -> Any:
    component = next(one for one in ale_trainers() if one.name == name)
    options = (PolicyOptions if name == "policy" else SftOptions)(**fields)
    trainer = component.build(options, BuildContext())
    trainer.attach(llm)
    return trainer


def test_a_sampler_that_can_not_be_scored_is_refused_before_any_step(lab: Any) -> None:
    with pytest.raises(InputError) as caught:
        attached(lab.InProcessLLM(lab.tiny_model(), top_p=0.9))
    assert [problem.path for problem in caught.value.problems] == ["llm.top_p"]
    # What is imitated was not sampled: there is nothing to follow.
    attached(lab.InProcessLLM(lab.tiny_model(), top_p=0.9), "sft")


async def test_the_temperature_is_the_samplers(lab: Any) -> None:
    """What the model gives at 0.7 is no mismatch for the trainer, and would be one at 1."""
    ids, found = [1, 2, 7, 8, 9], {}
    for temperature in (0.7, 1.0):
        llm = lab.InProcessLLM(lab.tiny_model(), temperature=0.7)
        with torch.no_grad():
            scores = (llm.policy.model(torch.tensor([ids])).logits[0] / temperature).log_softmax(-1)
        logps = [float(scores[at, ids[at + 1]]) for at in range(1, 4)]
        turn = lab.TokenTurn(prompt=ids[:2], output=ids[2:], logps=logps)
        batch = lab.batch_of(lab.credited(lab.TokenEpisode(turns=[turn])))
        found[temperature] = (await attached(llm).step(batch)).metrics
    assert found[0.7]["mismatch_max"] == pytest.approx(1.0, abs=1e-4)
    assert abs(found[1.0]["mismatch_max"] - 1.0) > 0.05


@pytest.mark.parametrize("critic", [None, CriticOptions(type="model")])
def test_a_copy_is_trained_where_the_component_says(lab: Any, critic: CriticOptions | None) -> None:
    llm = lab.InProcessLLM(lab.tiny_model())
    llm.training_device = "meta"
    trainer = attached(llm, sync="copy", critic=critic, objective="grpo")
    parts = trainer._learner.model, trainer._reference.model, trainer._learner.critic
    trained = [each for part in parts if part is not None for each in part.parameters()]
    assert {each.device.type for each in trained} == {"meta"}
    assert {each.device.type for each in llm.policy.model.parameters()} == {"cpu"}
