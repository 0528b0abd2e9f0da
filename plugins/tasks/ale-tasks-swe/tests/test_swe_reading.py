"""The published format, what the options choose of it, and what is wrong with it."""

import json
from pathlib import Path
from typing import Any

import pytest

from ale.errors import InputError
from ale.types import Task
from ale_tasks_swe.options import SweOptions
from ale_tasks_swe.source import swe


@pytest.fixture
def rows(samples: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (samples / "tasks.jsonl").read_text().splitlines()]


@pytest.fixture
def load(samples: Path, cache: Path, tmp_path: Path) -> Any:
    """Loads rows with options."""

    def load(rows: list[dict[str, Any]], name: str = "test.jsonl", **options: Any) -> list[Task]:
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        given = {"path": tmp_path / name, "mirrors": samples / "repositories", "cache": cache}
        return list(swe(SweOptions(**(given | options))).load())

    return load


def test_lists_of_tests_are_lists_or_texts_that_hold_one(load: Any, rows: Any) -> None:
    as_lists = [
        row | {key: json.loads(row[key]) for key in ("FAIL_TO_PASS", "PASS_TO_PASS")}
        for row in rows
    ]
    named = load(rows)
    assert [t.criteria[0].options for t in load(as_lists)] == [t.criteria[0].options for t in named]
    assert (
        named[0].criteria[0].options["fail_to_pass"][-1] == "tests/test_ranges.py::test_round_trip"
    )


def test_a_task_has_the_issue_the_repository_and_the_reference_solution(
    load: Any, rows: Any
) -> None:
    task = load(rows)[0]
    assert task.id == "samples__ranges-1"
    assert task.goal.startswith("`parse` leaves out the last page\n")
    assert task.goal.endswith(
        "Change its code so that the issue is resolved. Hidden tests will be run.\n"
    )
    assert (Path(task.files) / "ranges" / "parsing.py").exists()
    assert task.solution[0].startswith("git apply --whitespace=nowarn - <<'ALE_PATCH'\ndiff --git")
    assert task.criteria[0].options["keep"] == ["ranges/parsing.py"]
    assert (task.tags, task.environment.image) == (("swe", "samples/ranges"), None)
    assert task.environment_kind == "swe"


def test_ids_a_limit_and_held_out_ids_choose_tasks(load: Any, rows: Any) -> None:
    chosen = load(rows, ids=("samples__[rst]*",), held_out=("*slugs*",), limit=2)
    assert [task.id for task in chosen] == ["samples__ranges-1", "samples__table-1"]


def test_a_folder_has_a_file_for_each_split(
    load: Any, rows: Any, samples: Path, tmp_path: Path
) -> None:
    load(rows[:1], "dev.jsonl")
    load(rows[1:2], "test-00000-of-00001.jsonl")
    common = {"mirrors": samples / "repositories", "path": tmp_path, "cache": tmp_path / "c"}
    for split, name in (("dev", "ranges"), ("test", "slugs")):
        tasks = list(swe(SweOptions(split=split, **common)).load())
        assert [task.id for task in tasks] == [f"samples__{name}-1"]
    with pytest.raises(InputError, match=r"no file of the split 'train', such as train.jsonl"):
        list(swe(SweOptions(split="train", **common)).load())


def test_images_setup_and_prompt_take_fields_of_the_row(load: Any, rows: Any) -> None:
    row = rows[0] | {"instance_id": "A__b-1", "hints_text": "Look here.", "extra": "e:1"}
    (task,) = load(
        [row],
        image="eval.{image_key}:{version}-{extra}",
        setup=("pip install {repo}",),
        prompt="{hints_text} {problem_statement}",
    )
    assert task.environment.image == "eval.a_1776_b-1:1.0-e:1"
    assert task.setup_steps == ("pip install samples/ranges",)
    assert task.goal.startswith("Look here. `parse`")


@pytest.mark.parametrize("field", ["patch", "test_patch", "FAIL_TO_PASS", "absent"])
def test_the_agent_can_not_be_told_the_solution_or_the_tests(
    load: Any, rows: Any, field: str
) -> None:
    with pytest.raises(InputError, match=rf"\{{{field}\}} in the option 'prompt' is not a field"):
        load(rows, prompt=f"{{{field}}}")


def test_a_repository_of_the_image_gets_a_history_of_one_commit(load: Any, rows: Any) -> None:
    (task,) = load(rows[:1], repository="image", image="x", setup=("make",))
    assert task.files is None
    assert task.setup_steps[0].startswith("rm -rf .git && git init")
    assert task.setup_steps[1] == "make"
    assert task.environment.workdir == "."
    with pytest.raises(InputError, match="needs the option 'image'"):
        load(rows, repository="image")


@pytest.mark.parametrize(
    ("grading", "message"),
    [
        ({"tmeout_s": 9}, "tmeout_s: unknown option; did you mean 'timeout_s'\\?"),
        ({"timeout_s": "9"}, 'timeout_s: expected a number, found the text "9"'),
        ({"timeout_s": 0}, "timeout_s: expected a value > 0, found 0"),
        ({"timeout_s": 9, "prefer": "workspace"}, None),
    ],
)
def test_an_option_for_the_criterion_is_checked_once_and_not_for_every_row(
    grading: dict[str, Any], message: str | None
) -> None:
    if message is None:
        SweOptions(sample=True, grading=grading)
        return
    with pytest.raises(ValueError, match=message):
        SweOptions(sample=True, grading=grading)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"base_commit": "main"}, "expected the whole id of a commit, found 'main'"),
        ({"repo": "../x"}, "expected OWNER/NAME, found '../x'"),
        ({"FAIL_TO_PASS": "test_a"}, "the text is not a JSON list"),
        ({"FAIL_TO_PASS": "{}"}, "expected a JSON list of texts"),
        ({"PASS_TO_PASS": None}, "'PASS_TO_PASS' is null"),
        ({"base_commit": "0" * 40}, "has no commit 0000"),
        ({"repo": "samples/absent"}, "there is no repository samples/absent"),
    ],
)
def test_a_wrong_row_is_an_error_with_its_place(
    load: Any, rows: Any, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load([rows[0], rows[1] | changed])
    assert caught.value.problems[0].line == 2
