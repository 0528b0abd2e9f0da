"""The trainer, over the SDK and a service at loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from attrs import evolve

from ale.errors import AleError, InputError, StoreError
from ale.plugin import BuildContext
from ale.protocols import Objective, Terms, Trainer
from ale.testing.fakes import FakeLLM
from ale.testing.llm import CAPITAL, ask
from ale.testing.trainer import TrainerContract
from ale.types import Batch, Message, Sampling
from ale_tinker.model import TinkerLLM
from ale_tinker.options import TrainerOptions
from ale_tinker.testing import LoopbackService
from ale_tinker.trainer import TinkerTrainer, build
from ale_training.testing import TokenEpisode, TokenTurn, batch_of, credited

PARIS = Message(role="assistant", content="Paris.")
PATIENCE_S = 60.0
LOGPS = (-2.0, -0.5, -4.0)


class Reinforce(Objective):
    """-sum w log pi."""

    def evaluate(self, tokens: Any, logp: Any, old_logp: Any, entropy: Any) -> Terms:
        return Terms(loss=-(tokens.weight * logp).sum())


class Sampled(Objective):
    """-sum w pi / mu."""

    normaliser = "tokens"

    def evaluate(self, tokens: Any, logp: Any, old_logp: Any, entropy: Any) -> Terms:
        return Terms(loss=-(tokens.weight * (logp - old_logp).exp()).sum())


@pytest_asyncio.fixture
async def attached(make_llm: Callable[..., TinkerLLM]) -> AsyncIterator[Callable[..., Any]]:
    """Builds a trainer with a model of its own."""
    made: list[TinkerLLM] = []

    def make(**options: Any) -> TinkerTrainer:
        trainer = build(TrainerOptions(**options), BuildContext(run_id="run"))
        made.append(make_llm())
        trainer.attach(made[-1])
        return trainer

    yield make
    for llm in made:
        await llm.aclose()


class TestTrainer(TrainerContract):
    timings = ("seconds",)

    @pytest.fixture
    def make_trainer(self, attached: Callable[..., Trainer]) -> Callable[[], Trainer]:
        return attached

    @pytest.fixture
    def make_unattached(self) -> Callable[[], Trainer]:
        return lambda: build(TrainerOptions(), BuildContext())


class TestTrainerOfAnObjective(TestTrainer):
    @pytest.fixture
    def make_trainer(self, attached: Callable[..., Trainer]) -> Callable[[], Trainer]:
        return lambda: attached(objective=Reinforce(), epochs=2)


def batch() -> Batch:
    """A success of two turns, a failure after another context, and one without credit."""
    first = TokenTurn(prompt=[1, 2, 3], output=[4, 5, 6], logps=LOGPS, cuts=[0, 1])
    then = TokenTurn(prompt=[1, 2, 3, 4, 5, 6, 7], output=[8, 9], logps=(-1.0, -9.0))
    other = TokenTurn(prompt=[2], output=[2, 4], logps=(-3.0, -6.0))
    fresh = TokenTurn(prompt=[9], output=[4], logps=(-2.5,), fresh=True)
    shown = TokenTurn(prompt=[3], output=[5], forced=True)
    return batch_of(
        credited(
            TokenEpisode(turns=[first, then], weights=[0.5, 1.0, 2.0]),
            TokenEpisode(turns=[other, fresh], reward=-1.0, weights=[-1.0, -0.5]),
            TokenEpisode(turns=[TokenTurn(prompt=[1], output=[1])], reward=0.0, weights=[0.0]),
            TokenEpisode(turns=[shown], weights=[3.0]),
        )
    )


TOKENS = [
    # before, token, log mu, credit
    (3, 4, -2.0, 0.5),
    (4, 5, -0.5, 1.0),
    (5, 6, -4.0, 1.0),
    (7, 8, -1.0, 2.0),
    (8, 9, -9.0, 2.0),
    (2, 2, -3.0, -1.0),
    (2, 4, -6.0, -1.0),
    (9, 4, -2.5, -0.5),
]
"""The sampled tokens of `batch` that have credit."""
N = 3
"""Its episodes with sampled tokens."""


def loss(weights: Any, name: str, low: float = 0.8, high: float = 1.2, z: float = N) -> float:
    """The loss of `batch`, as the README has it, of a table of logits."""
    total = 0.0
    for before, token, mu, credit in TOKENS:
        row = weights[before]
        logp = row[token] - np.log(np.exp(row).sum())
        ratio, w = np.exp(logp - mu), credit / z
        total += {
            "cross_entropy": -w * logp,
            "importance_sampling": -ratio * w,
            "ppo": -min(ratio * w, np.clip(ratio, low, high) * w),
        }[name]
    return float(total)


def gradient(weights: Any, *arguments: Any, **named: Any) -> Any:
    """By central differences."""
    found, step = np.zeros_like(weights), 1e-5
    for before in {each[0] for each in TOKENS}:
        for token in range(len(weights)):
            moved = weights.copy()
            moved[before, token] += step
            above = loss(moved, *arguments, **named)
            moved[before, token] -= 2 * step
            found[before, token] = (above - loss(moved, *arguments, **named)) / (2 * step)
    return found


@pytest.mark.parametrize(
    ("options", "formula"),
    [
        ({}, {"name": "importance_sampling"}),
        ({"loss": "cross_entropy"}, {"name": "cross_entropy"}),
        ({"loss": "ppo"}, {"name": "ppo"}),
        (
            {"loss": "ppo", "clip_low": 0.9, "clip_high": 0.05},
            {"name": "ppo", "low": 0.1, "high": 1.05},
        ),
        ({"objective": Reinforce()}, {"name": "cross_entropy"}),
        ({"objective": Sampled()}, {"name": "importance_sampling", "z": 9}),
    ],
    ids=["default", "cross-entropy", "ppo", "ppo-clips", "reinforce", "ratio"],
)
async def test_the_gradient_at_the_service_is_that_of_the_formula(
    service: LoopbackService,
    attached: Callable[..., TinkerTrainer],
    options: dict[str, Any],
    formula: dict[str, Any],
) -> None:
    report = await attached(**options).step(batch())
    expected = gradient(service.base, **formula)
    assert np.abs(expected).max() > 0.01
    (found,) = service.gradients
    assert found == pytest.approx(expected, abs=1e-5)
    assert report.metrics["loss"] == pytest.approx(loss(service.base, **formula), rel=1e-4)


def test_the_clips_of_the_examples_matter(service: LoopbackService) -> None:
    plain = loss(service.base, "importance_sampling")
    usual = loss(service.base, "ppo")
    assert len({plain, usual, loss(service.base, "ppo", 0.1, 1.05)}) == 3


async def test_an_objective_is_told_whose_tokens_they_are(
    attached: Callable[..., TinkerTrainer],
) -> None:
    seen: list[Any] = []

    class Recording(Reinforce):
        def evaluate(self, tokens: Any, logp: Any, old_logp: Any, entropy: Any) -> Terms:
            seen.append(tokens)
            return super().evaluate(tokens, logp, old_logp, entropy)

    await attached(objective=Recording()).step(batch())
    (tokens,) = seen
    assert tokens.trajectory_id.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert tokens.chunk_id.tolist() == [0, 1, 1, 2, 2, 3, 3, 4]
    assert tokens.positive.tolist() == [True] * 5 + [False] * 3
    assert tokens.sampled.all()
    assert tokens.behaviour_logp.tolist() == [each[2] for each in TOKENS]


async def test_updates_are_adamw_s_with_the_options(
    service: LoopbackService, attached: Callable[..., TinkerTrainer]
) -> None:
    trainer = attached(lr=0.25, max_grad_norm=0.5, epochs=3, rank=8)
    report = await trainer.step(batch())
    (made,) = service.asked("create_model")
    assert (made.base_model, made.lora_config.rank) == ("base", 8)
    asked = [each.optim_params for each in service.asked("optim_step")]
    assert [(each.learning_rate, each.grad_clip_norm) for each in asked] == [(0.25, 0.5)] * 3
    assert report.metrics["updates"] == 3
    assert report.policy_version == 1


async def test_metrics_say_how_far_the_sampler_is(
    service: LoopbackService, attached: Callable[..., TinkerTrainer]
) -> None:
    report = await attached().step(batch())
    table = service.base - np.log(np.exp(service.base).sum(axis=1, keepdims=True))
    ratios = [table[before, token] - mu for before, token, mu, _ in TOKENS]
    assert report.metrics["ratio_mean"] == pytest.approx(np.exp(ratios).mean(), rel=1e-4)
    assert report.metrics["kl_sampler"] == pytest.approx(-np.mean(ratios), rel=1e-4)
    assert report.metrics["trajectories"] == 4
    assert report.metrics["trajectories_without_signal"] == 2
    assert report.metrics["tokens_trained"] == len(TOKENS)


async def test_without_credit_nothing_is_asked(
    service: LoopbackService, attached: Callable[..., TinkerTrainer]
) -> None:
    turn = TokenTurn(prompt=[1], output=[2])
    trainer = attached()
    await trainer.step(batch_of(credited(TokenEpisode(turns=[turn], reward=0.0, weights=[0.0]))))
    assert service.requests == []
    assert trainer.snapshot().version == 0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loss": "ppo", "epochs": 3},
        {"loss": "cross_entropy"},
        {"objective": Sampled()},
    ],
    ids=["importance-sampling", "ppo", "cross-entropy", "objective"],
)
async def test_what_was_rewarded_is_sampled_more(
    make_llm: Callable[..., TinkerLLM], options: dict[str, Any]
) -> None:
    llm = make_llm()
    trainer = build(TrainerOptions(lr=0.5, **options), BuildContext())
    trainer.attach(llm)
    before = (await llm.force(ask(CAPITAL), PARIS)).tokens
    assert before is not None
    for step in range(3):
        known = (await llm.force(ask(CAPITAL), PARIS)).tokens
        assert known is not None
        turn = TokenTurn(prompt=known.prompt_ids, output=known.output_ids, logps=known.logprobs)
        report = await trainer.step(batch_of(credited(TokenEpisode(turns=[turn])), step=step))
        await llm.load_policy(trainer.snapshot())
        assert llm.policy_version == report.policy_version == step + 1
    after = (await llm.force(ask(CAPITAL), PARIS)).tokens
    assert after is not None
    assert sum(after.logprobs) > sum(before.logprobs) + 1
    drawn = (await llm.complete(ask(CAPITAL, sampling=Sampling(max_tokens=4)))).tokens
    assert drawn is not None
    assert {*drawn.policy_versions} == {3}
    await llm.aclose()


async def test_a_resumed_run_samples_what_the_first_one_trained(
    service: LoopbackService,
    attached: Callable[..., TinkerTrainer],
    make_llm: Callable[..., TinkerLLM],
    tmp_path: Any,
) -> None:
    first = attached(lr=0.5)
    await first.step(batch())
    first.save(tmp_path)
    second = attached(lr=0.5)
    second.load(tmp_path)
    llm = make_llm()
    await llm.load_policy(second.snapshot())
    found = (await llm.force(ask(CAPITAL), PARIS)).tokens
    await llm.aclose()
    (asked,) = service.asked("load_weights")
    assert asked.optimizer, "the moments are restored too"
    assert found is not None
    assert {*found.policy_versions} == {1}
    (snapshot,) = service.asked("save_weights_for_sampler")
    assert service.asked("create_sampling_session")[-1].model_path.endswith(snapshot.path)


async def test_each_version_has_a_state_of_its_own(
    service: LoopbackService, attached: Callable[..., TinkerTrainer], tmp_path: Any
) -> None:
    trainer = attached()
    for step in range(2):
        folder = tmp_path / str(step)
        folder.mkdir()
        await trainer.step(batch())
        trainer.save(folder)
        trainer.save(folder)  # the same version: nothing new to store
    assert [each.path for each in service.asked("save_weights")] == ["run-1", "run-2"]


async def test_a_state_that_the_service_has_lost_is_a_store_error(
    service: LoopbackService, attached: Callable[..., TinkerTrainer], tmp_path: Any
) -> None:
    first = attached()
    await first.step(batch())
    first.save(tmp_path)
    service.stored.clear()
    with pytest.raises(StoreError, match="tinker://"):
        attached().load(tmp_path)


async def test_a_checkpoint_of_another_rank_is_refused(
    attached: Callable[..., TinkerTrainer], tmp_path: Any
) -> None:
    first = attached(rank=4)
    await first.step(batch())
    first.save(tmp_path)
    with pytest.raises(StoreError, match="rank 4"):
        attached(rank=8).load(tmp_path)


async def test_a_failure_at_the_service_ends_the_step(
    service: LoopbackService, attached: Callable[..., TinkerTrainer]
) -> None:
    from ale_tinker.testing import answer

    service.failures["create_model"] = [answer(403, detail="no credit left")]
    with pytest.raises(AleError, match="no credit left"):
        await attached().step(batch())


GIVEN_UP = "did not answer within timeout_s"


@pytest.mark.parametrize(
    "path", ["create_model", "forward_backward", "optim_step", "save_weights_for_sampler"]
)
async def test_a_service_that_does_not_answer_ends_the_step(
    service: LoopbackService, attached: Callable[..., TinkerTrainer], path: str
) -> None:
    service.pending = {path}
    with pytest.raises(AleError, match=f"step 0 of training: the service {GIVEN_UP}"):
        await asyncio.wait_for(attached(timeout_s=1).step(batch()), PATIENCE_S)


async def test_a_service_that_does_not_answer_ends_a_save_and_a_load(
    service: LoopbackService, attached: Callable[..., TinkerTrainer], tmp_path: Any
) -> None:
    first = attached()
    await first.step(batch())
    first.save(tmp_path)
    service.pending = {"save_weights", "load_weights"}
    second = attached(timeout_s=1)
    with pytest.raises(StoreError, match=f"can't be loaded: the service {GIVEN_UP}"):
        await asyncio.wait_for(asyncio.to_thread(second.load, tmp_path), PATIENCE_S)
    first._options = evolve(first._options, timeout_s=1)
    first._state = None  # as after another step
    with pytest.raises(StoreError, match=f"could not be saved: the service {GIVEN_UP}"):
        await asyncio.wait_for(asyncio.to_thread(first.save, tmp_path), PATIENCE_S)


@pytest.mark.parametrize(("name", "value"), [("temperature", 0.7), ("top_p", 0.9)])
async def test_a_model_that_is_sampled_otherwise_is_refused(
    make_llm: Callable[..., TinkerLLM], name: str, value: float
) -> None:
    llm = make_llm(**{name: value})
    with pytest.raises(InputError, match=f"llm.{name}") as refused:
        build(TrainerOptions(), BuildContext()).attach(llm)
    assert refused.value.problems[0].expected == f"{name}: 1"


def test_a_model_elsewhere_is_refused() -> None:
    with pytest.raises(InputError, match="type: tinker"):
        build(TrainerOptions(), BuildContext()).attach(FakeLLM([]))


@pytest.mark.parametrize(
    ("attribute", "value", "expected"),
    [
        ("needs_reference", True, "kl: off"),
        ("needs_entropy", True, "entropy: 0"),
        ("normaliser", "constant", "one of"),
    ],
)
def test_an_objective_that_needs_more_is_refused(attribute: str, value: Any, expected: str) -> None:
    objective = Reinforce()
    setattr(objective, attribute, value)
    with pytest.raises(InputError, match=expected):
        build(TrainerOptions(objective=objective), BuildContext())


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "ppo", "objective": Reinforce()},
        {"clip_low": 0.1},
        {"loss": "cross_entropy", "clip_high": 0.1},
    ],
)
def test_options_that_exclude_each_other_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="loss"):
        TrainerOptions(**options)
