"""What a contested score counts as."""

import pytest

from ale._run.contested import How, counted, how
from ale.testing.builders import episode
from ale.types import Episode, Score, replace


def graded(**fields: object) -> Episode:
    score = Score(criterion="it", passed=True, value=1.0, detail="so")
    other = Score(criterion="other", passed=True, value=1.0, weight=3.0)
    return replace(episode(), reward=1.0, scores=(replace(score, **fields), other), failure=None)


@pytest.mark.parametrize(
    ("chosen", "trains", "split", "expected"),
    [
        (None, False, "train", "reward"),
        (None, True, "train", "failed"),
        (None, True, "evaluation", "reward"),
        ("broken", True, "train", "broken"),
        ("reward", True, "train", "reward"),
    ],
)
def test_what_a_trainer_learns_from_is_no_reward_unless_the_config_says_so(
    chosen: How | None, trains: bool, split: str, expected: str
) -> None:
    found = replace(episode(), split=split)
    assert how(chosen, trains=trains, episode=found) == expected


def test_a_score_that_is_not_contested_stays() -> None:
    found = graded()
    assert counted(found, "failed") is found


def test_as_a_reward_it_stays() -> None:
    found = graded(contested=0.0)
    assert counted(found, "reward") is found


def test_as_failed_it_is_0_and_the_others_stay() -> None:
    found = counted(graded(contested=0.5), "failed")
    assert [score.value for score in found.scores] == [0.0, 1.0]
    assert found.reward == 0.75
    assert not found.scores[0].passed
    assert found.scores[0].contested == 0.5
    assert found.scores[0].detail == "so\n[counted as 0 instead of 1]"


def test_as_broken_it_has_no_reward_and_says_why() -> None:
    found = counted(graded(contested=0.0), "broken")
    assert found.reward is None
    assert found.failure is not None
    assert (found.failure.stage, found.failure.kind) == ("grading", "ContestedScore")
    assert found.failure.message == "so"
