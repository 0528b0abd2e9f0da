"""The config: files that extend each other, overrides, and every problem with its place."""

from pathlib import Path

import pytest

from ale._config import RunConfig, load_config
from ale._registry import Registry
from ale.errors import InputError

BASE = "tasks: {type: list, n: 3}\nagent: {type: bench}\n"


def load(tmp_path: Path, registry: Registry, text: str, *overrides: str) -> RunConfig:
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "c.yaml").write_text(text)
    return load_config(tmp_path / "c.yaml", registry, overrides)


def problems(tmp_path: Path, registry: Registry, text: str, *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        load(tmp_path, registry, text, *overrides)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_what_is_not_written_has_its_default(tmp_path: Path, registry: Registry) -> None:
    config = load(tmp_path, registry, BASE)
    assert (config.sandbox.name, config.chunker.name, config.credit.name) == (
        "folder",
        "interaction",
        "ipa",
    )
    assert config.llm is None
    assert config.run.rollouts == 1


def test_a_config_extends_another_key_by_key(tmp_path: Path, registry: Registry) -> None:
    config = load(tmp_path, registry, "extends: base.yaml\nrun: {rollouts: 4}\n")
    assert config.tasks.options.n == 3
    assert config.run.rollouts == 4


def test_an_override_wins_over_the_file(tmp_path: Path, registry: Registry) -> None:
    assert load(tmp_path, registry, BASE, "tasks.n=7").tasks.options.n == 7


def test_another_type_drops_the_options_of_the_old_one(tmp_path: Path, registry: Registry) -> None:
    text = "extends: base.yaml\ntasks: {type: ale-bench/list}\n"
    assert load(tmp_path, registry, text).tasks.options.n == 1


def test_problems_of_all_sections_are_reported_at_once(tmp_path: Path, registry: Registry) -> None:
    said = problems(tmp_path, registry, "taks: {}\nagent: {type: bensh}\nrun: {rollout: 2}\n")
    assert "c.yaml:1: taks: unknown section" in said
    assert "did you mean 'tasks'?" in said
    assert "c.yaml:1: section 'tasks' is missing" in said
    assert "c.yaml:2: agent.type: no agent 'bensh'; installed: bench" in said
    assert "did you mean 'bench'?" in said
    assert "c.yaml:3: run.rollout: unknown option" in said
    assert "did you mean 'rollouts'?" in said


def test_a_problem_in_an_extended_file_names_that_file(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "other.yaml").write_text("\ntasks: {type: list, n: 0}\n")
    said = problems(tmp_path, registry, "extends: other.yaml\nagent: {type: bench}\n")
    assert said == "other.yaml:2: tasks.n: expected a value >= 1, found 0"


def test_a_problem_in_an_override_names_it(tmp_path: Path, registry: Registry) -> None:
    said = problems(tmp_path, registry, BASE, "run.seed=x")
    assert said == '--set: run.seed: expected a whole number, found the text "x"'


@pytest.mark.parametrize("override", ["run.seed", "=3", "run..seed=3"])
def test_an_override_without_key_and_value_is_a_problem(
    tmp_path: Path, registry: Registry, override: str
) -> None:
    assert "expected key.key=value" in problems(tmp_path, registry, BASE, override)


def test_a_config_that_extends_itself_is_a_problem(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "a.yaml").write_text("extends: c.yaml\n")
    assert "a.yaml:1: extends: extends itself" in problems(tmp_path, registry, "extends: a.yaml\n")


def test_an_empty_config_says_what_is_missing(tmp_path: Path, registry: Registry) -> None:
    said = problems(tmp_path, registry, "")
    assert "section 'tasks' is missing" in said
    assert "tasks: {type: ...}, one of list" in said


def test_a_missing_base_is_named(tmp_path: Path, registry: Registry) -> None:
    said = problems(tmp_path, registry, "extends: bse.yaml\n")
    assert "bse.yaml: no such file" in said
    assert "did you mean 'base.yaml'?" in said
