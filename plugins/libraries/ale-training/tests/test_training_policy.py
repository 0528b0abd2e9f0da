"""Which models a trainer takes, and at which temperature it scores what they sampled."""

from typing import Any

import pytest

from ale.errors import InputError
from ale.protocols import TrainablePolicy, missing
from ale.types import LLMCapabilities, Sampling
from ale_training.policy import attach, sampled_temperature, trainable
from ale_training.testing import InProcessLLM


class Served:
    def __init__(self, *, token_ids: bool) -> None:
        self.capabilities = LLMCapabilities(token_ids=token_ids, logprobs=token_ids)


@pytest.mark.parametrize(
    ("llm", "message"),
    [
        (None, "needs section 'llm'"),
        (Served(token_ids=False), "Served gives no token ids"),
        (Served(token_ids=True), "Served can't be trained in this process: it lacks 'aclose', "),
    ],
    ids=["none", "no-ids", "elsewhere"],
)
def test_a_model_that_can_not_be_trained_is_refused_with_a_way_out(llm: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        trainable(llm)
    [problem] = caught.value.problems
    assert problem.path == "trainer.type"
    assert problem.expected
    assert problem.hint


MEMBERS = [each for each in missing(object(), TrainablePolicy) if each != "capabilities"]


@pytest.mark.parametrize("name", MEMBERS)
def test_a_missing_member_is_named(name: str) -> None:
    able = LLMCapabilities(token_ids=True)
    mine: Any = type("Mine", (), {**dict.fromkeys(MEMBERS), "capabilities": able})
    assert trainable(mine())
    delattr(mine, name)
    with pytest.raises(InputError, match=f"the model Mine can't be trained .* lacks '{name}' of"):
        trainable(mine())


def test_a_policy_that_does_not_take_weights_in_this_way_is_refused() -> None:
    llm = InProcessLLM("model")
    attach(llm, "tensors")
    llm.hand_overs = frozenset(("in-place",))
    with pytest.raises(InputError, match="as tensors, which the model InProcessLLM does not take"):
        attach(llm, "tensors")


@pytest.mark.parametrize(
    ("sampling", "given", "path"),
    [
        ({"top_p": 0.9}, None, "llm.top_p"),
        ({"temperature": 0.0}, None, "llm.temperature"),
        ({"temperature": 0.7}, 1.0, "trainer.temperature"),
    ],
)
def test_a_sampler_that_can_not_be_scored_is_refused_unless_no_ratio_is_taken(
    sampling: dict[str, float], given: float | None, path: str
) -> None:
    llm: Any = InProcessLLM("model", **sampling)
    with pytest.raises(InputError) as caught:
        sampled_temperature(given, llm)
    assert [problem.path for problem in caught.value.problems] == [path]
    assert sampled_temperature(given, llm, uses_ratio=False) == 1.0


def test_the_temperature_is_the_samplers_or_the_given_one_where_it_states_none() -> None:
    llm: Any = InProcessLLM("model", temperature=0.7)
    assert sampled_temperature(None, llm) == 0.7
    assert sampled_temperature(0.7, llm) == 0.7
    llm.sampling = Sampling()
    with pytest.raises(InputError, match="does not state its sampling temperature"):
        sampled_temperature(None, llm)
    assert sampled_temperature(0.5, llm) == 0.5
