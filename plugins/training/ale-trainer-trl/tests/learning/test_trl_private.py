"""The private methods of TRL that are overridden exist in this version, as they are called.

`nox -s trl` runs this package's tests with the oldest and the newest supported version of TRL.
"""

import importlib.metadata
import inspect
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from trl import DPOTrainer, GRPOTrainer  # type: ignore[attr-defined]

from ale_trainer_trl.learning.groups import GroupTrainer
from ale_trainer_trl.learning.preference import PairTrainer
from ale_trainer_trl.learning.prompts import PromptTrainer

OVERRIDDEN = [
    (GRPOTrainer, GroupTrainer, "_generate_and_score_completions"),
    (GRPOTrainer, PromptTrainer, "_generate_and_score_completions"),
    (GRPOTrainer, PromptTrainer, "_tokenize_prompts"),
    (DPOTrainer, PairTrainer, "_prepare_dataset"),
]


@pytest.mark.parametrize(("base", "ours", "name"), OVERRIDDEN)
def test_an_overridden_private_method_of_trl_still_exists(
    base: type, ours: type, name: str
) -> None:
    assert name in vars(base)
    assert name in vars(ours)


def test_completions_are_scored_from_the_inputs_alone() -> None:
    """`GroupTrainer` and `PromptTrainer` call the overridden method with these parameters."""
    method = GRPOTrainer._generate_and_score_completions
    assert list(inspect.signature(method).parameters) == ["self", "inputs"]


def test_prompts_are_tokenised_from_themselves_alone() -> None:
    """`PromptTrainer` renders the prompts of the inputs, which are scored in the same call."""
    method = GRPOTrainer._tokenize_prompts
    assert list(inspect.signature(method).parameters) == ["self", "prompts"]


def test_the_data_set_is_the_first_parameter_of_its_preparation() -> None:
    """`PairTrainer` returns it unchanged, and ignores the others."""
    parameters = list(inspect.signature(DPOTrainer._prepare_dataset).parameters)
    assert parameters[:2] == ["self", "dataset"]


def _least(requirements: list[str]) -> dict[str, Version]:
    """The lowest version that these need of each distribution, without extras."""
    needs = map(Requirement, requirements)
    return {
        need.name: Version(part.version)
        for need in needs
        if need.marker is None
        for part in need.specifier
        if part.operator == ">="
    }


def test_nothing_older_than_the_oldest_trl_takes_is_declared() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    ours, version = _least(project["dependencies"]), Version(importlib.metadata.version("trl"))
    if version.release[:2] != ours["trl"].release[:2]:
        pytest.skip(f"TRL {version} is not the oldest that is supported")
    theirs = _least(importlib.metadata.requires("trl") or [])
    assert {"datasets", "pyarrow"} <= theirs.keys() & ours.keys()
    assert {
        name: str(ours[name]) for name in theirs if ours.get(name, theirs[name]) < theirs[name]
    } == {}
