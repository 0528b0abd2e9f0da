"""The trainers as a run uses them."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel

from ale.errors import AleError, InputError, StoreError
from ale.plugin import BuildContext
from ale.protocols import IgnoresDemonstrations, Trainer
from ale.testing.trainer import TrainerContract
from ale.types import Batch
from ale_trainer_trl.learning import LoraOptions
from ale_trainer_trl.learning.groups import GroupTrainer
from ale_trainer_trl.learning.learner import Learner
from ale_trainer_trl.options import DpoOptions, GrpoOptions
from ale_trainer_trl.plugin import ale_trainers

COMPONENTS = {component.name: component for component in ale_trainers()}
OPTIONS = {"dpo": DpoOptions, "grpo": GrpoOptions}


def build(name: str, *, staleness: int = 0, **fields: Any) -> Any:
    given = {"learning_rate": 1e-2, "lora": LoraOptions(r=4), **fields}
    return COMPONENTS[name].build(OPTIONS[name](**given), BuildContext(staleness=staleness))


def attached(llm: Any, name: str, **fields: Any) -> Any:
    trainer = build(name, **fields)
    trainer.attach(llm)
    return trainer


class _Contract(TrainerContract):
    timings: Sequence[str] = ("seconds",)
    name = "dpo"
    fields: dict[str, Any]

    @pytest.fixture
    def make_trainer(self, lab: Any) -> Callable[[], Trainer]:
        return lambda: attached(lab.llm(), self.name, **self.fields)

    @pytest.fixture
    def make_unattached(self) -> Callable[[], Trainer]:
        return lambda: build(self.name, **self.fields)

    @pytest.fixture
    def batch(self, lab: Any) -> Callable[[int], Batch]:
        made: Callable[[int], Batch] = lab.contrast
        return made


class TestDpo(_Contract):
    fields = {"epochs": 2}  # noqa: RUF012


class TestGrpo(_Contract):
    name = "grpo"
    fields = {"lora": LoraOptions(r=4, dropout=0.1)}  # noqa: RUF012


class TestGrpoOnCreditWithoutAdapters(_Contract):
    name = "grpo"
    fields = {"advantage": "credit", "lora": None, "learning_rate": 1e-3}  # noqa: RUF012


def copy_of(llm: Any, trainer: Any, lab: Any) -> Any:
    """A model with the weights that a trainer would hand over."""
    model = lab.make_model()
    model.load_state_dict(trainer.snapshot().weights)
    return model


def logp(model: Any, ids: Sequence[int], start: int) -> float:
    with torch.no_grad():
        scores = model(torch.tensor([ids])).logits.log_softmax(-1)[0]
    return float(sum(scores[i - 1, ids[i]] for i in range(start, len(ids))))


@pytest.mark.parametrize("name", ["dpo", "grpo"])
async def test_a_step_raises_the_best_episode_over_the_worst(name: str, lab: Any) -> None:
    llm = lab.llm()
    trainer = attached(llm, name)
    good, bad = [1, 2, 3, 20, 21, 9, 9, 40, 41, 257], [1, 2, 3, 22, 21, 9, 9, 42, 41, 257]

    def margin(model: Any) -> float:
        return logp(model, good, 3) - logp(model, bad, 3)

    before = margin(llm.policy.model)
    for step in range(3):
        report = await trainer.step(lab.contrast(step))
        assert report.policy_version == step + 1
    assert margin(copy_of(llm, trainer, lab)) > before + 0.1
    # The sampler has its own weights until it is handed these.
    assert margin(llm.policy.model) == before


def play(model: Any, prompt: Sequence[int], n: int, generator: torch.Generator) -> list[list[int]]:
    """`n` samples of four tokens, without a line of TRL."""
    ids = torch.tensor([list(prompt)] * n)
    for _ in range(4):
        with torch.no_grad():
            chances = model(ids).logits[:, -1].softmax(-1)
        ids = torch.cat([ids, torch.multinomial(chances, 1, generator=generator)], dim=1)
    return [row[len(prompt) :] for row in ids.tolist()]


@pytest.mark.parametrize("advantage", ["group", "credit"])
async def test_grpo_raises_the_reward_of_what_is_sampled(advantage: Any, lab: Any) -> None:
    """About a quarter of the tokens are liked, by a trait that all of these have in common."""
    llm = lab.llm()
    traits = llm.policy.model.get_input_embeddings().weight[:, 0]
    liked = set((traits > 0.1).nonzero().flatten().tolist())
    trainer = attached(llm, "grpo", advantage=advantage)
    generator = torch.Generator().manual_seed(0)
    means = []
    for step in range(8):
        model = copy_of(llm, trainer, lab)
        groups, rewards = [], []
        for task in (0, 1):
            prompt = [1, 2, 3 + task]
            outputs = play(model, prompt, 32, generator)
            rewards.append([sum(i in liked for i in output) / 4 for output in outputs])
            mean = float(np.mean(rewards[task]))
            episodes = [
                lab.TokenEpisode(
                    turns=[lab.TokenTurn(prompt=prompt, output=output)],
                    reward=reward,
                    weights=[4 * (reward - mean)],
                )
                for output, reward in zip(outputs, rewards[task], strict=True)
            ]
            groups.append(lab.credited(*episodes, task=f"t{task}"))
        means.append(float(np.mean(rewards)))
        await trainer.step(lab.batch_of(*groups, step=step))
    assert means[0] < 0.4
    # 512 tokens, so 0.02 is one standard error.
    assert (means[-2] + means[-1]) / 2 > means[0] + 0.1, means


async def test_a_step_does_not_change_the_global_random_state(lab: Any) -> None:
    trainer = attached(lab.llm(), "grpo")
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    expected = torch.rand(1).item(), random.random(), np.random.rand()
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    await trainer.step(lab.contrast())
    assert (torch.rand(1).item(), random.random(), np.random.rand()) == expected


async def test_a_seed_may_have_more_than_32_bits(lab: Any) -> None:
    context = BuildContext(seed=5_000_000_000)
    trainer = COMPONENTS["dpo"].build(DpoOptions(lora=LoraOptions(r=4)), context)
    trainer.attach(lab.llm())
    assert (await trainer.step(lab.contrast())).policy_version == 1


async def test_a_lack_of_memory_says_what_takes_less(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = COMPONENTS["dpo"].build(DpoOptions(lora=LoraOptions(r=4)), BuildContext())
    trainer.attach(lab.llm())
    # The allocator's own error, for an exbibyte.
    monkeypatch.setattr(torch.Tensor, "backward", lambda *_, **__: torch.empty(1 << 60))
    with pytest.raises(AleError, match=r"(?s)training step needs more memory.*trainer\.batch_size"):
        await trainer.step(lab.contrast())


async def test_a_batch_without_signal_is_no_new_version(lab: Any) -> None:
    turns = [lab.TokenTurn(prompt=[1, 2], output=[3, 4])]
    tied = lab.credited(*[lab.TokenEpisode(turns=turns, reward=0.0, weights=[0.0])] * 3)
    for name, count in (("dpo", "pairs_tied"), ("grpo", "groups_equal_rewards")):
        trainer = attached(lab.llm(), name)
        report = await trainer.step(lab.batch_of(tied))
        assert report.policy_version == 0
        assert (report.metrics[count], report.metrics["updates"]) == (1, 0)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("dpo", {}),
        ("dpo", {"pairs": "same-trajectory"}),
        ("grpo", {}),
        ("grpo", {"advantage": "credit"}),
    ],
)
async def test_nothing_is_learned_from_demonstrations_and_a_run_is_told(
    name: str, fields: dict[str, Any], lab: Any
) -> None:
    turns = [
        lab.TokenTurn(prompt=[1, 2], output=[3, 4], forced=True),
        lab.TokenTurn(prompt=[1, 2, 3, 4, 5], output=[6, 7], forced=True),
    ]
    shown = lab.credited(lab.TokenEpisode(turns=turns, reward=1.0, weights=[0.5, 1.0]))
    trainer = attached(lab.llm(), name, **fields)
    assert (await trainer.step(lab.batch_of(shown))).metrics["updates"] == 0
    assert isinstance(trainer, IgnoresDemonstrations)


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        (
            "dpo",
            {"loss": "hinge", "label_smoothing": 0.2, "beta": 0.37, "epochs": 3, "batch_size": 2},
            {
                "loss_type": ["hinge"],
                "label_smoothing": 0.2,
                "beta": 0.37,
                "num_train_epochs": 3,
                "per_device_train_batch_size": 2,
            },
        ),
        (
            "grpo",
            {
                "loss": "bnpo",
                "scale_rewards": "batch",
                "epsilon": 0.13,
                "epsilon_high": 0.29,
                "iterations": 3,
                "batch_size": 2,
            },
            {
                "loss_type": "bnpo",
                "scale_rewards": "batch",
                "epsilon": 0.13,
                "epsilon_high": 0.29,
                "num_iterations": 3,
                "max_steps": 3,
                "beta": 0.0,
                "per_device_train_batch_size": 2,
                "gradient_accumulation_steps": 3,
            },
        ),
    ],
)
async def test_each_option_reaches_trl(
    lab: Any, monkeypatch: pytest.MonkeyPatch, name: str, fields: Any, expected: Any
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(Learner, "_run_trainer", lambda _, trainer: made.append(trainer) or {})
    options = OPTIONS[name](lora=None, learning_rate=3e-4, max_grad_norm=0.6, **fields)
    trainer = COMPONENTS[name].build(options, BuildContext(seed=11))
    trainer.attach(lab.llm())
    await trainer.step(lab.contrast())
    (trl,) = made
    assert {key: getattr(trl.args, key) for key in expected} == expected
    assert (trl.args.learning_rate, trl.args.max_grad_norm, trl.args.seed) == (3e-4, 0.6, 11)
    (group,) = trl.optimizer.param_groups
    assert (group["lr"], group["weight_decay"]) == (3e-4, 0.0)
    if name == "dpo":
        own, reference = trl.model.parameters(), trl.ref_model.parameters()
        assert all(a is not b for a, b in zip(own, reference, strict=True)), "a copy"


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What TRL computes a loss of, step by step."""
    made: list[Any] = []
    score = GroupTrainer._generate_and_score_completions

    def recorded(trainer: Any, inputs: Any) -> Any:
        made.append(score(trainer, inputs))
        return made[-1]

    monkeypatch.setattr(GroupTrainer, "_generate_and_score_completions", recorded)
    return made


