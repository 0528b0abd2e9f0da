"""Rows are read from every kind of file, and tasks chosen from them."""

import json
import os
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from attrs import frozen

from ale.errors import InputError
from ale.types import Task
from ale_rows.task_rows import Origin, Row, RowTasks, rows_below, rows_from, rows_of

EXPECTED = "objects with id and question"
ROWS = [{"id": name, "question": f"What is {name}?"} for name in "abcdef"]


@frozen(kw_only=True)
class Options(Origin):
    """Nothing more."""


def make(row: Row) -> Task:
    return Task(id=row.text("id"), goal=row.text("question"))


def source(path: Path, **chosen: object) -> RowTasks:
    options = Options(path=path, **chosen)  # type: ignore[arg-type]
    rows = rows_from(options, lambda found: rows_below(found, EXPECTED), path, "test", EXPECTED)
    return RowTasks(options, rows, make)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return file


def test_a_pipe_in_a_folder_is_refused_unread(lines: Path) -> None:
    pipe = lines.parent / "zz.jsonl"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="is a pipe, not a file") as caught:
        list(rows_below(lines.parent, EXPECTED))
    assert caught.value.problems[0].file == str(pipe)


def test_parquet_json_and_json_lines_give_the_same_rows(lines: Path, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    for name in ("rows.jsonl", "rows.json", "rows.parquet"):
        assert [row.data for row in rows_of(tmp_path / name, EXPECTED)] == ROWS


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_text("id")
    with pytest.raises(InputError, match=r"rows.parquet.*can't be read"):
        list(source(tmp_path).load())


def test_ids_held_out_ids_and_a_limit_choose_tasks(lines: Path) -> None:
    chosen = source(lines, ids=("a", "[bcd]"), held_out=("c",), limit=2)
    assert [task.id for task in chosen.load()] == ["a", "b"]


def test_a_seed_shuffles_always_alike(lines: Path) -> None:
    orders = [[task.id for task in source(lines, shuffle=True, seed=s).load()] for s in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[2]) == list("abcdef")


def test_an_id_that_no_task_has_is_an_error_with_the_nearest_one(lines: Path) -> None:
    with pytest.raises(InputError, match="no task has the id 'aa'"):
        list(source(lines, ids=("aa",)).load())


def test_a_missing_library_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    options = Options(dataset="owner/name")
    rows = rows_from(options, lambda _: iter(()), Path(), "test", EXPECTED)
    with pytest.raises(InputError, match="pip install datasets"):
        list(rows())
