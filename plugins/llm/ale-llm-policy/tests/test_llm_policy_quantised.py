"""Weights in 4 bits: loaded so, sampled exactly, and refused where they can't be."""

import os
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch

from ale.errors import InputError
from ale.plugin import BuildContext
from ale_llm_policy.build import build
from ale_llm_policy.model import PolicyLLM
from ale_llm_policy.modules import Modules
from ale_llm_policy.options import PolicyOptions, ServersOptions
from ale_llm_policy.pretrained import TorchPolicy
from ale_llm_policy.testing import forward_logits, request


@pytest.fixture
def folder(policy: TorchPolicy, tmp_path: Path) -> str:
    policy.save(tmp_path / "base")
    return str(tmp_path / "base")


@pytest_asyncio.fixture
async def quantised(folder: str) -> AsyncIterator[PolicyLLM]:
    if find_spec("bitsandbytes") is None:
        assert os.environ.get("CI") != "true", "CI must have bitsandbytes"
        pytest.skip("bitsandbytes is not installed")
    llm = build(PolicyOptions(model=folder, quantise="nf4"), BuildContext())
    yield llm
    await llm.aclose()


def values(llm: PolicyLLM) -> dict[str, torch.Tensor]:
    return {name: each.detach().clone() for name, each in llm.policy.model.named_parameters()}


async def test_answers_have_the_probabilities_of_the_models_own_forward_pass(
    quantised: PolicyLLM, policy: TorchPolicy
) -> None:
    before = values(quantised)
    found = (await quantised.complete(request("list"))).tokens
    assert found is not None
    prompt, output = found.prompt_ids, found.output_ids
    ids = torch.tensor(output)[:, None]
    meant = forward_logits(quantised.policy, prompt, output).log_softmax(-1).gather(1, ids)[:, 0]
    torch.testing.assert_close(torch.tensor(found.logprobs), meant, atol=1e-4, rtol=0)
    whole = forward_logits(policy, prompt, output).log_softmax(-1).gather(1, ids)[:, 0]
    assert (whole - meant).abs().max() > 1e-2, "4 bits are another policy than whole weights"
    after = values(quantised)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_linear_layers_are_in_4_bits_and_another_model_to_a_checkpoint(
    quantised: PolicyLLM, policy: TorchPolicy
) -> None:
    assert isinstance(quantised.engine._model, Modules)
    layer = quantised.policy.base.model.layers[0].mlp.up_proj
    assert layer.weight.dtype == torch.uint8
    assert layer.weight.numel() * 2 == policy.base.model.layers[0].mlp.up_proj.weight.numel()
    assert quantised.policy.dtype == torch.float32
    assert quantised.policy.fingerprint != policy.fingerprint
    with pytest.raises(InputError, match="shape"):
        quantised.policy.load_weights(dict(policy.base.named_parameters()))


def test_without_the_extra_it_is_named(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(InputError, match="need bitsandbytes, not installed") as refused:
        build(PolicyOptions(model=folder, quantise="nf4"), BuildContext())
    (problem,) = refused.value.problems
    assert problem.path == "llm.quantise"
    assert "pip install 'ale-llm-policy[qlora]'" in str(problem.hint)


@pytest.mark.usefixtures("quantised")
def test_a_packed_copy_is_refused(folder: str) -> None:
    with pytest.raises(InputError, match="can't be packed"):
        build(PolicyOptions(model=folder, quantise="nf4", decoder="packed"), BuildContext())


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (PolicyOptions, {}, "'quantise' needs 'model'"),
        (ServersOptions, {"model": "m", "start": 1}, "servers are given whole weights"),
    ],
)
def test_a_model_that_is_made_and_servers_have_whole_weights(
    kind: Any, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kind(quantise="nf4", **fields)