def answered(lab: Any, reward: float, weights: Sequence[float] = (0.0,)) -> Any:
    turn = lab.TokenTurn(prompt=[1, 2, 3], output=[20, 21])
    return lab.TokenEpisode(turns=[turn], reward=reward, weights=list(weights))


async def test_what_fills_up_a_smaller_group_counts_in_no_mean_and_in_no_loss(
    lab: Any, scored: list[Any]
) -> None:
    two = lab.credited(answered(lab, 1.0), answered(lab, 0.0))
    four = lab.credited(*(answered(lab, reward) for reward in (1.0, 0.0, 0.0, 0.0)))
    await attached(lab.llm(), "grpo", scale_rewards="none").step(lab.batch_of(two, four))
    (found,) = scored
    n_trained = (found["completion_mask"] * found["tool_mask"]).sum(dim=1).tolist()
    assert n_trained == [2, 2, 0, 0, 2, 2, 2, 2]
    own = [a for a, n in zip(found["advantages"].tolist(), n_trained, strict=True) if n]
    assert own == [0.5, -0.5, 0.75, -0.25, -0.25, -0.25]


async def test_with_credits_each_token_has_the_weight_of_its_chunk_and_not_the_groups_advantage(
    lab: Any, scored: list[Any]
) -> None:
    group = lab.credited(answered(lab, 1.0, [0.25]), answered(lab, 1.0, [-0.75]))
    await attached(lab.llm(), "grpo", advantage="credit").step(lab.batch_of(group))
    assert scored[0]["advantages"].tolist() == [[0.25, 0.25], [-0.75, -0.75]]


