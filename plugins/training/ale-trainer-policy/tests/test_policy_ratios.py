"""The files of importance ratios that a run keeps, read as `ale report` reads them."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ale.errors import StoreError
from ale.plugin import BuildContext
from ale_trainer_policy.imitation_options import ImitationOptions
from ale_trainer_policy.options import PolicyOptions, SftOptions
from ale_trainer_policy.plugin import ale_trainers

COMPONENTS = {component.name: component for component in ale_trainers()}


def trainer_of(llm: Any, folder: Path | None, **fields: Any) -> Any:
    options = PolicyOptions(**{"lr": 1e-2, **fields})
    made = COMPONENTS["policy"].build(options, BuildContext(run_directory=folder))
    made.attach(llm)
    return made


def rows(folder: Path, step: int = 0, key: str = "log_ratios") -> dict[str, Any]:
    lines = (folder / "ratios" / f"{step:05d}.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert len({row["episode_id"] for row in found}) == len(found)
    return {row["episode_id"]: row[key] for row in found}


def logps(model: Any, ids: list[int]) -> list[float]:
    with torch.no_grad():
        scores = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return [float(scores[i, token]) for i, token in enumerate(ids[1:])]


def two_turns(lab: Any) -> Any:
    """A batch of one episode, whose tokens are 1, 2, 7, 8, 9, 5, 6; 5 is an observation."""
    turns = [
        lab.TokenTurn(prompt=[1, 2], output=[7, 8, 9], logps=[-1.0, -2.0, -3.0]),
        lab.TokenTurn(prompt=[1, 2, 7, 8, 9, 5], output=[6], logps=[-0.5]),
    ]
    return lab.batch_of(lab.credited(lab.TokenEpisode(turns=turns)))


async def test_a_tokens_ratio_is_of_the_last_pass_over_the_sampler(
    make_llm: Callable[..., Any], lab: Any, tmp_path: Path
) -> None:
    """With two epochs the last pass is that of the weights after the first update."""
    batch = two_turns(lab)
    once = make_llm()
    await trainer_of(once, None).step(batch)
    await trainer_of(make_llm(), tmp_path, epochs=2).step(batch)
    now = logps(once.policy.model, [1, 2, 7, 8, 9, 5, 6])
    first, second = rows(tmp_path)["0-t-0"]
    wanted = [p - q for p, q in zip(now[1:4], (-1.0, -2.0, -3.0), strict=True)]
    assert first == pytest.approx(wanted, abs=1e-3)
    assert second == pytest.approx([now[5] + 0.5], abs=1e-3)


async def test_a_tokens_entropy_is_of_what_it_was_drawn_from(
    make_llm: Callable[..., Any], lab: Any, tmp_path: Path
) -> None:
    batch = two_turns(lab)
    llm = make_llm()
    with torch.no_grad():
        scores = llm.policy.model(torch.tensor([[1, 2, 7, 8, 9, 5]])).logits[0].log_softmax(-1)
    before = (-(scores.exp() * scores).sum(-1)).tolist()
    await trainer_of(llm, tmp_path).step(batch)
    first, second = rows(tmp_path, key="entropies")["0-t-0"]
    assert first == pytest.approx(before[1:4], abs=1e-3)
    assert second == pytest.approx([before[5]], abs=1e-3)


async def test_the_distance_to_the_sampler_is_estimated_over_what_it_said(
    make_llm: Callable[..., Any], lab: Any
) -> None:
    """Tokens are drawn from mu: the mean of pi/mu - 1 - log(pi/mu) over them is KL(mu || pi)."""
    mu = [-1.0, -2.0, -3.0]
    llm = make_llm()
    now = logps(llm.policy.model, [1, 2, 7, 8, 9])[1:]
    batch = lab.batch_of(
        lab.credited(
            lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1, 2], output=[7, 8, 9], logps=mu)])
        )
    )
    report = await trainer_of(llm, None).step(batch)
    terms = [math.expm1(p - q) - (p - q) for p, q in zip(now, mu, strict=True)]
    assert report.metrics["kl_rollout"] == pytest.approx(sum(terms) / 3, rel=1e-3)


async def test_what_has_no_ratio_is_null(
    make_llm: Callable[..., Any], lab: Any, tmp_path: Path
) -> None:
    """Forced turns, tokens outside every chunk, and episodes that teach nothing."""
    forced = lab.TokenTurn(prompt=[1], output=[2, 3], forced=True)
    own = lab.TokenTurn(prompt=[1, 2, 3, 9], output=[4, 5, 6])
    episodes = [lab.TokenEpisode(turns=[forced, own]), lab.TokenEpisode(turns=[own], weights=[0.0])]
    group = lab.credited(*episodes)
    rollout = group.group.rollouts[0]
    (kept,) = rollout.chunks[1].spans
    cut = lab.evolve(rollout.chunks[1], spans=(lab.evolve(kept, tokens=(1, 3)),))
    shortened = lab.evolve(rollout, chunks=(rollout.chunks[0], cut))
    rollouts = (shortened, *group.group.rollouts[1:])
    group = lab.evolve(group, group=lab.evolve(group.group, rollouts=rollouts))
    trainer = trainer_of(make_llm(), tmp_path, imitation=ImitationOptions(when="always"))
    await trainer.step(lab.batch_of(group))
    ((nothing, numbers),) = rows(tmp_path).values()
    assert nothing is None
    assert numbers[0] is None
    assert all(math.isfinite(each) for each in numbers[1:])


async def test_a_step_that_is_done_again_has_one_file_and_one_line_an_episode(
    make_llm: Callable[..., Any], lab: Any, tmp_path: Path
) -> None:
    batch = lab.batch_of(lab.random_group(1), step=3)
    for _ in range(2):
        await trainer_of(make_llm(), tmp_path).step(batch)
    assert [path.name for path in (tmp_path / "ratios").iterdir()] == ["00003.jsonl"]
    episodes = {r.episode.id: r.episode for g in batch.groups for r in g.group.rollouts}
    found = rows(tmp_path, 3)
    assert found.keys() == episodes.keys()
    for name, turns in found.items():
        for row, turn in zip(turns, episodes[name].trajectory.turns, strict=True):
            if turn.completion.forced:
                assert row is None
            else:
                assert len(row) == len(turn.completion.tokens.output_ids)


async def test_they_can_be_left_out_and_imitation_has_none(
    make_llm: Callable[..., Any], lab: Any, tmp_path: Path
) -> None:
    batch = lab.batch_of(lab.random_group(1))
    await trainer_of(make_llm(), tmp_path, keep_ratios=False).step(batch)
    imitating = COMPONENTS["sft"].build(SftOptions(), BuildContext(run_directory=tmp_path))
    imitating.attach(make_llm())
    await imitating.step(batch)
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_that_can_not_be_written_is_said(
    make_llm: Callable[..., Any], lab: Any, tmp_path: Path
) -> None:
    (tmp_path / "ratios").write_text("in the way")
    with pytest.raises(StoreError, match=r"00000\.jsonl can't be written.*keep_ratios: false"):
        await trainer_of(make_llm(), tmp_path).step(lab.batch_of(lab.random_group(1)))
