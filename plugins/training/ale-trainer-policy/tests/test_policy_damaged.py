"""A damaged checkpoint is refused before a step trains on it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ale.errors import StoreError
from ale.plugin import BuildContext
from ale.testing.trainer import credited_batch
from ale_trainer_policy.options import PolicyOptions
from ale_trainer_policy.plugin import ale_trainers
from ale_training import checkpoint


@pytest.fixture
def make_trainer(make_llm: Callable[..., Any], tmp_path: Path) -> Callable[[], Any]:
    component = next(each for each in ale_trainers() if each.name == "policy")

    def made() -> Any:
        options = PolicyOptions(lr=1e-3, objective="grpo")
        trainer = component.build(options, BuildContext(run_directory=tmp_path, seed=0))
        trainer.attach(make_llm())
        return trainer

    return made


async def test_tensors_of_another_step_are_refused(
    make_trainer: Callable[[], Any], tmp_path: Path
) -> None:
    trainer, folders = make_trainer(), [tmp_path / "0", tmp_path / "1"]
    for step, folder in enumerate(folders):
        await trainer.step(credited_batch(step))
        folder.mkdir()
        trainer.save(folder)
    shutil.copy(folders[0] / checkpoint.TENSORS, folders[1])
    with pytest.raises(StoreError, match=r"trainer\.safetensors is damaged or of another"):
        make_trainer().load(folders[1])
    make_trainer().load(folders[0])


def test_a_state_that_no_generator_has_is_refused(
    make_trainer: Callable[[], Any], tmp_path: Path
) -> None:
    make_trainer().save(tmp_path)
    path = tmp_path / checkpoint.STATE
    counters = json.loads(path.read_text())
    counters["generator"]["state"]["state"] = -3
    del counters["own_digest"]  # as an earlier version wrote it
    path.write_text(json.dumps(counters))
    with pytest.raises(StoreError, match="is incomplete"):
        make_trainer().load(tmp_path)
