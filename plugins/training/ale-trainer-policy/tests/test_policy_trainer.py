"""The trainers as a run uses them: steps, versions, checkpoints, and what goes wrong."""

import asyncio
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from ale.errors import AleError, InputError, StoreError
from ale.plugin import BuildContext
from ale.protocols import Trainer
from ale.runs import Registry, read_choice
from ale.strict import from_plain, parse_yaml
from ale.testing.trainer import (
    BackgroundSaverContract,
    CriticTrainerContract,
    TrainerContract,
    credited_batch,
)
from ale.types import Batch
from ale_trainer_policy.critic_options import CriticOptions
from ale_trainer_policy.imitation_options import ImitationOptions
from ale_trainer_policy.metrics import NAMES
from ale_trainer_policy.options import (
    PRESETS,
    LoraOptions,
    ObjectiveOptions,
    PolicyOptions,
    SftOptions,
)
from ale_trainer_policy.plugin import ale_trainers

COMPONENTS = {component.name: component for component in ale_trainers()}
TIMINGS = ("seconds", "tokens_per_second")


def build(name: str = "policy", *, folder: Path | None = None, seed: int = 0, **fields: Any) -> Any:
    options = (PolicyOptions if name == "policy" else SftOptions)(**{"lr": 1e-3, **fields})
    return COMPONENTS[name].build(options, BuildContext(run_directory=folder, seed=seed))


def attached(llm: Any, name: str = "policy", **fields: Any) -> Any:
    trainer = build(name, **fields)
    trainer.attach(llm)
    return trainer


class _Contract(TrainerContract):
    timings = TIMINGS
    fields: dict[str, Any]
    name = "policy"

    @pytest.fixture
    def make_trainer(self, make_llm: Callable[..., Any], tmp_path: Path) -> Callable[[], Trainer]:
        return lambda: attached(make_llm(), self.name, folder=tmp_path, **self.fields)

    @pytest.fixture
    def make_unattached(self, tmp_path: Path) -> Callable[[], Trainer]:
        return lambda: build(self.name, folder=tmp_path, **self.fields)


class TestIpa(_Contract):
    fields = {"kl_to_start": "metric"}  # noqa: RUF012


class TestGrpoInMinibatches(_Contract):
    fields = {"objective": "grpo", "epochs": 2, "minibatches": 2}  # noqa: RUF012


class TestKeptVersions(_Contract):
    fields = {"old_policy": "rollout_version", "objective": "topr"}  # noqa: RUF012


class TestACopyWithAdapters(_Contract, BackgroundSaverContract):
    fields = {  # noqa: RUF012
        "sync": "copy",
        "saving": "background",
        "lora": LoraOptions(r=2, dropout=0.1),
    }

    @pytest.fixture(autouse=True)
    def seeded(self) -> None:
        torch.manual_seed(0)


class TestCriticHead(_Contract, CriticTrainerContract):
    fields = {"objective": "ppo", "critic": CriticOptions(type="head"), "epochs": 2}  # noqa: RUF012


class TestCriticModel(_Contract, CriticTrainerContract):
    fields = {"objective": "ppo", "critic": CriticOptions(type="model")}  # noqa: RUF012


class TestSft(_Contract):
    name = "sft"
    fields = {"packing": "padded"}  # noqa: RUF012


def parameters(model: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in model.parameters()])


async def test_a_step_changes_the_model_that_samples(make_llm: Callable[..., Any]) -> None:
    llm = make_llm()
    trainer = attached(llm)
    before = parameters(llm.policy.model)
    report = await trainer.step(credited_batch(0))
    assert (report.policy_version, trainer.snapshot().version) == (1, 1)
    assert trainer.snapshot().weights is None
    assert not torch.equal(parameters(llm.policy.model), before)
    assert not llm.policy.model.training


async def test_a_step_raises_what_was_good_and_lowers_what_was_bad(
    make_llm: Callable[..., Any], lab: Any
) -> None:
    llm = make_llm()
    trainer = attached(llm, objective=ObjectiveOptions(preset="ipa", mask="none"))
    good = lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1, 2], output=[3, 4])], reward=1.0)
    bad = lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1, 2], output=[5, 6])], reward=-1.0)

    def logp(ids: list[int]) -> float:
        with torch.no_grad():
            scores = llm.policy.model(torch.tensor([ids])).logits.log_softmax(-1)[0]
        return float(scores[1, ids[2]] + scores[2, ids[3]])

    before = logp([1, 2, 3, 4]), logp([1, 2, 5, 6])
    for step in range(3):
        await trainer.step(lab.batch_of(lab.credited(good, bad), step=step))
    assert logp([1, 2, 3, 4]) > before[0]
    assert logp([1, 2, 5, 6]) < before[1]


