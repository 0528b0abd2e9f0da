"""What this package calls of the SDK, by signature: a new version that changes it is seen here."""

import inspect
from collections.abc import Callable
from importlib.metadata import requires, version
from typing import Any, get_args

import pytest
import tinker
from packaging.requirements import Requirement
from tinker import types

import ale_tinker.plugin
from ale.plugin import Component
from ale.testing.sdk import SdkContract
from ale_tinker.losses import ServiceLoss, chosen
from ale_tinker.options import Loss, TrainerOptions

CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    (tinker.ServiceClient, (), {"api_key": "tml-a", "base_url": None}),
    (tinker.ServiceClient.create_sampling_client, (None,), {"base_model": "a"}),
    (tinker.ServiceClient.create_sampling_client, (None,), {"model_path": "tinker://a"}),
    (tinker.ServiceClient.create_lora_training_client, (None, "a"), {"rank": 8, "seed": 0}),
    (tinker.ServiceClient.create_training_client_from_state_with_optimizer, (None, "a"), {}),
    (tinker.ServiceClient.close, (None, "success"), {}),
    (tinker.TrainingClient.forward_backward, (None, [], "ppo", {}), {}),
    (tinker.TrainingClient.forward_backward_custom, (None, [], print), {}),
    (tinker.TrainingClient.optim_step, (None, tinker.AdamParams()), {}),
    (tinker.TrainingClient.save_weights_for_sampler, (None, "a"), {}),
    (tinker.TrainingClient.save_state, (None, "a"), {}),
    (
        tinker.SamplingClient.sample,
        (None,),
        {"prompt": None, "num_samples": 1, "sampling_params": None},
    ),
    (tinker.SamplingClient.compute_logprobs, (None, None), {"prompt_logprobs_last_n": 1}),
    (tinker.ModelInput.from_ints, ([1],), {}),
    (tinker.TensorData.from_numpy, (None,), {}),
    (tinker.Datum, (), {"model_input": None, "loss_fn_inputs": {}}),
]


@pytest.mark.parametrize(
    ("called", "arguments", "named"),
    CALLS,
    ids=[getattr(each[0], "__qualname__", "") for each in CALLS],
)
def test_each_call_fits_the_installed_sdk(
    called: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    inspect.signature(called).bind(*arguments, **named)
    assert not hasattr(called, "__deprecated__"), called.__deprecated__


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (types.AdamParams, {"learning_rate", "grad_clip_norm"}),
        (types.SamplingParams, {"max_tokens", "seed", "stop", "temperature", "top_p"}),
        (types.SampleResponse, {"sequences"}),
        (types.SampledSequence, {"tokens", "logprobs", "stop_reason"}),
        (types.ForwardBackwardOutput, {"loss_fn_outputs", "metrics"}),
        (types.SaveWeightsForSamplerResponse, {"path"}),
        (types.SaveWeightsResponse, {"path"}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_each_record_has_the_fields_that_are_used(record: Any, fields: set[str]) -> None:
    known = {*getattr(record, "model_fields", {}), *inspect.get_annotations(record), *dir(record)}
    assert fields - known == set()


def test_the_sdk_has_each_loss() -> None:
    names = get_args(Loss)
    assert {*names} <= {*get_args(types.LossFnType)}
    losses = [chosen(TrainerOptions(loss=each)) for each in names]
    assert [each.name for each in losses if isinstance(each, ServiceLoss)] == [*names]


def test_the_sdk_is_one_of_the_versions_that_are_asked_for() -> None:
    asked = [Requirement(each) for each in requires("ale-tinker") or ()]
    (found,) = [each for each in asked if each.name == "tinker"]
    assert found.specifier.contains(version("tinker"))


class TestSdk(SdkContract):
    plugin, sdk = ale_tinker.plugin, "tinker"
    remedy = ale_tinker.plugin.REMEDY

    @pytest.fixture
    def component(self, monkeypatch: pytest.MonkeyPatch) -> Component[Any, Any]:
        monkeypatch.setenv("TINKER_API_KEY", "tml-none")
        (found,) = ale_tinker.plugin.ale_trainers()
        return found


def test_without_a_key_the_probe_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    found = ale_tinker.plugin.probe()
    assert (found.usable, found.reason) == (False, "TINKER_API_KEY is not set")
