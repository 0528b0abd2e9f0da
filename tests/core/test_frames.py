"""Stored runs as tables: `ale.runs.frame`."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ale._store import Redactor, RunDirectory
from ale.errors import InputError, NotUsableError
from ale.runs import RunReader, add_note, frame
from ale.testing.builders import turn
from ale.types import Completion, Episode, Failure, Message, Note, TokenTrace, Trajectory, Turn

pytest.importorskip("pyarrow")


@pytest.fixture
def run(workplace: Any, finish: Callable[[Any], Any]) -> RunReader:
    """Three tasks, two rollouts each, done by the bench."""
    prepared = workplace.prepared(workplace.config(3, rollouts=2))
    asyncio.run(finish(prepared))
    return RunReader(prepared.store.path)


def test_each_record_is_a_row_with_the_values_that_are_stored(run: RunReader) -> None:
    episodes = frame(run).to_pylist()
    stored = [*run.episodes]
    assert [(e["id"], e["reward"], e["turns"]) for e in episodes] == [
        (e.id, e.reward, len(e.turns)) for e in stored
    ]
    assert {e["run"] for e in episodes} == {run.manifest["run_id"]}
    assert frame(run, "turns").num_rows == sum(len(e.turns) for e in stored)
    wanted = [
        (row.episode_id, chunk.index, weight)
        for row in run.credits()
        for chunk, weight in zip(row.chunks, row.credit.weights, strict=True)
    ]
    chunks = frame(run, "chunks").to_pylist()
    assert [(c["episode"], c["chunk"], c["weight"]) for c in chunks] == wanted
    assert wanted


def test_several_runs_make_one_table_by_path_too(run: RunReader) -> None:
    both = frame([run, str(run.path)])
    assert both.num_rows == 12
    assert frame([]).num_rows == 0
    assert frame([]).column_names == both.column_names


def test_types_hold_where_the_first_rows_have_no_value(run: RunReader, tmp_path: Path) -> None:
    store = RunDirectory.create(
        tmp_path / "other", {**run.manifest, "run_id": "other"}, Redactor({})
    )
    trace = TokenTrace(
        prompt_ids=(1,), output_ids=(5, 6), logprobs=(-0.5, -0.25), policy_versions=(3, 4)
    )
    sampled = Turn(completion=Completion(message=Message(role="assistant"), tokens=trace))
    failure = Failure(stage="agent", kind="LLMError", message="gone")
    store.add_episode(Episode(id="0-a-0", task_id="a", reward=None, failure=failure))
    trajectory = Trajectory(turns=(turn("x"), sampled))
    store.add_episode(
        Episode(id="0-a-1", task_id="a", rollout=1, reward=0.5, trajectory=trajectory)
    )
    store.add_event("step_finished", 1.0, step=0, metrics={"loss": 2})
    store.add_event("step_finished", 2.0, step=1, metrics={"entropy": 0.5})
    store.close()
    broken, graded = frame(store.path).to_pylist()
    assert (broken["reward"], broken["success"], broken["failure_kind"]) == (None, None, "LLMError")
    assert (graded["reward"], graded["success"], graded["failure_kind"]) == (0.5, False, None)
    tokens = frame(store.path, "tokens").to_pylist()
    assert [(t["turn"], t["position"], t["token"]) for t in tokens] == [(1, 0, 5), (1, 1, 6)]
    assert [(t["logprob"], t["policy_version"]) for t in tokens] == [(-0.5, 3), (-0.25, 4)]
    assert frame(store.path, "steps").to_pylist() == [
        {"run": "other", "step": 0, "at": 1.0, "entropy": None, "loss": 2.0},
        {"run": "other", "step": 1, "at": 2.0, "entropy": 0.5, "loss": None},
    ]


def test_notes_are_rows_where_they_are_on_a_stored_episode(run: RunReader) -> None:
    assert frame(run, "notes").num_rows == 0
    first = next(iter(run.episodes))
    for note in (
        Note(id="a", at=9e9, episode=first.id, turn=0, label="odd", comment="x", by="Ada"),
        Note(id="b", at=9e9, episode=first.id, verdict="bad"),
        Note(id="c", at=9e9, episode="0-gone-0", verdict="good"),
    ):
        add_note(run.path, note)
    odd, bad = frame(run, "notes").to_pylist()
    told = {"run": run.manifest["run_id"], "episode": first.id, "task_id": first.task_id}
    told |= {"step": 0, "at": 9e9}
    said = {"turn": 0, "label": "odd", "comment": "x", "verdict": None, "by": "Ada", "id": "a"}
    assert odd == told | said
    assert (bad["turn"], bad["verdict"], bad["id"]) == (None, "bad", "b")


def test_more_rows_than_a_batch_are_all_there(
    run: RunReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale._store.frames._BATCH", 4)
    assert frame(run).num_rows == 6


def test_another_table_is_refused_and_pyarrow_named_where_it_is_missing(
    run: RunReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="did you mean 'turns'"):
        frame(run, "turn")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(NotUsableError, match="pip install 'pyarrow>=17'"):
        frame(run)
