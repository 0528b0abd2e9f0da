"""The output folder of a training: its lock, a full disk, damaged checkpoints."""

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from ale.errors import InputError, StoreError
from ale_trainer_trl.learning import DpoTraining, LoraOptions, Progress, StoppedError, train
from ale_trainer_trl.learning.models import load_model
from ale_trainer_trl.learning.output import identity

# PEFT asks transformers under a name that is on its way out.
pytestmark = pytest.mark.filterwarnings("ignore:.*will be removed in v6:FutureWarning")


@pytest.fixture
def asked(base: Path, tmp_path: Path, write_rows: Callable[..., Path], lab: Any) -> DpoTraining:
    """Eight updates, with a checkpoint after every second."""
    return DpoTraining(
        model_name_or_path=str(base),
        dataset_path=write_rows(lab.preferences(32, seed=0)),
        output_dir=tmp_path / "out",
        device="cpu",
        save_steps=2,
        lora=LoraOptions(r=4),
    )


def stopped_after(n: int) -> Callable[[], bool]:
    calls = iter(range(1, 100))
    return lambda: next(calls) == n


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 3e-3},
        {"epochs": 7},
        {"batch_size": 3},
        {"gradient_accumulation": 3},
        {"max_grad_norm": 0.3},
        {"seed": 9},
        {"beta": 0.3},
        {"loss": "ipo"},
        {"max_length": 99},
        {"lora": None},
        {"model_name_or_path": "another"},
    ],
)
def test_a_training_with_another_value_of_what_makes_the_weights_is_another(
    asked: DpoTraining, change: dict[str, Any]
) -> None:
    assert identity(evolve(asked, **change), "data") != identity(asked, "data")
    assert identity(asked, "other data") != identity(asked, "data")
    free = {"save_steps": 5, "log_steps": 5, "resume": "never", "merge": True}
    assert identity(evolve(asked, **free), "data") == identity(asked, "data")


def test_a_second_training_in_the_folder_is_refused_and_the_first_goes_on(
    asked: DpoTraining, tmp_path: Path
) -> None:
    code = """
import sys
from pathlib import Path
from ale.errors import StoreError
from ale_trainer_trl.learning.output import claimed
try:
    with claimed(Path(sys.argv[1])):
        print("claimed")
except StoreError as error:
    print(error)
"""
    said = []

    def listener(each: Progress) -> None:
        if each.step == 1:
            command = [sys.executable, "-c", code, str(asked.output_dir)]
            said.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert train(asked, progress=listener).steps == 8
    (text,) = said
    assert text.startswith(f"{asked.output_dir} is in use by process ")
    # The lock ends with the training.
    assert train(asked).already_trained


def test_a_layer_that_peft_can_not_adapt_is_named_and_the_folder_is_free_for_other_options(
    asked: DpoTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_odd_layer(training: DpoTraining) -> Any:
        model = load_model(evolve(training, lora=None))
        model.odd = torch.nn.Bilinear(2, 2, 2)
        return model

    with monkeypatch.context() as patched:
        patched.setattr("ale_trainer_trl.learning.engine.load_model", with_odd_layer)
        with pytest.raises(InputError, match=r"^lora\.target: .*Bilinear.* is not supported"):
            train(evolve(asked, lora=LoraOptions(target=("odd",))))
    assert train(evolve(asked, lora=LoraOptions(target=("q_proj",)), max_steps=1)).steps == 1


@pytest.mark.parametrize("name", ["optimizer.pt", "rng_state.pth", "adapter_model.safetensors"])
def test_a_checkpoint_that_was_cut_off_is_named(asked: DpoTraining, name: str) -> None:
    with pytest.raises(StoppedError):
        train(asked, stop=stopped_after(5))
    assert not (asked.output_dir / "README.md").exists(), "the model is not trained yet"
    path = asked.output_dir / "checkpoint-5" / name
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(StoreError, match=rf"checkpoint-5/{name} is damaged: .*checkpoint-5, the"):
        train(asked)
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()
    assert train(asked).resumed_from == 4


def test_a_disk_without_room_is_an_error_and_the_training_resumes(asked: DpoTraining) -> None:
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(each: Progress) -> None:
        if each.step == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, unlimited[1]))

    try:
        with pytest.raises(StoreError, match=r"out can't be written: .* MB are free"):
            train(asked, progress=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert train(asked).resumed_from == 2


def test_a_folder_that_can_not_be_made_is_named(asked: DpoTraining) -> None:
    with pytest.raises(StoreError, match=r"^/proc/out can't be written: "):
        train(evolve(asked, output_dir=Path("/proc/out")))