async def test_a_batch_without_signal_changes_neither_weights_nor_version(
    make_llm: Callable[..., Any], lab: Any
) -> None:
    llm = make_llm()
    trainer = attached(llm, weight_decay=0.1)
    await trainer.step(credited_batch(0))
    before = parameters(llm.policy.model)
    episode = lab.TokenEpisode(
        turns=[lab.TokenTurn(prompt=[1], output=[2])], reward=0.0, skipped="all equal"
    )
    report = await trainer.step(lab.batch_of(lab.credited(episode, episode), lab.credited()))
    assert report.policy_version == 1
    assert report.metrics["updates"] == 0.0
    assert report.metrics["trajectories_without_signal"] == 2.0
    assert report.metrics["groups_equal_rewards"] == 1.0
    assert report.metrics["groups_empty"] == 1.0
    assert report.metrics["episodes_skipped"] == 2.0
    assert "loss" not in report.metrics
    assert torch.equal(parameters(llm.policy.model), before)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"epochs": 2, "minibatches": 3, "warmup_updates": 5, "weight_decay": 0.1},
        {"lora": LoraOptions(r=2)},
        {"old_policy": "rollout_version", "sync": "copy"},
    ],
    ids=["plain", "minibatches", "lora", "versions"],
)
async def test_a_resumed_trainer_continues_equal_to_the_bit(
    make_llm: Callable[..., Any], lab: Any, tmp_path: Path, fields: dict[str, Any]
) -> None:
    def batch(step: int) -> Batch:
        return lab.batch_of(lab.random_group(step), lab.random_group(step + 9, task="u"), step=step)

    torch.manual_seed(1)
    first = attached(make_llm(), **fields)
    for step in range(2):
        await first.step(batch(step))
    first.save(tmp_path)
    expected = [(await first.step(batch(step))).metrics for step in (2, 3)]

    second = attached(make_llm(), seed=0, **fields)
    second.load(tmp_path)
    again = [(await second.step(batch(step))).metrics for step in (2, 3)]
    strip = [{k: v for k, v in m.items() if k not in TIMINGS} for m in (*expected, *again)]
    assert strip[:2] == strip[2:]
    mine, other = first._learner, second._learner
    assert all(torch.equal(a, b) for a, b in zip(mine.parameters, other.parameters, strict=True))


def test_adapters_fit_only_the_weights_that_they_were_trained_over(
    lab: Any, tmp_path: Path
) -> None:
    lora = LoraOptions(r=2)
    attached(lab.InProcessLLM(lab.tiny_model(seed=1)), sync="copy", lora=lora).save(tmp_path)
    other = attached(lab.InProcessLLM(lab.tiny_model(seed=2)), sync="copy", lora=lora)
    with pytest.raises(StoreError, match="another model"):
        other.load(tmp_path)
    attached(lab.InProcessLLM(lab.tiny_model(seed=1)), sync="copy", lora=lora).load(tmp_path)
    rounded = lab.tiny_model(seed=1).to(torch.bfloat16)
    attached(lab.InProcessLLM(rounded), sync="copy", lora=lora).load(tmp_path)


async def test_a_checkpoint_of_another_model_is_refused_by_both_names(
    lab: Any, tmp_path: Path
) -> None:
    attached(lab.InProcessLLM(lab.tiny_model(), fingerprint="aaa111")).save(tmp_path)
    other = attached(lab.InProcessLLM(lab.tiny_model(), fingerprint="bbb222"))
    with pytest.raises(StoreError, match=r"aaa111.*bbb222"):
        other.load(tmp_path)
    adapters = attached(
        lab.InProcessLLM(lab.tiny_model(), fingerprint="aaa111"), lora=LoraOptions()
    )
    with pytest.raises(StoreError, match=r"aaa111, and this model's is aaa111\+lora"):
        adapters.load(tmp_path)
    with pytest.raises(StoreError, match="of trainer policy"):
        attached(lab.InProcessLLM(lab.tiny_model(), fingerprint="aaa111"), "sft").load(tmp_path)


