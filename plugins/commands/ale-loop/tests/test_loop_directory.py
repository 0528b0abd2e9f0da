"""What is taken for a loop: a command or a config, and a directory of one."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from ale.errors import InputError
from ale.runs import Registry
from ale_loop.commands import loop
from ale_loop.options import read_config
from ale_loop.running import run

from .conftest import Place

BETTER = (0.8, 0.8, 0.8, 0.8)


def test_a_misspelt_command_is_not_taken_for_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = CliRunner().invoke(loop, ["statsu", "loop.yaml"])
    assert asked.exit_code == 2
    assert "no such command or config 'statsu': did you mean 'status'?" in asked.output
    (tmp_path / "statsu").write_text("{}")
    assert isinstance(CliRunner().invoke(loop, ["statsu"]).exception, InputError)


def test_a_loop_does_not_continue_what_a_proxy_records_or_a_run(place: Place) -> None:
    place.give(*BETTER)
    place.write({"directory": "seen/agent"})
    with pytest.raises(InputError, match="not started to learn from episodes that come from else"):
        run(place.config, Registry.installed(), print)
    place.write({"directory": "run"})
    place.start_run("train.yaml", "--directory", "run").wait(60)
    assert (place.folder / "run" / "manifest.json").exists()
    with pytest.raises(InputError, match="not started to learn from episodes that come from else"):
        run(place.config, Registry.installed(), print)
    with pytest.raises(InputError, match="not started to learn from episodes that come from else"):
        read_config(place.config, started=True)  # as for `ale loop status`


def test_the_directory_of_a_loop_is_not_resumed_as_a_run(place: Place) -> None:
    place.write()
    place.give(*BETTER)
    place.run(lambda: place.decisions)
    before = (place.directory / "episodes.jsonl").read_bytes()
    process = place.start_run("--resume", "loop")
    assert process.wait(60) == 2
    said = (place.folder / "log").read_text()
    assert "this run learns from episodes that come from elsewhere" in said
    assert "such as 'ale loop' with its config" in said
    assert (place.directory / "episodes.jsonl").read_bytes() == before
    place.give(*BETTER)
    place.run(lambda: len(place.decisions) == 2)
