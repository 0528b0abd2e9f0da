"""Schemes that compare rollouts where they passed the same state, by hand-computed groups."""

import json
from pathlib import Path

import pytest

from ale.errors import InputError
from ale.testing.builders import trajectory, turn
from ale.testing.credit import group_of, rollout
from ale.types import Group, Observation, Stop, Turn, replace
from ale_credit.gae import GaeScheme
from ale_credit.options import GaeOptions, GigpoOptions
from ale_credit.state_schemes import Gigpo, Tree, histories, observations


def did(answer: str, observed: str) -> Turn:
    seen = Observation(call_id="", tool="shell", content=observed, role="user")
    return replace(turn(answer), observations=(seen,))


@pytest.fixture
def group() -> Group:
    """Two begin with `a` and part at the second turn; two begin with `b`, and one of them wins."""
    rows = [
        (1.0, [did("a", "0"), did("x", "1"), did("end", "")]),
        (0.0, [did("a", "0"), did("y", "1"), did("end", "")]),
        (1.0, [did("b", "0"), did("x", "1")]),
        (0.0, [did("b", "other"), did("x", "1")]),
    ]
    return group_of([rollout(reward, trajectory(*turns)) for reward, turns in rows])


def test_tree_values_are_means_over_episodes_that_began_alike(group: Group) -> None:
    first, second, third, fourth = (credit.weights for credit in Tree().assign(group))
    # V of the beginning 1/2; after a 1/2; after a, x 1; after a, y 0; b is left by both at once.
    assert first == pytest.approx((0.0, 0.5, 0.0))
    assert second == pytest.approx((0.0, -0.5, 0.0))
    assert third == pytest.approx((0.5, 0.0))
    assert fourth == pytest.approx((-0.5, 0.0))


def test_gigpo_adds_the_advantage_in_a_state_to_that_of_the_episode(group: Group) -> None:
    std = (1 / 3) ** 0.5
    whole = 0.5 / std
    two = 0.5 / 0.5**0.5  # of the values 1 and 0 alone
    plain = [c.weights for c in Gigpo(GigpoOptions(gamma=1.0)).assign(group)]
    assert plain[0] == pytest.approx((2 * whole, whole + two, whole), rel=1e-5)
    assert plain[1] == pytest.approx((-2 * whole, -whole - two, -whole), rel=1e-5)
    assert plain[2] == pytest.approx((2 * whole, whole), rel=1e-5)


def test_gigpo_without_its_step_is_grpo(group: Group) -> None:
    weights = [c.weights for c in Gigpo(GigpoOptions(step_weight=0.0)).assign(group)]
    assert all(len(set(each)) == 1 for each in weights)


def test_what_was_observed_last_is_a_coarser_state_than_the_history(group: Group) -> None:
    firsts = [each[1] for each in map(histories, group.rollouts)]
    seen = [each[1] for each in map(observations, group.rollouts)]
    assert len(set(firsts)) == 3
    assert len(set(seen)) == 2
    fine = Gigpo(GigpoOptions()).assign(group)
    coarse = Gigpo(GigpoOptions(state="observation")).assign(group)
    assert [c.weights for c in fine] != [c.weights for c in coarse]


def stored(folder: Path, **values: list[float]) -> Path:
    folder.mkdir()
    lines = [json.dumps({"episode_id": name, "values": v}) for name, v in values.items()]
    (folder / "00000.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_stored_values_of_a_critic_give_the_advantages(tmp_path: Path) -> None:
    made = rollout(1.0, trajectory(turn("a"), turn("b")))
    folder = stored(tmp_path / "values", **{made.episode.id: [0.25, 0.5]})
    scheme = GaeScheme(GaeOptions(gamma=1.0, lam=0.5, critic=folder))
    (credit,) = scheme.assign(group_of([made]))
    # delta: 0.5 - 0.25, and 1 - 0.5.
    assert credit.weights == pytest.approx((0.25 + 0.5 * 0.5, 0.5))
    assert credit.gae is None


def test_episodes_that_no_critic_valued_are_skipped(tmp_path: Path) -> None:
    made = rollout(1.0, trajectory(turn("a"), turn("b")))
    cut = replace(trajectory(turn("a")), stop=Stop(reason="time_limit"))
    late = rollout(1.0, cut, number=1)
    folder = stored(tmp_path / "values", **{late.episode.id: [0.5]})
    for each in (made, late):
        (credit,) = GaeScheme(GaeOptions(critic=folder)).assign(group_of([each]))
        assert credit.skipped
        assert not any(credit.weights)


def test_a_folder_without_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no values of a critic"):
        GaeScheme(GaeOptions(critic=tmp_path))
    (tmp_path / "00000.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match="no line of a critic's values"):
        GaeScheme(GaeOptions(critic=tmp_path))
    with pytest.raises(ValueError, match="needs unit: chunk"):
        GaeOptions(critic=tmp_path, unit="token")