async def test_a_copy_leaves_the_sampler_alone_and_hands_over_its_weights(
    make_llm: Callable[..., Any],
) -> None:
    llm = make_llm()
    trainer = attached(llm, sync="copy")
    before = parameters(llm.policy.model)
    await trainer.step(credited_batch(0))
    assert torch.equal(parameters(llm.policy.model), before)
    handed = trainer.snapshot().weights
    kept = {name: tensor.clone() for name, tensor in handed.items()}
    await trainer.step(credited_batch(1))
    assert all(torch.equal(handed[name], kept[name]) for name in kept)
    llm.policy.model.load_state_dict(handed)
    assert not torch.equal(parameters(llm.policy.model), before)


async def test_adapters_train_alone_and_are_merged_into_what_is_handed_over(
    make_llm: Callable[..., Any],
) -> None:
    torch.manual_seed(3)
    llm = make_llm()
    trainer = attached(llm, sync="copy", lora=LoraOptions(r=2, alpha=4.0), lr=0.05)
    for step in range(2):
        await trainer.step(credited_batch(step))
    ids = torch.tensor([[1, 2, 3, 10, 11]])
    with torch.no_grad():
        adapted = trainer._learner.model(ids).logits
        plain = llm.policy.model(ids).logits
        llm.policy.model.load_state_dict(trainer.snapshot().weights)
        merged = llm.policy.model(ids).logits
    assert (adapted - plain).abs().max() > 1e-3
    torch.testing.assert_close(merged, adapted, rtol=1e-4, atol=1e-4)
    assert all("lora_" in name for name in trainer._learner.policy_trained.names)


def test_a_layer_that_is_not_there_is_said(make_llm: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match=r"trainer\.lora\.target"):
        attached(make_llm(), lora=LoraOptions(target=("no_such_layer",)))


REGISTRY = Registry.installed()


def structured(text: str) -> PolicyOptions:
    section = parse_yaml(text)
    assert section.mapping is not None
    node = from_plain({"type": "policy", **section.plain()})
    options: PolicyOptions = read_choice(node, "trainer", REGISTRY)
    return options


@pytest.mark.parametrize("key", ["type", "preset"])
def test_an_objective_is_a_name_or_a_preset_with_parts_replaced(key: str) -> None:
    assert structured("objective: grpo").objective == PRESETS["grpo"]
    assert structured("{}").objective == PRESETS["ipa"]
    chosen = structured(f"objective: {{{key}: ipa, mask_threshold: 3}}").objective
    assert chosen == evolve(PRESETS["ipa"], mask_threshold=3.0)
    assert structured("lora: {r: 4, target: [q_proj]}").lora == LoraOptions(r=4, target=("q_proj",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("objective: gprpo", "did you mean 'grpo'"),
        ("objective: {mask_threshold: 3}", "trainer.objective.type: 'type' is missing"),
        ("objective: {type: ipa, preset: grpo}", "'preset' is another word for 'type'"),
        ("objective: {type: ipa, clip_low: 0.1}", "'clip_low' is without effect in ipa"),
        ("objective: {preset: ipa, treshold: 3}", "trainer.objective.treshold: unknown option"),
        ("objective: {preset: ipa, mask_threshold: 0}", "trainer.objective.mask_threshold"),
        ("{processes: 2}", "needs sync: copy"),
        ("betas: [0.9, 1.0]", "trainer.betas"),
    ],
)
def test_a_mistake_in_the_options_is_named(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        structured(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_run_without_a_model_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="needs section 'llm'"):
        build(name).attach(None)


async def test_without_a_model_there_is_no_step() -> None:
    with pytest.raises(AleError, match="call attach first"):
        await build().step(credited_batch(0))


async def test_three_non_finite_losses_in_a_row_end_the_run_with_the_batchs_path(
    make_llm: Callable[..., Any], tmp_path: Path
) -> None:
    llm = make_llm()
    trainer = attached(llm, folder=tmp_path)
    await trainer.step(credited_batch(0))
    before = parameters(llm.policy.model)
    with torch.no_grad():
        weight = llm.policy.model.model.norm.weight
        kept = weight.clone()
        weight.fill_(math.nan)
    for step in (1, 2):
        report = await trainer.step(credited_batch(step))
        assert (report.metrics["steps_skipped"], report.metrics["updates"]) == (1.0, 0.0)
        assert report.policy_version == 1
        assert all(map(math.isfinite, report.metrics.values()))
    with pytest.raises(AleError, match=r"3 steps in a row.*step-00003\.json"):
        await trainer.step(credited_batch(3))
    stored = json.loads((tmp_path / "bad_batches" / "step-00003.json").read_text())
    assert stored["step"] == 3
    assert len(stored["groups"]) == 2
    with torch.no_grad():
        weight.copy_(kept)
    assert torch.equal(parameters(llm.policy.model), before)


async def test_a_finite_step_resets_the_count_of_bad_ones(
    make_llm: Callable[..., Any], tmp_path: Path
) -> None:
    llm = make_llm()
    trainer = attached(llm, folder=tmp_path)
    weight = llm.policy.model.model.norm.weight
    for step in range(6):
        with torch.no_grad():
            kept = weight.clone()
            if step % 3:
                weight.fill_(math.nan)
        report = await trainer.step(credited_batch(step))
        assert report.metrics["steps_skipped"] == float(bool(step % 3))
        if step % 3:
            with torch.no_grad():
                weight.copy_(kept)


async def test_a_step_does_not_block_the_event_loop(make_llm: Callable[..., Any], lab: Any) -> None:
    trainer = attached(make_llm(num_hidden_layers=8, hidden_size=64))
    groups = [lab.random_group(i, task=f"t{i}", rollouts=8) for i in range(20)]
    step = asyncio.create_task(trainer.step(lab.batch_of(*groups)))
    ticks, began = 0, time.perf_counter()
    while not step.done():
        await asyncio.sleep(0.001)
        ticks += 1
    assert ticks > 5, f"{ticks} in {time.perf_counter() - began:.2f} s"


async def test_the_norm_is_logged_before_it_is_clipped(
    make_llm: Callable[..., Any], lab: Any
) -> None:
    """AdamW hides the scale, so what is clipped is read from its first moment."""
    batch = lab.batch_of(lab.random_group(1))
    loose = attached(make_llm(), max_grad_norm=None)
    tight = attached(make_llm(), max_grad_norm=0.01)
    norms = [(await t.step(batch)).metrics["grad_norm"] for t in (loose, tight)]
    assert norms[0] == pytest.approx(norms[1])
    assert norms[0] > 0.1
    moments = tight._learner.policy_trained.optimizer.state.values()
    clipped = math.sqrt(sum(float((m["exp_avg"] / 0.1).square().sum()) for m in moments))
    assert clipped == pytest.approx(0.01, rel=1e-4)


async def test_the_rate_grows_over_the_first_updates(make_llm: Callable[..., Any]) -> None:
    trainer = attached(make_llm(), lr=0.01, warmup_updates=4)
    rates = [(await trainer.step(credited_batch(s))).metrics["lr"] for s in range(5)]
    assert rates == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01])


