"""`ale show forks`: the table of a stored run."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from click.testing import CliRunner, Result

from ale._store import Redactor, RunDirectory
from ale.errors import InputError
from ale.testing.builders import episode, turn
from ale.types import Episode, Turn
from ale_figures.forks import place_named
from ale_starts.commands import forks as command

SAID = ("ls", "cd work", "make", "finish")


def forced(number: int) -> Turn:
    answer = turn(f"say {SAID[number]}")
    return evolve(answer, completion=evolve(answer.completion, forced=True))


numbers = itertools.count()


def rollouts(task_id: str, start: str, *rewards: float | None, step: int = 0) -> Iterator[Episode]:
    """Episodes from a start, as a run stores them."""
    place = place_named(start)
    begun = [forced(i) for i in range(place.p)] if place else []
    for rollout, reward in enumerate(rewards):
        made = episode(reward, *begun, turn("own"), task_id=task_id, rollout=rollout)
        yield evolve(made, id=f"e{next(numbers)}", start=start, step=step)


def won(successes: int, n: int) -> list[float]:
    return [1.0] * successes + [0.0] * (n - successes)


MANIFEST = {"run_id": "demo", "n_tasks": 1, "config": {"chunker": {"type": "interaction"}}}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def made(*episodes: Episode) -> str:
        store = RunDirectory.create(tmp_path / "demo", MANIFEST, Redactor({}))
        for one in episodes:
            store.add_episode(one)
        store.close()
        return str(tmp_path / "demo")

    return made


def forks(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_the_command_shows_a_table_per_expert_with_its_crucial_fork(write: Any) -> None:
    run = write(
        *rollouts("t", "", *won(0, 12)),
        *rollouts("t", "p1of4", *won(12, 12)),
        *rollouts("t", "p3of4", *won(12, 12)),
        *rollouts("t", "demo", 1.0),
        *rollouts("plain", "", 1.0),
    )
    done = forks(run)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[:5] == [
        "t, expert of 4 turns",
        "after p   success  rate        95%  p-value  fork     the expert's next",
        "      0   0 of 12    0%    0 to 24  3.7e-07  crucial  say ls",
        "      1  12 of 12  100%  76 to 100        1           say cd work; say make",
        "      3  12 of 12  100%  76 to 100",
    ]
    assert "by Fisher's exact test, one-sided, at 0.05" in done.output
    assert "Started at their own beginning only: 1 task." in done.output
    assert "1 episode of other starts" in done.output
    assert "crucial  say ls" not in forks(run, "--level", "1e-9").output
    assert "expert of" not in forks(run, "--since", "1").output


def test_a_run_without_starts_and_a_task_that_is_not_there_are_said(write: Any) -> None:
    run = write(*rollouts("plain", "", 1.0), *rollouts("t", "p1of2", 1.0))
    assert forks(run, "--task", "t").output.startswith("t, expert of 2 turns")
    assert forks(run, "--task", "plain").output == (
        "No rollout started inside an expert's episode.\n"
        "Started at their own beginning only: 1 task.\n"
    )
    error = forks(run, "--task", "plane").exception
    assert isinstance(error, InputError)
    assert "did you mean 'plain'?" in str(error)


def test_a_run_that_is_none_is_bad_input(tmp_path: Path) -> None:
    assert isinstance(forks(str(tmp_path / "absent")).exception, InputError)


def test_a_turn_that_ruins_what_always_succeeded_is_marked(write: Any) -> None:
    run = write(
        *rollouts("t", "", *won(12, 12)),
        *rollouts("t", "p1of4", *won(0, 12)),
        *rollouts("t", "p2of4", *won(0, 12)),
        *rollouts("t", "p3of4", *won(1, 12)),
    )
    rows = [line.split("  ") for line in forks(run).output.splitlines()[2:6]]
    marked = [("harmful" in row, "crucial" in row) for row in rows]
    assert marked == [(True, False), (False, False), (False, False), (False, False)]
    assert "3.7e-07  harmful" in forks(run).output
