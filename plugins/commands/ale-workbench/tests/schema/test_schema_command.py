"""The command, and the schemas of stored lines against lines that the store wrote."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from ale._store import Redactor, RunDirectory
from ale.errors import InputError
from ale.runs import Registry
from ale.testing.builders import episode, task, turn
from ale.types import Chunk, Credit, CreditedEpisode, Span
from ale_workbench.schema.catalogue import made
from ale_workbench.schema.command import schema as command


@pytest.fixture
def printed() -> Callable[..., str]:
    """What the command prints."""

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(
            command, arguments, obj=Registry(), catch_exceptions=False, standalone_mode=False
        )
        return done.output

    return run


def test_without_a_name_it_lists_the_schemas(printed: Callable[..., str]) -> None:
    names = [line.split()[0] for line in printed().splitlines()[1:]]
    assert names[:4] == ["config", "task", "episode", "credited-episode"]
    for name in names:
        schema = json.loads(printed(name))
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["$id"] == f"urn:ale:{name}:1"


def test_an_unknown_name_is_rejected_with_a_suggestion(printed: Callable[..., str]) -> None:
    with pytest.raises(InputError, match="did you mean 'config'"):
        printed("cofnig")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory with a task, two episodes and a credit."""
    manifest = {"run_id": "r", "n_tasks": 1, "config": {"chunker": {"type": "x"}}}
    store = RunDirectory.create(tmp_path / "run", manifest, Redactor({}))
    store.add_task(task("t", solution=("ls",), metadata={"deep": [1, None]}))
    call = turn("Look.", calls=[("shell", '{"command": "ls"}')], observations=["a b"])
    graded = episode(1.0, call, task_id="t", rollout=0)
    store.add_episode(graded)
    store.add_episode(episode(None, task_id="t", rollout=1))
    chunk = Chunk(index=0, kind="k", spans=(Span(turn=0, text=(0, 5), calls=(0, 1)),))
    credit = Credit(
        episode_id=graded.id, scheme="s", rewards=(1.0,), returns=(1.0,), weights=(0.5,)
    )
    with store.writing_credits(0) as write:
        write(
            CreditedEpisode(
                episode_id=graded.id, task_id="t", chunker="x", chunks=(chunk,), credit=credit
            )
        )
    store.close()
    return store.path


@pytest.mark.parametrize(
    ("name", "file", "count"),
    [
        ("task", "tasks.jsonl", 1),
        ("episode", "episodes.jsonl", 2),
        ("credited-episode", "credits/00000.jsonl", 1),
    ],
)
def test_a_stored_line_holds_to_its_schema(run: Path, name: str, file: str, count: int) -> None:
    validator = jsonschema.Draft202012Validator(made(name, Registry()))
    lines = [json.loads(line) for line in (run / file).read_text().splitlines()]
    assert len(lines) == count
    for line in lines:
        validator.validate(line)
        assert not validator.is_valid({**line, "schema": 2})
        assert not validator.is_valid(_without(line, "task_id", "id", "episode_id"))


def _without(line: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in names}


def test_the_docstring_of_a_field_is_its_description() -> None:
    fields = made("task", Registry())["$defs"]["Task"]["properties"]
    assert fields["goal"]["description"] == "The prompt for the agent."
