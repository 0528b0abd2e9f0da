"""What can't be trained is refused where the trainer is built: before the run."""

import multiprocessing
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from attrs import evolve
from peft import inject_adapter_in_model

from ale.errors import InputError
from ale.plugin import BuildContext
from ale.runs import Registry, read_choice
from ale.strict import from_plain, parse_yaml, structure
from ale_trainer_policy.build import policy_trainer
from ale_trainer_policy.engines import check_engine
from ale_trainer_policy.options import CorrectionOptions, PolicyOptions
from ale_training.lora import LoraOptions, lora_config


def test_too_few_stored_versions_for_the_staleness_are_refused_before_the_run() -> None:
    options = PolicyOptions(old_policy="rollout_version", sync="copy")
    with pytest.raises(InputError) as caught:
        policy_trainer(options, BuildContext(staleness=4))
    (problem,) = caught.value.problems
    assert problem.path == "trainer.keep_versions"
    assert problem.expected == "at least 5"
    assert "run.staleness is 4" in problem.message
    assert "4 are stored" in problem.message
    policy_trainer(options, BuildContext(staleness=3))
    policy_trainer(evolve(options, keep_versions=5), BuildContext(staleness=4))


def test_stored_versions_are_refused_where_a_slow_group_may_be_older_than_them() -> None:
    options = PolicyOptions(sync="copy", old_policy="rollout_version", keep_versions=9)
    policy_trainer(options, BuildContext(staleness=1))
    with pytest.raises(InputError, match="older than any number") as caught:
        policy_trainer(options, BuildContext(staleness=1, exceeds_staleness=True))
    assert caught.value.problems[0].path == "trainer.old_policy"


@pytest.mark.parametrize("old_policy", [None, "recompute"])
def test_staleness_without_a_chosen_correction_is_refused(old_policy: Any) -> None:
    options = PolicyOptions(sync="copy", old_policy=old_policy)
    with pytest.raises(InputError) as caught:
        policy_trainer(options, BuildContext(staleness=2))
    (problem,) = caught.value.problems
    assert problem.path == "trainer.correction"
    assert "no objective's importance ratio corrects for staleness" in problem.message
    assert problem.expected == (
        "truncate, mask or reject; or trainer.old_policy: rollout_version, with keep_versions at "
        "least 3, or rollout_engine"
    )
    policy_trainer(options, BuildContext())
    policy_trainer(evolve(options, correction="truncate"), BuildContext(staleness=2))


@pytest.mark.parametrize(
    ("old_policy", "correction", "staleness", "warnings"),
    [
        ("recompute", "none", 1, 1),
        (None, "none", 1, 1),
        ("recompute", "none", 0, 0),
        ("recompute", "mask", 1, 0),
        ("rollout_version", "none", 1, 0),
        ("rollout_version", None, 1, 0),
        ("rollout_engine", None, 1, 0),
    ],
)
def test_staleness_with_an_explicit_correction_of_none_is_a_warning(
    old_policy: Any,
    correction: Any,
    staleness: int,
    warnings: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = PolicyOptions(sync="copy", old_policy=old_policy, correction=correction)
    policy_trainer(options, BuildContext(staleness=staleness))
    assert caplog.text.count("no objective's importance ratio corrects for staleness") == warnings


@pytest.mark.parametrize(
    ("old_policy", "correction", "same", "warnings"),
    [
        (None, "none", False, 1),
        ("rollout_version", "none", False, 1),
        (None, "truncate", False, 0),
        ("rollout_engine", None, False, 0),
        (None, None, None, 1),
        (None, "mask", None, 0),
        (None, None, True, 0),
    ],
)
def test_a_sampler_in_another_engine_without_a_correction_is_a_warning_where_that_was_chosen(
    old_policy: Any,
    correction: Any,
    same: bool | None,
    warnings: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    llm: Any = SimpleNamespace(same_engine=same)
    check_engine(llm, PolicyOptions(old_policy=old_policy, correction=correction))
    assert caplog.text.count("no objective's importance ratio corrects for that") == warnings


@pytest.mark.parametrize("old_policy", [None, "recompute", "rollout_version"])
def test_a_sampler_in_another_engine_without_a_chosen_correction_is_refused(
    old_policy: Any,
) -> None:
    llm: Any = SimpleNamespace(same_engine=False)
    with pytest.raises(InputError, match="sampled in another engine than the trainer's") as caught:
        check_engine(llm, PolicyOptions(old_policy=old_policy))
    assert [problem.path for problem in caught.value.problems] == ["trainer.correction"]


def test_all_problems_with_staleness_are_reported_at_once() -> None:
    options = PolicyOptions(old_policy="rollout_version", sync="same", keep_versions=1)
    with pytest.raises(InputError) as caught:
        policy_trainer(options, BuildContext(staleness=1))
    paths = [problem.path for problem in caught.value.problems]
    assert paths == ["trainer.sync", "trainer.keep_versions"]


def test_a_correction_of_the_samplers_own_numbers_is_refused() -> None:
    options = PolicyOptions(old_policy="rollout_engine", correction="truncate")
    with pytest.raises(InputError, match="correction: truncate changes nothing") as caught:
        policy_trainer(options, BuildContext())
    assert [problem.path for problem in caught.value.problems] == ["trainer.correction"]
    policy_trainer(evolve(options, correction="none"), BuildContext())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "truncate", "floor": 0.5}, "'floor' is of mask and reject; truncate has none"),
        ({"method": "mask", "floor": 3.0}, "'floor' is 3, above the cap of 2"),
        ({"method": "reject", "cap": 0.5}, r"'floor' is 2 \(1 / cap\), above the cap of 0.5"),
    ],
)
def test_bounds_that_exclude_each_other_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CorrectionOptions(**fields)


