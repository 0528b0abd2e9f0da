"""Recomputed chunks and credit of a stored run."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from ale.errors import InputError
from ale.runs import Registry, RunReader
from ale.testing.builders import episode, turn
from ale_look.inspect.recrediting import creditings, recredited

Write = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path, write: Write) -> RunReader:
    """Three tasks, two rollouts each."""
    made = [
        episode(float(rollout), turn("one"), turn("two"), task_id=f"t{task}", rollout=rollout)
        for task in range(3)
        for rollout in range(2)
    ]
    return RunReader(write(tmp_path / "run", made))


def test_credit_is_recomputed_by_several_schemes(run: RunReader, registry: Registry) -> None:
    compared = creditings(run, ["scaled:scale=0.5", "scaled"], registry)
    rows = list(recredited(run, compared))
    assert [rollout.episode.id for rollout, _ in rows] == [row.episode_id for row in run.credits()]
    stored = [row.credit.weights for row in run.credits()]
    assert [credits[1].weights for _, credits in rows] == stored
    assert [credits[0].weights for _, credits in rows] == [(0.5 * a, 0.5 * b) for a, b in stored]
    schemes = {tuple(credit.scheme for credit in credits) for _, credits in rows}
    assert schemes == {("scaled:scale=0.5", "scaled")}


def test_a_single_group_can_be_credited(run: RunReader, registry: Registry) -> None:
    rows = list(recredited(run, creditings(run, ["scaled"], registry), step=0, task_id="t1"))
    assert {rollout.episode.task_id for rollout, _ in rows} == {"t1"}
    assert len(rows) == 2


def test_a_run_can_be_chunked_by_another_chunker(run: RunReader, registry: Registry) -> None:
    (made,) = creditings(run, ["scaled"], registry, chunker="ale-parts/turns")
    assert made.chunker_name == "turns"
    with pytest.raises(InputError, match=r"--chunker: chunker\.type: no chunker 'whole'"):
        creditings(run, ["scaled"], registry, chunker="whole")


def test_a_wrong_option_of_a_scheme_is_a_problem(run: RunReader, registry: Registry) -> None:
    with pytest.raises(InputError, match=r"--scheme: credit\.gamma: unknown option"):
        creditings(run, ["scaled:gamma=1"], registry)


def test_no_more_than_a_group_is_in_memory(
    tmp_path: Path, write: Write, registry: Registry
) -> None:
    """Ten times the episodes, the same peak: what is allocated while they are credited."""

    def peak(tasks: int) -> int:
        made = [episode(1.0, turn("x" * 100_000), task_id=f"task-{i}") for i in range(tasks)]
        run = RunReader(write(tmp_path / str(tasks), made, credited=False))
        tracemalloc.start()
        for _ in recredited(run, creditings(run, ["scaled"], registry)):
            pass
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(100) < 1.5 * peak(10)
