"""The distribution that is trained is the one that is sampled from, or the trainer refuses."""

from typing import Any

import pytest
import torch

from ale.errors import InputError
from ale.plugin import BuildContext
from ale_trainer_policy.options import PolicyOptions, SftOptions
from ale_trainer_policy.plugin import ale_trainers


def attached(llm: Any, name: str = "policy", **fields: Any) -> Any:
    component = next(one for one in ale_trainers() if one.name == name)
    options = (PolicyOptions if name == "policy" else SftOptions)(**fields)
    trainer = component.build(options, BuildContext())
    trainer.attach(llm)
    return trainer


@pytest.mark.parametrize(
    ("sampling", "fields", "path"),
    [
        ({"top_p": 0.9}, {}, "llm.top_p"),
        ({"temperature": 0.0}, {}, "llm.temperature"),
        ({"temperature": 0.7}, {"temperature": 1.0}, "trainer.temperature"),
    ],
)
def test_a_sampler_that_can_not_be_followed_is_refused_before_any_step(
    lab: Any, sampling: dict[str, float], fields: dict[str, float], path: str
) -> None:
    with pytest.raises(InputError) as caught:
        attached(lab.InProcessLLM(lab.tiny_model(), **sampling), **fields)
    assert [problem.path for problem in caught.value.problems] == [path]
    # What is imitated was not sampled: there is nothing to follow.
    attached(lab.InProcessLLM(lab.tiny_model(), **sampling), "sft", **fields)


def test_a_sampler_that_does_not_say_how_it_samples_needs_the_temperature(lab: Any) -> None:
    llm = lab.InProcessLLM(lab.tiny_model())
    del llm.sampling
    with pytest.raises(InputError, match="does not state its sampling temperature"):
        attached(llm)
    attached(llm, temperature=0.7)


async def test_the_temperature_is_the_samplers(lab: Any) -> None:
    """What the model gives at 0.7 is no mismatch for the trainer, and would be one at 1."""
    ids, found = [1, 2, 7, 8, 9], {}
    for temperature in (0.7, 1.0):
        llm = lab.InProcessLLM(lab.tiny_model(), temperature=0.7)
        with torch.no_grad():
            scores = (llm.policy.model(torch.tensor([ids])).logits[0] / temperature).log_softmax(-1)
        logps = [float(scores[at, ids[at + 1]]) for at in range(1, 4)]
        said = lab.Said(prompt=ids[:2], output=ids[2:], logps=logps)
        batch = lab.batch_of(lab.credited(lab.Played(said=[said])))
        found[temperature] = (await attached(llm).step(batch)).metrics
    assert found[0.7]["mismatch_max"] == pytest.approx(1.0, abs=1e-4)
    assert abs(found[1.0]["mismatch_max"] - 1.0) > 0.05
