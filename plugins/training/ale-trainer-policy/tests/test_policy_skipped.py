"""A step is learned from whole, skipped whole, or refused."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from ale.errors import AleError
from ale.plugin import BuildContext
from ale.testing.trainer import credited_batch
from ale_trainer_policy.build import policy_trainer
from ale_trainer_policy.options import PolicyOptions

FAR = 1e30
"""A learning rate: weights are so far off after an update that no loss is finite."""


def attached(llm: Any, folder: Path, **fields: Any) -> Any:
    options = PolicyOptions(**{"lr": 1e-3, "epochs": 2, **fields})
    trainer = policy_trainer(options, BuildContext(run_directory=folder))
    trainer.attach(llm)
    return trainer


def weights(llm: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in llm.policy.model.parameters()])


async def ruined(trainer: Any, step: int) -> Any:
    """A step whose first update is finite, and whose second is not."""
    learner = trainer._learner
    plain, learner.options = learner.options, evolve(learner.options, lr=FAR)
    try:
        return await trainer.step(credited_batch(step))
    finally:
        learner.options = plain


async def test_a_loss_that_is_no_number_takes_the_updates_before_it_back(
    make_llm: Callable[..., Any], tmp_path: Path
) -> None:
    llm, like = make_llm(), make_llm()
    trainer, other = attached(llm, tmp_path), attached(like, tmp_path / "other")
    for each in (trainer, other):
        await each.step(credited_batch(0))
    before = weights(llm)
    report = await ruined(trainer, 1)
    assert torch.equal(weights(llm), before)
    assert (report.metrics["steps_skipped"], report.metrics["updates"]) == (1.0, 0.0)
    assert report.policy_version == 1
    assert {"loss", "grad_norm"}.isdisjoint(report.metrics)
    assert all(map(math.isfinite, report.metrics.values()))
    for each in (trainer, other):
        await each.step(credited_batch(2))
    assert torch.equal(weights(llm), weights(like)), "moments are as they were, too"
    assert trainer._learner.updates == other._learner.updates == 4


async def test_the_very_first_step_can_be_skipped(
    make_llm: Callable[..., Any], tmp_path: Path
) -> None:
    llm = make_llm()
    trainer, before = attached(llm, tmp_path), weights(llm)
    assert (await ruined(trainer, 0)).metrics["steps_skipped"] == 1.0
    assert torch.equal(weights(llm), before)
    report = await trainer.step(credited_batch(1))
    assert (report.metrics["steps_skipped"], report.metrics["updates"]) == (0.0, 2.0)


async def test_three_such_steps_in_a_row_end_the_run_with_the_weights_of_before(
    make_llm: Callable[..., Any], tmp_path: Path
) -> None:
    llm = make_llm()
    trainer, before = attached(llm, tmp_path), weights(llm)
    for step in range(2):
        await ruined(trainer, step)
    with pytest.raises(AleError, match=r"3 steps in a row.*step-00002\.json"):
        await ruined(trainer, 2)
    assert json.loads((tmp_path / "bad_batches" / "step-00002.json").read_text())["step"] == 2
    assert torch.equal(weights(llm), before)


async def test_more_minibatches_than_trajectories_make_an_update_of_each(
    make_llm: Callable[..., Any], tmp_path: Path
) -> None:
    trainer = attached(make_llm(), tmp_path, epochs=1, minibatches=10**12)
    found = (await trainer.step(credited_batch(0))).metrics
    assert found["updates"] == found["trajectories"] - found["trajectories_without_signal"] == 2


async def test_a_lack_of_memory_says_what_to_change(
    make_llm: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = attached(make_llm(), tmp_path)
    # The allocator's own error, for an exbibyte.
    monkeypatch.setattr(torch.Tensor, "backward", lambda *_, **__: torch.empty(1 << 60))
    with pytest.raises(AleError, match=r"training step needs more memory.*can't allocate") as named:
        await trainer.step(credited_batch(0))
    assert "`ale plan CONFIG`" in str(named.value)


@pytest.mark.parametrize("wrong", [64, -1])
async def test_ids_of_another_model_are_refused(
    make_llm: Callable[..., Any], lab: Any, tmp_path: Path, wrong: int
) -> None:
    episode = lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1], output=[2, wrong])])
    with pytest.raises(AleError, match=f"token id {wrong} is outside the model's vocabulary of 64"):
        await attached(make_llm(), tmp_path).step(lab.batch_of(lab.credited(episode)))


async def test_episodes_beyond_the_models_context_are_refused(
    make_llm: Callable[..., Any], lab: Any, tmp_path: Path
) -> None:
    llm = make_llm()
    context = llm.policy.model.config.max_position_embeddings
    turn = lab.TokenTurn(prompt=[1] * context, output=[2])
    with pytest.raises(AleError, match=f"{context + 1} tokens in one context, and .* {context}:"):
        await attached(llm, tmp_path).step(
            lab.batch_of(lab.credited(lab.TokenEpisode(turns=[turn])))
        )