async def test_iterations_are_updates_on_the_same_episodes(lab: Any) -> None:
    report = await attached(lab.llm(), "grpo", iterations=3).step(lab.contrast())
    assert report.metrics["updates"] == 3
    assert report.policy_version == 1


@pytest.mark.filterwarnings("ignore:.*will be removed in v6:FutureWarning")
async def test_a_checkpoint_holds_an_adapter_that_loads_again(lab: Any, tmp_path: Path) -> None:
    llm = lab.llm()
    trainer = attached(llm, "dpo")
    await trainer.step(lab.contrast())
    trainer.save(tmp_path)
    ids = [1, 2, 3, 20, 21]
    merged = copy_of(llm, trainer, lab)
    adapted = PeftModel.from_pretrained(lab.make_model(), str(tmp_path / "adapter")).eval()
    assert logp(adapted, ids, 3) == pytest.approx(logp(merged, ids, 3), abs=1e-4)
    assert logp(adapted, ids, 3) != pytest.approx(logp(llm.policy.model, ids, 3), abs=1e-4)
    stored = json.loads((tmp_path / "trainer.json").read_text())
    assert (stored["version"], stored["updates"]) == (1, 1)
    resumed = attached(llm, "dpo")
    resumed.load(tmp_path)
    resumed.save(tmp_path / "again")
    again = json.loads((tmp_path / "again" / "trainer.json").read_text())
    assert (again["version"], again["updates"]) == (1, 1)


