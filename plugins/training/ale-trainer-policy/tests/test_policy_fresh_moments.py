"""`imitation.fresh_moments`: reinforcement after demonstrations, as from a saved model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ale.plugin import BuildContext
from ale_trainer_policy.imitation_options import ImitationOptions
from ale_trainer_policy.options import PolicyOptions
from ale_trainer_policy.plugin import ale_trainers

(POLICY,) = (component for component in ale_trainers() if component.name == "policy")


def trainer(llm: Any, *, fresh: bool) -> Any:
    imitation = ImitationOptions(when="always", fresh_moments=fresh)
    built = POLICY.build(PolicyOptions(lr=1e-3, imitation=imitation), BuildContext(seed=0))
    built.attach(llm)
    return built


def moments(trained: Any) -> dict[str, torch.Tensor]:
    return {k: v for k, v in trained._learner.state().items() if k.startswith("optimizer/")}


@pytest.mark.parametrize("fresh", [True, False])
async def test_reinforcement_begins_as_from_a_saved_model(
    make_llm: Callable[..., Any], lab: Any, tmp_path: Path, fresh: bool
) -> None:
    turn = lab.TokenTurn(prompt=[1, 2], output=[7, 8, 9], forced=True)
    demonstration = lab.credited(lab.TokenEpisode(turns=[turn]))
    both = make_llm()
    first = trainer(both, fresh=fresh)
    for step in range(2):
        await first.step(lab.batch_of(demonstration, step=step))
    demonstrated = {k: v.clone() for k, v in both.policy.model.state_dict().items()}
    first.save(tmp_path)

    own = [lab.batch_of(lab.random_group(step), step=step) for step in (2, 3)]
    for batch in own:
        await first.step(batch)

    saved = make_llm()
    saved.policy.model.load_state_dict(demonstrated)
    later = trainer(saved, fresh=fresh)
    for batch in own:
        await later.step(batch)
    mine, theirs = moments(first), moments(later)
    assert mine.keys() == theirs.keys()
    assert fresh == all(torch.equal(mine[name], theirs[name]) for name in mine)

    resumed = trainer(make_llm(), fresh=fresh)
    resumed.load(tmp_path)
    for batch in own:
        await resumed.step(batch)
    again = moments(resumed)
    assert all(torch.equal(mine[name], again[name]) for name in mine)


async def test_moments_stay_while_something_is_imitated(
    make_llm: Callable[..., Any], lab: Any
) -> None:
    turn = lab.TokenTurn(prompt=[1, 2], output=[7, 8, 9], forced=True)
    demonstration = lab.credited(lab.TokenEpisode(turns=[turn]), task="demonstrated")
    with_own = [demonstration, lab.random_group(1)]
    trained = trainer(make_llm(), fresh=True)
    for step, groups in enumerate(([demonstration], with_own, with_own)):
        await trained.step(lab.batch_of(*groups, step=step))
    steps = [value for name, value in moments(trained).items() if name.startswith("optimizer/step")]
    assert {int(value) for value in steps} == {3}
