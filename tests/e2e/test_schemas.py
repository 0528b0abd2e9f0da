"""The JSON Schemas against what is really there: configs, a run and data sets made of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ale.strict import read_yaml

ROOT = Path(__file__).parents[2]
PATIENCE_S = 600.0
"""How long the start of a process takes says nothing."""
# Those of ALE-lite, of ale loop and of compose have formats of their own.
OTHERS = {"local_lmstudio", "compose", "loop"}
CONFIGS = [
    path
    for path in sorted(ROOT.glob("configs/**/*.yaml"))
    if ".script" not in path.name and path.stem not in OTHERS
]


@pytest.fixture
def validator(workshop: Any) -> Any:
    """A validator of the schema that a command prints."""

    def of(name: str) -> Any:
        printed = workshop.succeeds("schema", name, timeout_s=PATIENCE_S)
        schema = json.loads(printed.out)
        jsonschema.Draft202012Validator.check_schema(schema)
        return jsonschema.Draft202012Validator(schema)

    return of


def lines(path: Path) -> Iterator[Any]:
    found = path.read_text().splitlines()
    assert found, path
    return map(json.loads, found)


def test_every_config_holds_to_the_schema_of_configs(validator: Any) -> None:
    check = validator("config")
    assert len(CONFIGS) >= 5
    for path in CONFIGS:
        plain = read_yaml(path).plain()
        # A fragment has no tasks; the schema names the installed components alone.
        if "tasks" in plain and "plugins" not in plain:
            check.validate(plain)
    wrong = {**read_yaml(ROOT / "configs" / "noop.yaml").plain(), "rum": {}}
    assert not check.is_valid(wrong)


def test_a_run_and_its_data_sets_hold_to_their_schemas(
    workshop: Any, validator: Any, shell: Any
) -> None:
    workshop.task("make")
    good, bad = shell("ls", "touch done"), shell("ls", "touch other")
    workshop.scripted({"tasks": {"make": [good, bad]}}, run={"rollouts": 2}, observers=[])

    def ale(*arguments: str) -> None:
        workshop.succeeds(*arguments, timeout_s=PATIENCE_S)

    ale("run", "run.yaml")
    (run,) = workshop.folder.glob("runs/*")
    validator("config").validate(json.loads((run / "manifest.json").read_text())["config"])
    for name, file in (
        ("task", "tasks.jsonl"),
        ("episode", "episodes.jsonl"),
        ("credited-episode", "credits/00000.jsonl"),
    ):
        check = validator(name)
        for line in lines(run / file):
            check.validate(line)
    ale("data", "collect", "runs", "--out", "episode.jsonl")
    ale("data", "score", "--in", "episode.jsonl", "--out", "scored.jsonl")
    for kind in ("dpo", "sft", "rl"):
        ale("data", kind, "--in", "scored.jsonl", "--out", f"{kind}.jsonl")
    for kind in ("episode", "scored", "dpo", "sft", "rl"):
        published = ROOT / "docs" / "reference" / f"rows-{kind}.schema.json"
        check = jsonschema.Draft202012Validator(json.loads(published.read_text()))
        for line in lines(workshop.folder / f"{kind}.jsonl"):
            check.validate(line)
