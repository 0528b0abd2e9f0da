"""A checkpoint is read by the trainer and for the model that wrote it, and by no other."""

import resource
from pathlib import Path

import msgspec
import pytest
import torch

from ale.errors import StoreError
from ale_training import checkpoint


class Counted(checkpoint.State):
    bad_steps: int


WRITTEN = Counted(trainer="policy", fingerprint="tiny", version=3, updates=4, bad_steps=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    weights = torch.arange(6.0).reshape(2, 3)
    checkpoint.write(tmp_path, WRITTEN, {"weight/a": weights.T, "optimizer/a": weights})
    return tmp_path


def test_what_was_written_is_read(folder: Path) -> None:
    state, tensors = checkpoint.read(folder, Counted, trainer="policy", fingerprint="tiny")
    assert msgspec.structs.replace(state, digest=None, own_digest=None) == WRITTEN
    assert tensors["weight/a"].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert list(checkpoint.read_weights(folder)) == ["a"]
    assert sorted(each.name for each in folder.iterdir()) == [
        "trainer.json",
        "trainer.safetensors",
    ], "nothing partial is left"


def test_one_of_another_trainer_is_refused_whatever_its_fields(folder: Path) -> None:
    with pytest.raises(StoreError, match="of trainer policy, schema 1; not of trainer dpo"):
        checkpoint.read(folder, checkpoint.State, trainer="dpo", fingerprint="tiny")


def test_one_of_another_model_is_refused_by_both_names(folder: Path) -> None:
    with pytest.raises(StoreError, match="its fingerprint is tiny, and this model's is other"):
        checkpoint.read(folder, Counted, trainer="policy", fingerprint="other")


def test_a_folder_without_one_or_with_half_of_one_is_refused(folder: Path, tmp_path: Path) -> None:
    absent = r"is no checkpoint of trainer policy: trainer\.json: No such file"
    with pytest.raises(StoreError, match=absent):
        checkpoint.read(tmp_path / "empty", Counted, trainer="policy", fingerprint="tiny")
    (folder / checkpoint.TENSORS).write_bytes(b"half")
    with pytest.raises(StoreError, match=r"trainer\.safetensors is damaged"):
        checkpoint.read(folder, Counted, trainer="policy", fingerprint="tiny")
    (folder / checkpoint.TENSORS).unlink()
    with pytest.raises(StoreError, match=r"trainer\.safetensors can't be read"):
        checkpoint.read(folder, Counted, trainer="policy", fingerprint="tiny")
    with pytest.raises(StoreError, match=r"trainer\.safetensors can't be read"):
        checkpoint.read_weights(folder)


def test_values_that_have_changed_are_refused(folder: Path) -> None:
    path = folder / checkpoint.TENSORS
    path.write_bytes(path.read_bytes()[:-1] + b"\0")  # of a value: it can still be read
    checkpoint.read_weights(folder)
    with pytest.raises(StoreError, match=r"trainer\.safetensors is damaged or of another"):
        checkpoint.read(folder, Counted, trainer="policy", fingerprint="tiny")


def test_counters_that_have_changed_are_refused(folder: Path) -> None:
    path = folder / checkpoint.STATE
    path.write_text(path.read_text().replace('"updates":4', '"updates":400'))
    with pytest.raises(StoreError, match=r"trainer\.json was changed after it was written"):
        checkpoint.read(folder, Counted, trainer="policy", fingerprint="tiny")


def test_one_without_a_digest_is_read(folder: Path) -> None:
    (folder / checkpoint.STATE).write_bytes(msgspec.json.encode(WRITTEN))
    state, _ = checkpoint.read(folder, Counted, trainer="policy", fingerprint="tiny")
    assert state == WRITTEN


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, allowed[1]))
    try:
        with pytest.raises(StoreError, match=r"trainer\.safetensors can't be written"):
            checkpoint.write(tmp_path, WRITTEN, {"weight/a": torch.zeros(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
    assert list(tmp_path.iterdir()) == []