@pytest.mark.parametrize("fields", [{"stable_updates": 9}, {"decay_to": 0.0}, {"decay_to": 0.5}])
def test_parts_of_a_decay_that_never_comes_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"'{next(iter(fields))}' needs decay_updates"):
        PolicyOptions(**fields)
    assert PolicyOptions(decay_updates=4, **fields).decay_updates == 4


def test_a_check_starts_no_ranks_and_finds_what_a_run_would(lab: Any) -> None:
    options, checking = PolicyOptions(sync="copy", processes=2), BuildContext(checking=True)
    policy_trainer(options, checking).attach(lab.InProcessLLM(lab.tiny_model()))
    assert multiprocessing.active_children() == []
    impossible = evolve(options, lora=LoraOptions(target=("odd",)))
    with pytest.raises(InputError, match=r"trainer\.lora\.target"):
        policy_trainer(impossible, checking).attach(lab.InProcessLLM(lab.tiny_model()))


@pytest.mark.parametrize(
    ("objective", "minibatches", "warned"),
    [("reinforce", 2, True), ("reinforce", 1, False), ("ipa", 2, False), ("grpo", 2, False)],
)
def test_several_updates_without_any_ratio_are_a_warning(
    objective: Any, minibatches: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    policy_trainer(PolicyOptions(objective=objective, minibatches=minibatches), BuildContext())
    assert ("has no importance ratio" in caplog.text) == warned


@pytest.mark.parametrize("options", [PolicyOptions(), PolicyOptions(lora=LoraOptions(r=2))])
def test_a_model_that_was_loaded_with_adapters_is_refused(options: Any, lab: Any) -> None:
    model = lab.tiny_model()
    inject_adapter_in_model(lora_config(LoraOptions(r=2)), model)
    with pytest.raises(InputError, match=r"llm\.model: the model has adapters already"):
        policy_trainer(options, BuildContext()).attach(lab.InProcessLLM(model))


def test_a_layer_that_can_have_no_adapters_is_refused(lab: Any) -> None:
    model = lab.tiny_model()
    model.odd = torch.nn.Bilinear(2, 2, 2)
    options = PolicyOptions(lora=LoraOptions(target=("odd",)))
    with pytest.raises(InputError, match=r"trainer\.lora\.target: .*Bilinear.* not supported"):
        policy_trainer(options, BuildContext()).attach(lab.InProcessLLM(model))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("objective: {preset: ppo, kl: {coefficient: 0.1, to: reference}}", "need each other"),
        ("correction: {method: mask, cap: 0.5}", "'floor' is 2 (1 / cap), above the cap of 0.5"),
        ("{old_policy: rollout_version, sync: copy, processes: 2}", "needs processes: 1"),
    ],
)
def test_options_that_contradict_a_default_are_refused(text: str, message: str) -> None:
    given = parse_yaml(text).plain()
    with pytest.raises(InputError) as caught:
        read_choice(from_plain({"type": "policy", **given}), "trainer", Registry.installed())
    assert message in str(caught.value)


def test_a_correction_without_a_floor_takes_any_cap() -> None:
    read = structure(parse_yaml("correction: {method: truncate, cap: 0.5}"), PolicyOptions)
    assert read.correction == CorrectionOptions(method="truncate", cap=0.5)
