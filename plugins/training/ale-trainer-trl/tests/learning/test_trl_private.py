"""The private methods of TRL that are overridden exist in this version, as they are called.

`nox -s trl` runs this package's tests with the oldest and the newest supported version of TRL.
"""

import inspect

import pytest
from trl import DPOTrainer, GRPOTrainer  # type: ignore[attr-defined]

from ale_trainer_trl.learning.groups import GroupTrainer
from ale_trainer_trl.learning.preference import PairTrainer

OVERRIDDEN = [
    (GRPOTrainer, GroupTrainer, "_generate_and_score_completions"),
    (DPOTrainer, PairTrainer, "_prepare_dataset"),
]


@pytest.mark.parametrize(("base", "ours", "name"), OVERRIDDEN)
def test_an_overridden_private_method_of_trl_still_exists(
    base: type, ours: type, name: str
) -> None:
    assert name in vars(base)
    assert name in vars(ours)


def test_completions_are_scored_from_the_inputs_alone() -> None:
    """`GroupTrainer` calls the overridden method with these parameters."""
    method = GRPOTrainer._generate_and_score_completions
    assert list(inspect.signature(method).parameters) == ["self", "inputs"]


def test_the_data_set_is_the_first_parameter_of_its_preparation() -> None:
    """`PairTrainer` returns it unchanged, and ignores the others."""
    parameters = list(inspect.signature(DPOTrainer._prepare_dataset).parameters)
    assert parameters[:2] == ["self", "dataset"]