async def test_the_rate_stays_and_falls_to_a_share_of_it(make_llm: Callable[..., Any]) -> None:
    schedule = {"warmup_updates": 1, "stable_updates": 2, "decay_updates": 4, "decay_to": 0.2}
    trainer = attached(make_llm(), lr=0.01, **schedule)
    rates = [(await trainer.step(credited_batch(s))).metrics["lr"] for s in range(9)]
    assert rates == pytest.approx([0.01, 0.01, 0.01, 0.008, 0.006, 0.004, 0.002, 0.002, 0.002])


async def test_with_one_update_and_recompute_every_ratio_is_one(
    make_llm: Callable[..., Any], lab: Any
) -> None:
    batch = lab.batch_of(lab.random_group(1))
    once = await attached(make_llm(), lr=0.01).step(batch)
    assert (once.metrics["ratio_min"], once.metrics["ratio_max"]) == (1.0, 1.0)
    twice = await attached(make_llm(), lr=0.01, epochs=3).step(batch)
    assert twice.metrics["updates"] == 3.0
    assert twice.metrics["ratio_max"] > 1.0


async def test_the_samplers_own_numbers_can_be_the_old_policy(
    make_llm: Callable[..., Any], lab: Any
) -> None:
    batch = lab.batch_of(lab.random_group(1))
    report = await attached(make_llm(), old_policy="rollout_engine").step(batch)
    assert report.metrics["mismatch_max"] == 1.0
    assert report.metrics["masked_fraction"] == 0.0
    assert report.metrics["ratio_max"] != 1.0


