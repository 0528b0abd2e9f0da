"""Credit from a file of measured values."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from ale.errors import InputError
from ale.protocols import CreditScheme
from ale.testing.builders import turn
from ale.testing.credit import CreditContract, group_of, rollout
from ale.types import Trajectory
from ale.values import EpisodeValues, Measured, Values, write_values
from ale_credit.measured import NOT_MEASURED, Oracle
from ale_credit.options import OracleOptions


def file_of(folder: Path, *successes: Sequence[int]) -> Path:
    path = folder / "values.jsonl"
    measured = Measured(rollouts=4, policy="p", tokenizer="t", sandbox="s")
    episodes = {
        f"0-demo-{number}": EpisodeValues(
            episode_id=f"0-demo-{number}",
            task_id="demo",
            states=tuple(f"{number}.{k}" for k in range(len(won))),
            successes=tuple(won),
            trials=(*(4,) * (len(won) - 1), 1),
        )
        for number, won in enumerate(successes)
    }
    write_values(path, Values(measured=measured, episodes=episodes))
    return path


def test_a_chunk_weighs_v_after_minus_v_before(tmp_path: Path) -> None:
    scheme = Oracle(OracleOptions(values=file_of(tmp_path, [1, 3, 1], [2, 0, 0])))
    turns = Trajectory(turns=(turn("a"), turn("b")))
    one, other, unknown = scheme.assign(
        group_of([rollout(r, turns, i) for i, r in enumerate((1.0, 0.0, 1.0))])
    )
    assert one.weights == (0.5, 0.25)
    assert other.weights == (-0.5, 0.0)
    assert (unknown.weights, unknown.skipped) == ((0.0, 0.0), NOT_MEASURED)


def test_a_file_that_is_missing_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        Oracle(OracleOptions(values=tmp_path / "values.jsonl"))


class TestOracle(CreditContract):
    @pytest.fixture
    def scheme(self, tmp_path: Path) -> CreditScheme:
        return Oracle(OracleOptions(values=file_of(tmp_path)))
