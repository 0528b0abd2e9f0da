"""The contract kit, for both decoders, and what is offered."""

from collections.abc import Callable

import pytest
import torch

from ale.errors import InputError
from ale.plugin import BuildContext
from ale.protocols import TrainablePolicy
from ale.testing.policy import TrainablePolicyContract
from ale_llm_policy.model import PolicyLLM
from ale_llm_policy.options import PolicyOptions, TinyOptions
from ale_llm_policy.plugin import ale_llms, probe

TINY = TinyOptions(layers=1, width=32, heads=2, kv_heads=1, head_dim=16, mlp=32, vocabulary=330)


def build(**options: object) -> TrainablePolicy:
    return ale_llms()[0].build(PolicyOptions(tiny=TINY, **options), BuildContext(seed=1))


class TestPacked(TrainablePolicyContract):
    @pytest.fixture
    def make_policy(self) -> Callable[[], TrainablePolicy]:
        return lambda: build(max_tokens=32)


class TestModules(TrainablePolicyContract):
    @pytest.fixture
    def make_policy(self) -> Callable[[], TrainablePolicy]:
        return lambda: build(max_tokens=32, decoder="modules")


def test_who_only_checks_a_config_takes_no_memory_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ale_llm_policy.build.resolve_device", lambda *_, **__: torch.device("cuda")
    )
    llm = ale_llms()[0].build(PolicyOptions(tiny=TINY), BuildContext(checking=True))
    assert isinstance(llm, PolicyLLM)
    assert (llm.policy.device.type, llm.policy.dtype) == ("cpu", torch.bfloat16)


def test_torch_is_found_without_importing_it() -> None:
    assert probe().usable


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "x", "tiny": TINY}, "not both"),
        ({"stop": ("",)}, "empty text"),
        ({"top_p": 0.0}, "top_p"),
        ({"temperature": -1.0}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_options_that_make_no_sense_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PolicyOptions(**fields)


def test_a_tiny_model_without_a_corpus_to_read_is_refused() -> None:
    from pathlib import Path

    component = ale_llms()[0]
    options = PolicyOptions(tiny=TinyOptions(corpus=Path("no-such-file.txt")))
    with pytest.raises(InputError, match="no-such-file"):
        component.build(options, BuildContext())
