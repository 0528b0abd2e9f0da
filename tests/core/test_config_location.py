"""Where a problem of a config is: the file and line that it is said of."""

from pathlib import Path

from ale._registry import Registry
from ale.errors import Problem

from .test_config import Trainers, load, problems


def test_what_the_file_lacks_is_said_of_the_file_although_an_override_touches_the_section(
    tmp_path: Path, registry: Registry
) -> None:
    text = "extends: base.yaml\ntrainer:\n  type: parts\n  objective: {depth: 2}\n"
    registry.add(Trainers(), "ale-parts")
    printed = problems(tmp_path, registry, text, "trainer.objective.depth=3")
    assert printed.startswith("c.yaml:4: trainer.objective: 'preset' is missing")
    other = "trainer={type: parts, objective: {depth: 3}}"
    printed = problems(tmp_path, registry, "extends: base.yaml\n", other)
    assert printed.startswith("--set: trainer.objective: 'preset' is missing")


def test_what_a_part_finds_wrong_gets_the_line_of_the_option(
    tmp_path: Path, registry: Registry
) -> None:
    config = load(tmp_path, registry, "extends: base.yaml\nagent:\n  type: bench\n  key_env: KEY\n")
    file = str(tmp_path / "c.yaml")
    for path, line in (("agent.key_env", 4), ("agent.effort", 2), ("tasks", 1)):
        found = config.located(Problem(message="wrong", path=path))
        assert (found.path, found.line) == (path, line)
    assert config.located(Problem(message="wrong", path="agent.key_env")).file == file


def test_a_missing_file_is_named_with_the_option_that_names_it(
    tmp_path: Path, registry: Registry
) -> None:
    config = load(tmp_path, registry, "extends: base.yaml\nrun:\n  directory: gone\n")
    missing = str(tmp_path / "gone")
    found = config.located(Problem(message="no such folder", file=missing))
    assert (found.path, found.line) == ("run.directory", 3)
    assert found.message == f"no such folder: {missing}"
    there = Problem(message="is empty", file=str(tmp_path / "base.yaml"))
    assert config.located(there) == there
