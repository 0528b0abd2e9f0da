"""The critic in the trainer: what it learns, when it is asked, and what it does to the policy."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve

from ale.errors import AleError, InputError
from ale.plugin import BuildContext
from ale.strict import parse_yaml, structure
from ale.types import Gae
from ale_trainer_policy.build import policy_trainer
from ale_trainer_policy.critic_options import CriticOptions
from ale_trainer_policy.gae import advantages, whitened
from ale_trainer_policy.options import LoraOptions, PolicyOptions
from ale_trainer_policy.samples import read_group

TIMINGS = ("seconds", "tokens_per_second")
HEAD = CriticOptions(type="head", lr=0.05)
STILL = 1e-12
"""A learning rate at which the policy stays as it is."""


def trainer(llm: Any, folder: Path | None = None, **fields: Any) -> Any:
    options = PolicyOptions(**{"lr": 1e-3, "objective": "ppo", "critic": HEAD, **fields})
    made = policy_trainer(options, BuildContext(run_directory=folder))
    made.attach(llm)
    return made


def for_critic(group: Any, *, truncated: bool = False, **fields: Any) -> Any:
    """The group with credits that a critic completes."""
    gae = Gae(**{"gamma": 1.0, "lam": 0.95, "unit": "chunk", "truncated": truncated, **fields})
    return evolve(group, credits=tuple(evolve(each, gae=gae) for each in group.credits))


def array(*values: float) -> Any:
    return np.array(values)


# The recursion


def test_at_lambda_one_an_advantage_is_the_discounted_return_less_the_value() -> None:
    found = advantages(array(0.0, 0.1, 1.0), array(0.3, 0.5, 0.2), 0.0, gamma=0.5, lam=1.0)
    assert found == pytest.approx([0.5 * 0.1 + 0.25 - 0.3, 0.1 + 0.5 - 0.5, 1.0 - 0.2])


def test_at_lambda_zero_an_advantage_is_one_steps_surprise() -> None:
    found = advantages(array(0.0, 0.1, 1.0), array(0.3, 0.5, 0.2), 0.0, gamma=0.5, lam=0.0)
    assert found == pytest.approx([0.25 - 0.3, 0.1 + 0.1 - 0.5, 1.0 - 0.2])


def test_what_was_cut_off_is_worth_the_value_of_its_last_state() -> None:
    ended = advantages(array(0.0, 0.0), array(0.4, 0.4), 0.0, gamma=0.5, lam=1.0)
    cut = advantages(array(0.0, 0.0), array(0.4, 0.4), 0.8, gamma=0.5, lam=1.0)
    assert (ended.tolist(), cut.tolist()) == ([-0.4, -0.4], [pytest.approx(-0.2), 0.0])


def test_whitened_advantages_have_mean_zero_and_std_one_over_all_episodes() -> None:
    found = np.concatenate(whitened([array(1.0, 2.0), array(6.0)]))
    assert (found.mean(), found.std()) == (pytest.approx(0.0), pytest.approx(1.0))
    assert [each.tolist() for each in whitened([array(2.0), array(2.0)])] == [[2.0], [2.0]]


# The units of an episode


def units(lab: Any, episode: Any, unit: str) -> Any:
    from collections import Counter

    group = for_critic(lab.credited(episode), unit=unit)
    [(_, sample)] = read_group(group, Counter())
    return sample.units


@pytest.mark.parametrize(
    ("unit", "expected", "rewards"),
    [
        ("token", [0, 1, 2, 3, 4], [0.0, 0.1, 0.2, 0.0, 0.3]),
        ("turn", [0, 0, 0, 1, 1], [0.1 + 0.2, 0.3]),
        ("chunk", [0, 0, 1, 2, 2], [0.1, 0.2, 0.3]),
    ],
)
def test_a_unit_earns_the_rewards_of_the_chunks_that_end_in_it(
    lab: Any, unit: str, expected: list[int], rewards: list[float]
) -> None:
    turns = [
        lab.TokenTurn(prompt=[1], output=[2, 3, 4], cuts=[0, 2]),
        lab.TokenTurn(prompt=[1, 2, 3, 4, 9], output=[5, 6]),
    ]
    found = units(lab, lab.TokenEpisode(turns=turns, rewards=(0.1, 0.2, 0.3)), unit)
    assert found.unit.tolist() == expected
    assert found.rewards == pytest.approx(rewards)


def test_a_forced_turn_is_no_step_of_the_policy(lab: Any) -> None:
    turns = [
        lab.TokenTurn(prompt=[1], output=[2, 3], forced=True),
        lab.TokenTurn(prompt=[1, 2, 3, 9], output=[4, 5]),
    ]
    found = units(lab, lab.TokenEpisode(turns=turns), "turn")
    assert (found.token.tolist(), found.rewards.tolist()) == ([2, 3], [1.0])


def test_a_turn_that_is_not_credited_is_no_step_and_its_reward_survives(lab: Any) -> None:
    from collections import Counter

    turns = [
        lab.TokenTurn(prompt=[1], output=[2, 3]),
        lab.TokenTurn(prompt=[1, 2, 3, 9], output=[4, 5]),
    ]
    group = for_critic(lab.credited(lab.TokenEpisode(turns=turns)))
    [rollout] = group.group.rollouts
    trajectory = rollout.episode.trajectory
    idle = (trajectory.turns[0], evolve(trajectory.turns[1], credited=False))
    episode = evolve(rollout.episode, trajectory=evolve(trajectory, turns=idle))
    changed = evolve(group, group=evolve(group.group, rollouts=(evolve(rollout, episode=episode),)))
    [(_, sample)] = read_group(changed, Counter())
    assert sample.units is not None
    assert (sample.units.token.tolist(), sample.units.rewards.tolist()) == ([0, 1], [1.0])


# What the critic learns: a problem whose values are known

FIRST, SECOND, SEEN = (2, 3), (4, 5), {2: 8, 3: 9}
REWARD = {(2, 4): 1.0, (2, 5): 0.0, (3, 4): 0.2, (3, 5): 0.6}


def enumerated(lab: Any, **fields: Any) -> Any:
    """Every path of two turns once: what a policy earns that takes each answer equally often."""
    episodes = [
        lab.TokenEpisode(
            turns=[
                lab.TokenTurn(prompt=[1], output=[a]),
                lab.TokenTurn(prompt=[1, a, SEEN[a]], output=[b]),
            ],
            rewards=(0.0, REWARD[a, b]),
        )
        for a, b in itertools.product(FIRST, SECOND)
    ]
    return lab.batch_of(for_critic(lab.credited(*episodes), **fields))


def value_of(made: Any, lab: Any, prompt: list[int]) -> float:
    from collections import Counter

    episode = lab.TokenEpisode(turns=[lab.TokenTurn(prompt=prompt, output=[4])])
    [(_, sample)] = read_group(for_critic(lab.credited(episode)), Counter())
    return float(made._learner.value([sample])[0])


@pytest.mark.parametrize(
    ("unit", "lam"), [("turn", 1.0), ("token", 0.0)], ids=["returns", "bootstrapped"]
)
async def test_values_converge_to_the_expected_return(
    lab: Any, make_llm: Callable[..., Any], unit: str, lam: float
) -> None:
    critic = CriticOptions(type="model", lr=0.01, value_clip=None)
    made = trainer(make_llm(), critic=critic, lr=STILL)
    batch = enumerated(lab, lam=lam, unit=unit, gamma=0.9)
    reports = [(await made.step(evolve(batch, step=step))).metrics for step in range(60)]
    after = {a: sum(REWARD[a, b] for b in SECOND) / 2 for a in FIRST}
    expected = {(1,): 0.9 * sum(after.values()) / 2, (1, 2, 8): after[2], (1, 3, 9): after[3]}
    for prompt, value in expected.items():
        assert value_of(made, lab, list(prompt)) == pytest.approx(value, abs=0.02)
    assert reports[0]["value_mean"] == 0.0
    # Of the returns' variance over all states; that of a path's second answer can't be explained.
    first = [0.9 * reward for reward in REWARD.values()]
    returns = np.array([*first, *REWARD.values()])
    values = np.array([expected[(1,)]] * 4 + [after[a] for a, _ in REWARD])
    explained = 1.0 - (returns - values).var() / returns.var()
    assert reports[-1]["explained_variance"] == pytest.approx(explained, abs=0.02)
    assert reports[-1]["return_mean"] == pytest.approx(float(returns.mean()))


def test_true_values_leave_the_expected_gradient_and_lower_its_variance() -> None:
    """Enumerated: weights G_k of IPA with gamma 1, and G_k - V(s_k) of GAE with lambda 1."""
    logits = torch.randn(3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits.requires_grad_()
    logp = logits.log_softmax(-1)
    reward = torch.tensor([[1.0, 0.0], [0.2, 0.6]], dtype=torch.float64)
    chance = logp.detach().exp()
    later = [float((chance[1 + a] * reward[a]).sum()) for a in range(2)]
    now = float(chance[0, 0] * later[0] + chance[0, 1] * later[1])

    def moments(baseline: Callable[[int], tuple[float, float]]) -> tuple[Any, float]:
        found, square = torch.zeros_like(logits), 0.0
        for a, b in itertools.product(range(2), repeat=2):
            first, second = baseline(a)
            loss = logp[0, a] * (reward[a, b] - first) + logp[1 + a, b] * (reward[a, b] - second)
            (gradient,) = torch.autograd.grad(loss, logits, retain_graph=True)
            p = chance[0, a] * chance[1 + a, b]
            found = found + p * gradient
            square += float(p * gradient.square().sum())
        return found, square - float(found.square().sum())

    plain, plain_variance = moments(lambda a: (0.0, 0.0))
    ours, variance = moments(lambda a: (now, later[a]))
    assert torch.allclose(plain, ours, rtol=0, atol=1e-12)
    assert variance < 0.8 * plain_variance


# The trainer


async def test_a_critic_that_says_zero_leaves_the_credits_own_weights(
    lab: Any, make_llm: Callable[..., Any]
) -> None:
    """At lambda 1 these are IPA's returns (ale-credit's tests compare its schemes)."""
    group = for_critic(lab.random_group(2), gamma=0.5, lam=1.0)
    made = trainer(make_llm())
    read = made._target.read(lab.batch_of(group)).samples
    completed = made._with_values(made._learner, 0, read, lab.accumulator())
    for credit, sample in zip(group.credits, completed, strict=True):
        n = len(credit.weights)
        returns = np.array([credit.rewards[-1] * 0.5 ** (n - 1 - k) for k in range(n)])
        assert sample.weight == pytest.approx(np.where(sample.sampled, returns[sample.chunk], 0.0))


async def test_failures_alone_teach_nothing_as_long_as_the_critic_expects_nothing(
    lab: Any, make_llm: Callable[..., Any]
) -> None:
    turn = lab.TokenTurn(prompt=[1, 2], output=[3, 4])
    bad = lab.TokenEpisode(turns=[turn], reward=0.0, weights=[0.0])
    report = await trainer(make_llm()).step(lab.batch_of(for_critic(lab.credited(bad, bad))))
    assert (report.policy_version, report.metrics["updates"]) == (0, 0.0)
    assert "grad_norm" not in report.metrics


async def test_failures_teach_once_the_critic_expects_more(
    lab: Any, make_llm: Callable[..., Any]
) -> None:
    turn = lab.TokenTurn(prompt=[1, 2], output=[3, 4])
    good = lab.TokenEpisode(turns=[turn], reward=1.0)
    bad = lab.TokenEpisode(turns=[turn], reward=0.0, weights=[0.0])
    made = trainer(make_llm(), lr=STILL)
    for step in range(20):
        await made.step(lab.batch_of(for_critic(lab.credited(good, bad)), step=step))
    metrics = (await made.step(lab.batch_of(for_critic(lab.credited(bad)), step=20))).metrics
    assert metrics["value_mean"] > 0.2
    assert metrics["advantage_mean"] == pytest.approx(-metrics["value_mean"])
    assert metrics["trajectories_without_signal"] == 0.0


@pytest.mark.parametrize(
    "fields",
    [
        {"epochs": 2, "minibatches": 2},
        {"critic": evolve(HEAD, gradient="policy", advantages="whitened")},
        {"critic": CriticOptions(type="model")},
        {"critic": evolve(HEAD, gradient="policy"), "lora": LoraOptions(r=2, dropout=0.1)},
        {"critic": CriticOptions(type="model"), "lora": LoraOptions(r=2), "sync": "copy"},
        {"old_policy": "rollout_version", "epochs": 2},
        {"correction": "truncate", "packing": "padded"},
    ],
    ids=["head", "shared", "model", "lora", "model-lora", "versions", "corrected"],
)
async def test_a_resumed_critic_continues_equal_to_the_bit(
    make_llm: Callable[..., Any], lab: Any, tmp_path: Path, fields: dict[str, Any]
) -> None:
    def batch(step: int) -> Any:
        cut = for_critic(lab.random_group(step), unit="token", truncated=True)
        return lab.batch_of(cut, for_critic(lab.random_group(step + 9, task="u")), step=step)

    first = trainer(make_llm(), tmp_path / "first", **fields)
    for step in range(2):
        await first.step(batch(step))
    first.save(tmp_path)
    expected = [(await first.step(batch(step))).metrics for step in (2, 3)]

    second = trainer(make_llm(), tmp_path / "second", **fields)
    second.load(tmp_path)
    again = [(await second.step(batch(step))).metrics for step in (2, 3)]
    strip = [{k: v for k, v in m.items() if k not in TIMINGS} for m in (*expected, *again)]
    assert strip[:2] == strip[2:]
    mine, other = (each._learner.state() for each in (first, second))
    assert any(name.startswith("critic/optimizer/exp_avg/") for name in mine)
    assert mine.keys() == other.keys()
    assert all(torch.equal(mine[name], other[name]) for name in mine)
    stored = [(tmp_path / name / "values" / "00003.jsonl").read_text() for name in ("first",)]
    assert stored == [(tmp_path / "second" / "values" / "00003.jsonl").read_text()]


async def test_a_value_loss_changes_the_policy_only_where_its_gradient_is_to_reach_it(
    lab: Any, make_llm: Callable[..., Any]
) -> None:
    """Advantages of 0 for all tokens: rewards that the critic has learned already."""
    batch = lab.batch_of(
        for_critic(
            lab.credited(
                lab.TokenEpisode(
                    turns=[lab.TokenTurn(prompt=[1, 2], output=[3, 4])], reward=0.0, weights=[0.0]
                )
            ),
            unit="turn",
        )
    )
    changed = {}
    for gradient in ("head", "policy"):
        llm = make_llm()
        made = trainer(llm, critic=CriticOptions(type="head", gradient=gradient, value_clip=None))
        with torch.no_grad():
            made._learner.critic.head.bias.fill_(0.5)
            made._learner.critic.head.weight.fill_(0.1)
        before = [parameter.detach().clone() for parameter in llm.policy.model.parameters()]
        completed = made._with_values(
            made._learner, 0, made._target.read(batch).samples, lab.accumulator()
        )
        still = [evolve(each, weight=0.0 * each.weight) for each in completed]
        assert made._update(made._learner, still, None, lab.accumulator())
        after = list(llm.policy.model.parameters())
        changed[gradient] = any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert changed == {"head": False, "policy": True}


async def test_each_steps_values_are_in_the_run_directory(
    lab: Any, make_llm: Callable[..., Any], tmp_path: Path
) -> None:
    made = trainer(make_llm(), tmp_path)
    batch = enumerated(lab, gamma=0.5, lam=1.0)
    await made.step(batch)
    text = (tmp_path / "values" / "00000.jsonl").read_text()
    assert json.loads(text.splitlines()[0]) == {
        "episode_id": "0-t-0",
        "values": [0.0, 0.0],
        "advantages": [0.5, 1.0],
        "returns": [0.5, 1.0],
    }


async def test_credit_that_was_not_made_for_a_critic_is_refused(
    lab: Any, make_llm: Callable[..., Any]
) -> None:
    with pytest.raises(AleError, match="credit of episode 0-t-0 was not made for a critic"):
        await trainer(make_llm()).step(lab.batch_of(lab.random_group(0)))


async def test_the_metrics_of_a_critic_are_in_the_readme(
    lab: Any, make_llm: Callable[..., Any]
) -> None:
    report = await trainer(make_llm()).step(lab.batch_of(for_critic(lab.random_group(1))))
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    assert {name for name in report.metrics if f"`{name}`" not in readme} == set()
    wanted = {"loss_value", "value_mean", "return_mean", "explained_variance", "critic_grad_norm"}
    assert wanted <= report.metrics.keys()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("critic: {type: heat}", "trainer.critic.type"),
        ("critic: {gradient: policy}", "'type' is missing"),
        ("critic: {type: model, gradient: policy}", "'gradient: policy' is of a head"),
        ("critic: {type: head, model: some/folder}", "'model' is of type: model"),
        ("{critic: {type: model, model: some/folder}, lora: {r: 4}}", "leave critic.model out"),
    ],
)
def test_options_that_contradict_one_another_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        structure(parse_yaml(text), PolicyOptions, path="trainer")
    assert message in str(caught.value)


def test_a_folder_of_another_vocabulary_is_refused(
    lab: Any, make_llm: Callable[..., Any], tmp_path: Path
) -> None:
    lab.tiny_model(vocab_size=32).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="a vocabulary of 32 tokens") as caught:
        trainer(make_llm(), critic=CriticOptions(type="model", model=tmp_path))
    assert caught.value.problems[0].path == "trainer.critic.model"


def test_a_folder_without_a_head_is_enough_and_without_a_layer_is_refused(
    lab: Any, make_llm: Callable[..., Any], tmp_path: Path
) -> None:
    model = lab.tiny_model("llama")
    critic = CriticOptions(type="model", model=tmp_path)

    def save_without(*lost: str) -> None:
        kept = {name: each for name, each in model.state_dict().items() if name not in lost}
        model.save_pretrained(tmp_path, state_dict=kept)

    save_without("lm_head.weight")
    trainer(make_llm(), critic=critic)
    save_without("model.layers.1.mlp.up_proj.weight")
    with pytest.raises(InputError, match=r"lacks .*: model\.layers\.1\.mlp\.up_proj\.weight"):
        trainer(make_llm(), critic=critic)
