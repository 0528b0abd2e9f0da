"""The published JSON Schema: up to date, and of one mind with the reader."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ale.errors import InputError
from ale.strict import parse_yaml
from ale_tasks_tbp.reader import read_task
from ale_tasks_tbp.schema import json_schema

ROOT = Path(__file__).resolve().parents[4]
COMMITTED = ROOT / "docs" / "reference" / "tbp-task.schema.json"
SHIPPED = sorted(
    path
    for path in (ROOT / "tasks").rglob("*.yaml")
    if path.name == "task.yaml" or path.parent.name == "tbp_examples"
)
GOOD = "id: a\ngoal: go\nsuccess_criteria: [{type: t, weight: 2, anything: [1]}]\n"


def validator() -> Any:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    return jsonschema.Draft202012Validator(json_schema())


def test_the_committed_schema_is_up_to_date() -> None:
    assert json.loads(COMMITTED.read_text()) == json_schema(), (
        f"run: python -m ale_tasks_tbp.schema > {COMMITTED.relative_to(ROOT)}"
    )


def test_there_are_tasks_to_validate() -> None:
    assert len(SHIPPED) >= 28


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(ROOT / "tasks")))
def test_a_shipped_task_validates(path: Path) -> None:
    validator().validate(parse_yaml(path.read_text()).plain())


@pytest.mark.parametrize(
    "change",
    [
        "id: 'a b'",
        "id: -a",
        "id: 1",
        "goal: ''",
        "goal: ' '",
        "success_criteria: []",
        "success_criteria: [{weight: 1}]",
        "success_criteria: [{type: t, weight: 0}]",
        "success_criteria: [{type: t, weight: heavy}]",
        "tags: files",
        "tags: ['']",
        "setup_steps: [1]",
        "constraints: {max_steps: 0}",
        "constraints: {max_steps: 1.5}",
        "constraints: {network: 'off'}",
        "constraints: {steps: 1}",
        "environment: {env: {A: 1}}",
        "keep_processes: 1",
        "solution: ls",
        "goals: go",
    ],
)
def test_schema_and_reader_refuse_the_same(tmp_path: Path, change: str) -> None:
    key = change.partition(":")[0]
    kept = [line for line in GOOD.splitlines() if not line.startswith(f"{key}:")]
    text = "\n".join([*kept, change, ""])
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(InputError):
        read_task(tmp_path / "t.yaml")
    assert not validator().is_valid(parse_yaml(text).plain())


@pytest.mark.parametrize(
    "more",
    [
        "",
        "tags: [a]\nsolution: [ls]\nmetadata: {deep: {er: [1, null]}}\n",
        "constraints: {network: null, time_limit_s: 0.5, max_steps: 1}\nenvironment: {cpus: 0.5}\n",
        "solution: null\nkeep_processes: true\n",
    ],
)
def test_schema_and_reader_accept_the_same(tmp_path: Path, more: str) -> None:
    (tmp_path / "t.yaml").write_text(GOOD + more)
    assert read_task(tmp_path / "t.yaml").task.id == "a"
    validator().validate(parse_yaml(GOOD + more).plain())
