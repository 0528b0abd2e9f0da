"""Weights that are not contiguous in memory are restored like any others."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ale_trainer_policy.learner import Learner
from ale_trainer_policy.options import LearnOptions
from ale_training import checkpoint


@pytest.fixture
def weight(lab: Any) -> Any:
    """A learner, and a weight of it whose columns are contiguous instead of its rows."""
    model = lab.tiny_model()
    projection = model.model.layers[0].mlp.up_proj
    turned = projection.weight.detach().t().contiguous().t()
    projection.weight = torch.nn.Parameter(turned)
    return Learner(model, LearnOptions()), projection.weight


def test_an_update_is_undone(weight: Any) -> None:
    learner, parameter = weight
    before = parameter.detach().clone()
    learner.remember()
    with torch.no_grad():
        parameter.add_(1)
    learner.undo()
    assert torch.equal(parameter, before)


def test_a_checkpoint_is_read(weight: Any, tmp_path: Path) -> None:
    learner, parameter = weight
    before = parameter.detach().clone()
    state = checkpoint.State(trainer="policy", fingerprint="", version=0, updates=0)
    checkpoint.write(tmp_path, state, learner.state())
    with torch.no_grad():
        parameter.add_(1)
    learner.load(tmp_path, 0, {})
    assert torch.equal(parameter, before)