async def test_old_versions_are_the_weights_that_sampled_the_tokens(
    make_llm: Callable[..., Any], lab: Any
) -> None:
    """Tokens of version 0, trained on at version 2, have the ratio of the two."""
    llm = make_llm()
    fields = {"old_policy": "rollout_version", "objective": "token-tis", "lr": 0.01}
    trainer = attached(llm, **fields, keep_versions=2)
    episodes = [
        lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1, 2], output=[3, 4])], reward=r)
        for r in (1, -1)
    ]

    def logp() -> torch.Tensor:
        with torch.no_grad():
            scores = llm.policy.model(torch.tensor([[1, 2, 3, 4]])).logits.log_softmax(-1)[0]
        return torch.stack([scores[1, 3], scores[2, 4]])

    before = logp()
    await trainer.step(lab.batch_of(lab.credited(episodes[0])))
    ratios = torch.exp(logp() - before)
    report = await trainer.step(lab.batch_of(lab.credited(episodes[1])))
    assert report.metrics["ratio_min"] == pytest.approx(float(ratios.min()), rel=1e-4)
    assert report.metrics["ratio_max"] == pytest.approx(float(ratios.max()), rel=1e-4)
    with pytest.raises(AleError, match=r"version 0, and only 1, 2 are stored.*keep_versions"):
        await trainer.step(lab.batch_of(lab.credited(episodes[1])))


async def test_a_forced_beginning_is_imitated_and_the_rest_reinforced(
    make_llm: Callable[..., Any], lab: Any
) -> None:
    turns = [
        lab.TokenTurn(prompt=[1], output=[2, 3], forced=True),
        lab.TokenTurn(prompt=[1, 2, 3, 9], output=[4]),
    ]
    batch = lab.batch_of(lab.credited(lab.TokenEpisode(turns=turns, reward=-1.0)))
    options = ImitationOptions(when="always", weight=0.5)
    metrics = (await attached(make_llm(), imitation=options).step(batch)).metrics
    assert metrics["tokens_trained"] == 3.0
    assert metrics["loss_imitation"] > 0
    off = ImitationOptions(when="off")
    metrics = (await attached(make_llm(), imitation=off).step(batch)).metrics
    assert (metrics["tokens_trained"], metrics["loss_imitation"]) == (1.0, 0.0)


async def test_imitation_has_its_own_epochs_and_learning_rate(
    make_llm: Callable[..., Any], lab: Any
) -> None:
    options = ImitationOptions(when="always", epochs=3, lr=0.04)
    trainer = attached(make_llm(), imitation=options, epochs=2, lr=0.01, warmup_updates=4)
    forced = lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1, 2], output=[7, 8, 9], forced=True)])
    report = await trainer.step(lab.batch_of(lab.credited(forced)))
    assert (report.metrics["updates"], report.metrics["lr"]) == (3.0, pytest.approx(0.03))
    turn = lab.TokenTurn(prompt=[1, 2], output=[7, 8, 9], logps=[-0.1] * 3)  # as likely as now
    report = await trainer.step(lab.batch_of(lab.credited(lab.TokenEpisode(turns=[turn])), step=1))
    assert (report.metrics["updates"], report.metrics["lr"]) == (2.0, 0.01)
    for group in trainer._attached()[0].policy_trained.optimizer.param_groups:
        assert group["lr"] == 0.01


async def test_imitation_learns_the_episode(make_llm: Callable[..., Any], lab: Any) -> None:
    llm = make_llm()
    trainer = attached(llm, "sft", lr=0.01)
    episode = lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1, 2], output=[7, 8, 9], forced=True)])
    losses = []
    for step in range(40):
        report = await trainer.step(lab.batch_of(lab.credited(episode), step=step))
        losses.append(report.metrics["loss"])
    assert losses[-1] < 0.05 < losses[0]
    with torch.no_grad():
        greedy = llm.policy.model(torch.tensor([[1, 2, 7, 8]])).logits[0, 1:].argmax(-1)
    assert greedy.tolist() == [7, 8, 9]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
async def test_half_precision_learns_the_same(
    make_llm: Callable[..., Any], lab: Any, dtype: torch.dtype
) -> None:
    """A model kept in bf16 is updated through fp32 copies: steps below its resolution add up."""
    llm = make_llm()
    llm.policy.model.to(dtype)
    trainer = attached(llm, "sft", precision="bf16", lr=1e-3, packing="padded")
    episode = lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1, 2], output=[7, 8, 9])])
    losses = [
        (await trainer.step(lab.batch_of(lab.credited(episode), step=s))).metrics["loss"]
        for s in range(30)
    ]
    assert losses[-1] < 0.5 * losses[0]


async def test_metrics_have_the_names_of_the_readme(make_llm: Callable[..., Any], lab: Any) -> None:
    fields = {"kl_to_start": "metric", "imitation": ImitationOptions(when="always")}
    report = await attached(make_llm(), **fields).step(lab.batch_of(lab.random_group(1)))
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    assert {name for name in report.metrics if f"`{name}`" not in readme} == set()
    section = readme.partition("## Metrics")[2].partition("## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    listed = {name.strip(" `") for row in rows for name in row.split(",")}
    assert listed == set(NAMES)
