"""Schemes scored against measured values of a stored run."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from ale.errors import InputError
from ale.testing.credit import known_worth
from ale.values import NAME, Measured, Values, write_values

Ale = Callable[..., Result]
Write = Callable[..., Path]


@pytest.fixture
def run(write: Write, tmp_path: Path) -> Path:
    """Episodes whose values are known."""
    groups, values = known_worth(rollouts=32, seed=0)
    episodes = [rollout.episode for group in groups for rollout in group.rollouts]
    path = write(tmp_path / "run", episodes)
    write_values(path / NAME, values)
    return path


def test_schemes_are_scored_and_what_knows_values_is_first(ale: Ale, run: Path) -> None:
    done = ale("show", "credit", str(run), "--against", "values", "--scheme", "scaled:scale=2")
    assert done.exit_code == 0, done.output
    assert "64 episodes of 8 tasks, 256 chunks; 32 rollouts from each state" in done.output
    assert re.search(r"ceiling of the correlation, by split halves: 0\.[89]", done.output)
    table = done.output.splitlines()[1:]
    assert table[1].startswith("(oracle)")
    own = next(line for line in table if line.startswith("scaled:scale=2"))
    assert "  50%  " in own


def test_without_a_scheme_every_installed_one_is_scored(ale: Ale, run: Path) -> None:
    done = ale("show", "credit", str(run), "--against", "values")
    assert done.exit_code == 0, done.output
    assert any(line.startswith("scaled ") for line in done.output.splitlines())


def test_values_that_are_not_measured_are_asked_for(ale: Ale, run: Path) -> None:
    measured = Measured(rollouts=4, policy="", tokenizer="", sandbox="")
    write_values(run / NAME, Values(measured=measured, episodes={}))
    error = ale("show", "credit", str(run), "--against", "values").exception
    assert isinstance(error, InputError)
    assert "not all measured" in str(error)
    (run / NAME).unlink()
    error = ale("show", "credit", str(run), "--against", "values").exception
    assert "ale data values RUN measures" in str(error)
