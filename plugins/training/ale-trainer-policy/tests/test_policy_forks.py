"""Eq. 10 at a fork without a success: what the expert would have said there is imitated too."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ale.plugin import BuildContext
from ale_trainer_policy.imitation_options import ImitationOptions
from ale_trainer_policy.options import PRESETS, PolicyOptions, SftOptions
from ale_trainer_policy.plugin import ale_trainers
from ale_trainer_policy.samples import EXPERT_NEXT
from ale_trainer_policy.targets import EXPERT_TURNS, Imitation, Reinforcement


def lesson_of(when: Any = "fallback", **fields: Any) -> Reinforcement:
    options = ImitationOptions(when=when, **fields)
    return Reinforcement(objective=PRESETS["ipa"], imitation=options)


def at_a_fork(lab: Any, p: int, reward: float = 0.0, **next_: Any) -> Any:
    """A rollout from after `p` of an expert's three turns, which says 7, 8 next."""
    turns = [
        lab.TokenTurn(prompt=[1], output=[2, 3], forced=True),
        lab.TokenTurn(prompt=[1, 2, 3, 9], output=[4], forced=True),
        lab.TokenTurn(prompt=[1, 2, 3, 9, 4, 9], output=[5, 6, 6], version=2),
    ][2 - p :]
    facts = {"turn": p, "output_ids": [7, 8], "logprobs": [-1, -2.5], "policy_versions": [2, 2]}
    metadata = {EXPERT_TURNS: 3, EXPERT_NEXT: next_ or facts}
    return lab.TokenEpisode(turns=turns, reward=reward, metadata=metadata)


def test_the_experts_turn_at_a_fork_without_a_success_is_imitated_too(lab: Any) -> None:
    """Eq. 10 sums over k <= f, and f = p + 1 is the turn that the policy failed to find."""
    target = lesson_of(weight=1.0, gamma=0.5)
    read_ = target.read(lab.batch_of(lab.credited(at_a_fork(lab, 1, reward=-1.0))))
    [sample] = read_.samples
    assert [row.tolist() for row in sample.rows] == [
        [1, 2, 3, 9, 4, 9, 5, 6, 6],
        [1, 2, 3, 9, 4, 9, 7, 8],
    ]
    assert sample.imitation.tolist() == [0.25, 0, 0, 0, 0.5, 0.5]
    assert sample.weight.tolist() == [0, -1, -1, -1, 0, 0], "nothing forced is reinforced"
    assert sample.sampled.tolist() == [False, True, True, True, False, False]
    added = sample.rows[1][sample.at[4:]]
    assert (sample.row[4:].tolist(), added.tolist()) == ([1, 1], [7, 8])
    assert sample.behaviour_logp[4:].tolist() == [-1, -2.5]
    assert sample.version[4:].tolist() == [2, 2]
    assert not {*sample.chunk[4:]} & {*sample.chunk[:4]}
    assert (read_.counts["next_turns_imitated"], read_.counts["next_turns_left_out"]) == (1, 0)


def test_from_the_beginning_the_experts_first_turn_is_imitated(lab: Any) -> None:
    target = lesson_of(weight=1.0)
    group = lab.credited(at_a_fork(lab, 0, reward=-1.0), at_a_fork(lab, 0))
    samples = target.normalised(target.read(lab.batch_of(group)).samples)
    assert [sample.imitation.tolist() for sample in samples] == [[0, 0, 0, 0.5, 0.5]] * 2
    assert samples[0].weight.tolist() == [-0.5] * 3 + [0, 0], "Z counts the two trajectories"


def test_after_a_success_or_with_imitation_off_the_sample_is_as_if_nobody_knew_more(
    lab: Any,
) -> None:
    group = lab.credited(at_a_fork(lab, 1), at_a_fork(lab, 1, reward=1.0))
    plain = lab.credited(*(lab.evolve(at_a_fork(lab, 1, r), metadata={}) for r in (0.0, 1.0)))
    for when in ("fallback", "off"):
        target = lesson_of(when)
        found, bare = (target.read(lab.batch_of(each)) for each in (group, plain))
        assert repr(found) == repr(bare)


@pytest.mark.parametrize("facts", [{"left_out": "too long"}, {"turn": 9, "output_ids": [7]}])
def test_what_was_not_written_down_is_counted(lab: Any, facts: Any) -> None:
    read_ = lesson_of().read(lab.batch_of(lab.credited(at_a_fork(lab, 1, **facts))))
    assert len(read_.samples[0].at) == 4
    assert (read_.counts["next_turns_imitated"], read_.counts["next_turns_left_out"]) == (0, 1)


def test_plain_imitation_takes_what_was_said_and_nothing_that_was_not(lab: Any) -> None:
    for chosen in ("successful", "forced", "both"):
        target = Imitation(options=SftOptions(learn_from=chosen))
        [sample] = target.read(lab.batch_of(lab.credited(at_a_fork(lab, 1, 1.0)))).samples
        assert len(sample.at) == 4


def logp(model: Any, prompt: list[int], answer: list[int]) -> float:
    with torch.no_grad():
        scores = model(torch.tensor([[*prompt, *answer]])).logits[0].log_softmax(-1)
    return sum(float(scores[len(prompt) - 1 + i, token]) for i, token in enumerate(answer))


@pytest.mark.parametrize("packing", ["tree", "padded"])
@pytest.mark.parametrize("p", [0, 2])
async def test_a_step_makes_the_experts_turn_at_the_fork_more_likely(
    make_llm: Callable[..., Any], lab: Any, tmp_path: Path, packing: Any, p: int
) -> None:
    """From the beginning it is all that is imitated; later on the turns before it are, too."""
    prompt = [1, 2, 3, 9, 4, 9]
    batch = lab.batch_of(lab.credited(*[at_a_fork(lab, p)] * 2))
    moved = {}
    for when in ("fallback", "off"):
        llm = make_llm()
        before = logp(llm.policy.model, prompt, [7, 8])
        options = PolicyOptions(
            lr=1e-3,
            packing=packing,
            old_policy="rollout_engine",
            imitation=ImitationOptions(when=when, weight=1.0),
        )
        (component,) = [each for each in ale_trainers() if each.name == "policy"]
        trainer = component.build(options, BuildContext(run_directory=tmp_path / when))
        trainer.attach(llm)
        report = await trainer.step(batch)
        moved[when] = logp(llm.policy.model, prompt, [7, 8]) - before
        if when == "fallback":
            assert report.metrics["next_turns_imitated"] == 2
            assert report.metrics["loss_imitation"] > -before * 0.99
    assert moved["fallback"] > 0.01
    assert moved["off"] == 0.0, "a failure's reward is 0: nothing else is learnt"


async def test_the_ratios_on_the_text_are_of_what_the_policy_said(
    make_llm: Callable[..., Any], lab: Any, tmp_path: Path
) -> None:
    longer = {"turn": 1, "output_ids": [5, 8, 8, 8, 8], "logprobs": [-1] * 5}
    episode = at_a_fork(lab, 1, reward=-1.0, **longer, policy_versions=[2] * 5)
    (component,) = [each for each in ale_trainers() if each.name == "policy"]
    trainer = component.build(PolicyOptions(), BuildContext(run_directory=tmp_path))
    trainer.attach(make_llm())
    await trainer.step(lab.batch_of(lab.credited(episode)))
    (line,) = (tmp_path / "ratios" / "00000.jsonl").read_text().splitlines()
    nothing, own = json.loads(line)["log_ratios"]
    assert nothing is None
    assert len(own) == 3
    assert None not in own
