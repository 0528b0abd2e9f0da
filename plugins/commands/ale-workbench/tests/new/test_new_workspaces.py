"""`ale new openclaw`: files for a program that is no plugin."""

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ale.strict import Node, parse_yaml
from ale_workbench.new.command import command
from ale_workbench.new.kinds import kind_named

AGENTS = ("manager", "worker")


def plain(node: Node) -> Any:
    """A tree as plain values."""
    if node.mapping is not None:
        return {key: plain(child) for key, child in node.mapping.items()}
    return [plain(child) for child in node.items] if node.items is not None else node.value


@pytest.fixture
def team(tmp_path: Path) -> Path:
    done = CliRunner().invoke(command, ["openclaw", "team", "--directory", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert f"Next: read {tmp_path / 'team' / 'README.md'}" in done.output
    return tmp_path / "team"


@pytest.mark.parametrize("option", ["--author", "--license", "--url"])
def test_what_describes_a_package_is_refused(tmp_path: Path, option: str) -> None:
    given = [option, {"--license": "MIT"}.get(option, "https://example.org")]
    arguments = ["openclaw", "team", *given, "--directory", str(tmp_path)]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 2
    assert f"{option}: 'openclaw' writes no package that has one" in done.output
    assert not list(tmp_path.iterdir())


def test_each_agent_has_its_own_workspace(team: Path) -> None:
    assert {path.name for path in team.iterdir()} == {"README.md", *AGENTS}
    for agent in AGENTS:
        files = {path.name for path in (team / agent).iterdir()}
        assert files == {"AGENTS.md", "SOUL.md", "IDENTITY.md", "skills"}


def test_each_skill_has_a_head_that_names_it_and_what_it_needs(team: Path) -> None:
    skills = sorted(team.glob("*/skills/*/SKILL.md"))
    assert [path.parent.name for path in skills] == [
        "assign-task",
        "read-result",
        "submit-feedback",
        "submit-result",
        "take-task",
    ]
    for path in skills:
        head = path.read_text().split("---\n")[1]
        found = plain(parse_yaml(head, file=str(path)))
        assert found["name"] == path.parent.name
        needed = found["metadata"]["openclaw"]["requires"]["env"]
        used = set(re.findall(r"\$(\w+)", path.read_text()))
        assert used == set(needed), "what a command reads is what the skill says it needs"


def test_the_agents_name_the_skills_that_they_have(team: Path) -> None:
    for agent in AGENTS:
        text = (team / agent / "AGENTS.md").read_text() + (team / agent / "SOUL.md").read_text()
        have = {path.name for path in (team / agent / "skills").iterdir()}
        assert set(re.findall(r"`((?:\w+-)(?:task|result|feedback))`", text)) == have


def test_a_folder_that_exists_is_not_changed(team: Path) -> None:
    (team / "README.md").write_text("mine")
    again = CliRunner().invoke(command, ["openclaw", "team", "--directory", str(team.parent)])
    assert again.exit_code == 2
    assert "exists already" in again.output
    assert (team / "README.md").read_text() == "mine"
    outside = CliRunner().invoke(command, ["openclaw", "../x", "--directory", str(team)])
    assert "is not the name of a folder" in outside.output


def test_a_misspelt_name_is_hinted_at() -> None:
    with pytest.raises(ValueError, match="did you mean 'openclaw'"):
        kind_named("openclau")
