"""The numbers of a run, from the index of its episodes."""

from attrs import evolve

from ale.runs import Index
from ale.testing.builders import episode
from ale_ablate.measuring import success_by_temperature


def test_success_on_held_out_tasks_is_measured_by_temperature() -> None:
    index = Index()
    for temperature, rewards in ((0.0, (1.0, 1.0)), (None, (1.0, 0.0)), (0.5, (None,))):
        for rollout, reward in enumerate(rewards):
            one = evolve(episode(reward, rollout=rollout), split="evaluation", step=4)
            index.add(evolve(one, temperature=temperature), 0)
    assert success_by_temperature(index) == {0.0: [(4, 1.0)], None: [(4, 0.5)]}