async def test_a_checkpoint_of_other_adapters_is_refused(lab: Any, tmp_path: Path) -> None:
    attached(lab.llm(), "dpo").save(tmp_path)
    with pytest.raises(StoreError, match="of another model or other adapters"):
        attached(lab.llm(), "dpo", lora=LoraOptions(r=2)).load(tmp_path)
    with pytest.raises(StoreError, match="of trainer dpo"):
        attached(lab.llm(), "grpo").load(tmp_path)


def test_grpo_refuses_episodes_of_older_weights() -> None:
    with pytest.raises(InputError, match="TRL's GRPO takes the episodes"):
        build("grpo", staleness=1)
    build("dpo", staleness=1)


def test_grpo_refuses_a_clip_that_is_not_above_0() -> None:
    with pytest.raises(ValueError, match="epsilon_high"):
        GrpoOptions(epsilon_high=0.0)


def test_grpo_refuses_a_sampler_that_it_would_score_wrongly(lab: Any) -> None:
    with pytest.raises(InputError) as caught:
        attached(lab.llm(top_p=0.8), "grpo")
    assert [problem.path for problem in caught.value.problems] == ["llm.top_p"]
    # DPO compares whole answers, wherever they come from.
    attached(lab.llm(top_p=0.8), "dpo")


def test_grpo_refuses_samples_of_another_engine(lab: Any, caplog: pytest.LogCaptureFixture) -> None:
    def sampled_by(same: bool | None) -> Any:
        llm = lab.llm()
        llm.same_engine = same
        return llm

    with pytest.raises(InputError, match="is sampled in another engine than the trainer's"):
        attached(sampled_by(False), "grpo")
    attached(sampled_by(True), "grpo")
    assert not caplog.text
    attached(sampled_by(None), "grpo")
    assert "servers of a registry may run another engine" in caplog.text
    attached(sampled_by(False), "dpo")


async def test_grpo_scores_at_the_samplers_temperature(lab: Any) -> None:
    """TRL's `entropy` is of the distribution at the temperature that it scores with."""
    found = {}
    for temperature in (0.5, 1.0):
        trainer = attached(lab.llm(temperature=temperature), "grpo")
        found[temperature] = (await trainer.step(lab.contrast())).metrics["entropy"]
    assert found[0.5] < found[1.0] - 0.1


def test_a_layer_that_is_not_there_or_can_have_no_adapters_is_named(lab: Any) -> None:
    with pytest.raises(InputError, match=r"trainer\.lora\.target"):
        attached(lab.llm(), "dpo", lora=LoraOptions(target=("no_such_layer",)))
    llm = lab.llm()
    llm.policy.model.odd = torch.nn.Bilinear(2, 2, 2)
    with pytest.raises(InputError, match=r"trainer\.lora\.target: .*Bilinear.* not supported"):
        attached(llm, "dpo", lora=LoraOptions(target=("odd",)))
    llm.policy.model.lm_head.weight = torch.nn.Parameter(torch.zeros(4, 4))  # not tied
    with pytest.raises(InputError, match=r"trainer\.lora\.target: 'lm_head' is the output layer"):
        attached(llm, "grpo", lora=LoraOptions(target=("lm_head",)))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ([5000], "token id 5000 is outside the model's vocabulary of 258"),
        ([-100], "token id -100 is outside the model's vocabulary of 258"),
        ([2] * 600, "an episode has 601 tokens in one context, and the model's holds 512"),
    ],
    ids=["above", "below", "too long"],
)
@pytest.mark.parametrize("name", ["dpo", "grpo"])
async def test_tokens_of_another_model_are_refused(
    lab: Any, name: str, output: list[int], message: str
) -> None:
    episodes = [
        lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1], output=ids)], reward=reward)
        for ids, reward in ((output, 1.0), ([2], 0.0))
    ]
    with pytest.raises(AleError, match=message):
        await attached(lab.llm(), name).step(lab.batch_of(lab.credited(*episodes)))


async def test_credits_that_do_not_match_are_refused_before_any_training(lab: Any) -> None:
    from ale.types import replace

    trainer = attached(lab.llm(), "grpo")
    batch = lab.contrast()
    broken = replace(batch.groups[0], credits=batch.groups[0].credits[1:])
    with pytest.raises(AleError, match="2 credits for 3 rollouts of task t0"):
        await trainer.step(lab.batch_of(broken))
    swapped = replace(batch.groups[0], credits=batch.groups[0].credits[::-1])
    with pytest.raises(AleError, match="credit of episode 0-t0-2 given for episode 0-t0-0"):
        await trainer.step(lab.batch_of(swapped))
    assert trainer.snapshot().version == 0
