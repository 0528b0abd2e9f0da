"""Every command with a config uses each of its sections, or refuses it, or names it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from ale._cli.main import cli
from ale.runs import SECTIONS

ROOT = Path(__file__).resolve().parents[2]
URL = "http://127.0.0.1:9/v1"
WHOLE = ("run", "check", "launch", "plan", "ablate")
"""Of which the config is one of `ale run`, checked as a whole."""
USES = {
    "proxy": {"middleware", "observers", "plugins"},
    "workers bridge": {"middleware", "observers", "plugins"},
    "workers manage": {"tasks", "llm", "sandbox", "plugins"},
}
TAKES = {
    "serve": {"llm", "plugins"},
    "eval": {"llm", "plugins"},
    "train rows": {"llm", "trainer", "run", "plugins"},
}
"""What these take of the config of a run, whose other sections they name."""
ELSEWHERE = {
    "engines start": "starts `ale serve --config`",
    "loop run": "has a form of its own, read strictly, with the config of a run in it",
    "loop status": "as loop run",
    "loop history": "as loop run",
    "loop restore": "as loop run",
    "train dpo": "has a form of its own, read strictly",
    "train grpo": "has a form of its own, read strictly",
}
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "ablate": ("--vary", "run.retries=0,1"),
    "proxy": (URL, "--port", "0", "--run", "recorded", "--config"),
    "workers bridge": ("--port", "0", "--run", "recorded", "--config"),
    "serve": ("--port", "0", "--config"),
    "eval": ("humaneval", "--print-config", "--config"),
    "train rows": ("--in", "rows.jsonl", "--out", "trained"),
}
GOOD: dict[str, Any] = {
    "tasks": {"type": "tbp", "path": str(ROOT / "tasks" / "tbp_examples")},
    "llm": {"type": "scripted", "script": "answers.yaml"},
    "agent": {"type": "noop"},
    "trainer": {"type": "export"},
}
BAD: dict[str, Any] = {
    **{name: {"type": "no-such"} for name in SECTIONS},
    "middleware": [{"type": "no-such"}],
    "scorers": [{"type": "no-such"}],
    "observers": [{"type": "no-such"}],
    "evaluation": {"tasks": {"type": "no-such"}},
    "run": {"no_such": 1},
    "plugins": ["no_such.py"],
}


def with_config(group: click.Group, ctx: click.Context, above: str = "") -> Iterator[str]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        path = f"{above} {name}".strip()
        if any(parameter.name == "config" for parameter in command.params):
            yield path
        if isinstance(command, click.Group):
            yield from with_config(command, ctx, path)


def test_every_command_with_a_config_is_in_these_tables() -> None:
    found = set(with_config(cli, click.Context(cli)))
    assert found == {*WHOLE, *USES, *TAKES, *ELSEWHERE}


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call a command with a config of these sections."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "answers.yaml").write_text("default: [Hm.]\n")
    (tmp_path / "rows.jsonl").write_text("")

    def called(command: str, sections: Mapping[str, Any]) -> Result:
        file = tmp_path / "my.yaml"
        file.write_text(yaml.safe_dump(dict(sections)))
        options = ARGUMENTS.get(command, ())
        last = options[-1:] == ("--config",)
        arguments = (*options, str(file)) if last else (str(file), *options)
        return CliRunner().invoke(cli, [*command.split(), *arguments])

    return called


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("command", [*WHOLE, *USES, *TAKES])
def test_a_section_is_used_refused_or_named(command: str, section: str, ask: Any) -> None:
    used = {**USES, **TAKES}.get(command, set(SECTIONS))
    own = {name: value for name, value in GOOD.items() if name in used}
    if command in TAKES and section not in used:
        own["llm"] = BAD["llm"]  # else it would serve
    result: Result = ask(command, {**own, section: BAD[section]})
    if section in used or command == "train rows":
        assert result.exit_code == 2, result.output
        assert "no_such" in result.output or "no-such" in result.output
    elif command in USES:
        assert result.exit_code == 2, result.output
        assert f"{section}: ale {command} does not use this section" in result.output
    if command in TAKES and section not in used:
        assert f"and not {section}" in result.output


@pytest.mark.parametrize("command", [*WHOLE, *USES, *TAKES])
def test_an_unknown_section_is_refused(command: str, ask: Any) -> None:
    used = {**USES, **TAKES}.get(command, set(SECTIONS))
    own = {name: value for name, value in GOOD.items() if name in used}
    result: Result = ask(command, {**own, "observer": [{"type": "console"}]})
    assert result.exit_code == 2, result.output
    assert "unknown section" in result.output
    assert "observers" in result.output


def test_a_manager_refuses_a_sandbox_that_lacks_the_isolation_that_is_required(ask: Any) -> None:
    own = {name: value for name, value in GOOD.items() if name in USES["workers manage"]}
    place = {"type": "local", "require": ["network"]}
    result: Result = ask("workers manage", {**own, "sandbox": place})
    assert result.exit_code == 2, result.output
    assert "sandbox.require: sandbox 'local' does not isolate the network" in result.output
