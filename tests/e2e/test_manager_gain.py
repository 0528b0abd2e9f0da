"""A tiny manager learns which feedback helps: tests/study/manager_gain.py with one seed."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.needs("torch")


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "study"))
    return importlib.import_module("manager_gain")


def test_a_manager_learns_which_of_three_feedbacks_helps(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without chance: the worker finds the harbour where it is told the right way, and else not."""
    monkeypatch.setattr(study, "ROLLOUTS", 16)
    chances = {study.HELPS: 1.0, study.HARMS: 0.0, study.NEUTRAL: 0.0}
    shares = study.study(tmp_path, 1, shuffled=False, rounds=4, chances=chances)
    assert len(shares) == 4
    assert shares[0] < 0.6, "it begins without a preference"
    assert shares[-1] > shares[0] + 0.2
