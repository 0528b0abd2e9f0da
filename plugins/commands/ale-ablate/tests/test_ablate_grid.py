"""Cells from the command line, and the grid's own file."""

from pathlib import Path

import pytest

from ale.errors import InputError, StoreError
from ale_ablate.grid import Cell, Grid, cells_of, create, read, split
from ale_ablate.sweeping import values_of


def names(vary: list[str], cells: list[str] | None = None) -> list[str]:
    return [cell.name for cell in cells_of(vary, cells or [])]


def takes(section: str, type_: str, option: str) -> bool | None:
    if option == "type" or type_ == "unknown":
        return None
    return (type_, option) in {("ipa", "gamma"), ("ipa", "lambda"), ("gae", "lambda")}


def test_an_option_is_left_out_of_the_cells_of_a_type_that_does_not_have_it() -> None:
    vary = ["credit.type=ipa,grpo", "credit.gamma=0.9,1"]
    assert [cell.name for cell in cells_of(vary, [], takes)] == [
        "credit.type=ipa, credit.gamma=0.9",
        "credit.type=ipa, credit.gamma=1",
        "credit.type=grpo",
    ]
    several = ["credit.lambda=0,1", "credit.type=ipa,gae,grpo", "run.rollouts=4"]
    assert [cell.name for cell in cells_of(several, [], takes)][-1] == (
        "credit.lambda=1, credit.type=gae, run.rollouts=4"
    )
    assert len(cells_of(several, [], takes)) == 5


def test_an_option_that_no_type_has_is_kept_so_that_the_check_reports_it() -> None:
    for type_ in ("grpo", "unknown"):
        vary = [f"credit.type=ipa,{type_}", "credit.gama=0.9,1"]
        assert len(cells_of(vary, [], takes)) == 4


def test_every_combination_is_a_cell_in_the_order_of_the_values() -> None:
    assert names(["a.x=1,2", "b=u,v"]) == ["a.x=1, b=u", "a.x=1, b=v", "a.x=2, b=u", "a.x=2, b=v"]


def test_commas_in_brackets_and_quotes_do_not_separate() -> None:
    assert split("a,{type: b, c: [1, 2]},'d,e'") == ["a", "{type: b, c: [1, 2]}", "'d,e'"]
    assert names(["credit={type: ipa, gamma: 1},{type: grpo}"]) == [
        "credit={type: ipa, gamma: 1}",
        "credit={type: grpo}",
    ]


def test_explicit_cells_work_with_and_without_a_grid() -> None:
    assert names([], ["a=1; b=2", "a=2"]) == ["a=1, b=2", "a=2"]
    assert names(["a=1,2"], ["c=3"]) == ["a=1", "a=2", "c=3"]
    assert names([]) == ["as written"]


def test_all_problems_of_the_command_line_are_reported_at_once() -> None:
    with pytest.raises(InputError) as caught:
        cells_of(["a", "b=1,,2", "run.seed=1,2", "c=1,1"], ["d"])
    message = str(caught.value)
    for expected in (
        "found 'a'",
        "found 'b=1,,2'",
        "run.seed can't be varied",
        "found 'd'",
        "given twice",
    ):
        assert expected in message


@pytest.mark.parametrize("key", ["run.seed", "run.name", "run.directory"])
def test_what_every_run_has_of_its_own_is_in_no_cell(key: str) -> None:
    with pytest.raises(InputError, match=f"{key} can't be varied"):
        cells_of([f"{key}=1,2"], [])
    with pytest.raises(InputError, match=f"{key} can't be varied"):
        cells_of([], ["a=1", f"a=2; {key}=1"])
    with pytest.raises(InputError, match=f"{key} can't be varied"):
        values_of(f"{key}=1,2")


def test_a_key_given_twice_is_an_error() -> None:
    with pytest.raises(InputError, match="the key 'a' is given twice"):
        cells_of(["a=1", "a=2"], [])


def grid(path: object, **changed: object) -> Grid:
    plain = {
        "path": path,
        "name": "study",
        "created": "now",
        "source": "study.yaml",
        "overrides": ("x=1",),
        "cells": (Cell.of(1, ["a='ü'"]), Cell.of(2, ["b=/etc/passwd"])),
        "seeds": (0, 1),
        "versions": {"ale-core": "0.1.0"},
    }
    return Grid(**{**plain, **changed})


def test_a_grid_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = grid(tmp_path / "g")
    create(made, [{"a": "off", "n": 1e-6}, {"a": None}])
    assert made.path.stat().st_mode & 0o777 == 0o700, "nobody else reads it"
    assert read(made.path) == made
    assert [cell.folder for cell in made.cells] == ["01-a", "02-b-etc-passwd"]
    text = made.config(made.cells[0]).read_text()
    assert text == "# a='ü': the whole config\na: 'off'\nn: 1.0e-06\n"
    with pytest.raises(StoreError, match="File exists"):
        create(made, [{}, {}])


def test_a_folder_that_is_not_a_grid_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "g"
    with pytest.raises(InputError, match="no such directory"):
        read(path)
    path.mkdir()
    with pytest.raises(InputError, match="not a grid's folder"):
        read(path)
    (path / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="it is a single run: ale run --resume"):
        read(path)
    for text in ("{", "[]", '{"schema": 1}', '{"schema": 2}'):
        (path / "grid.json").write_text(text)
        with pytest.raises(InputError, match=r"can't be read|schema 2"):
            read(path)
