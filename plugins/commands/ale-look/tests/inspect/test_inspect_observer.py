"""The observer `report`."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from ale.plugin import BuildContext
from ale.testing.observer import ObserverContract, finished, notify, register
from ale_look.inspect.options import ReportOptions
from ale_look.plugin import ale_observers

Write = Callable[..., Path]


def build(options: ReportOptions) -> object:
    (component,) = (each for each in ale_observers() if each.name == "report")
    return component.build(options, BuildContext())


class TestReporter(ObserverContract):
    """It survives any run, also one that left nothing to report on."""

    @pytest.fixture
    def observer(self) -> object:
        return build(ReportOptions())


def test_the_report_is_written_when_the_run_ends(write_trained: Write, tmp_path: Path) -> None:
    path = write_trained(tmp_path / "run", steps=2)
    notify(register(build(ReportOptions(episodes=5))), [finished(path)])
    assert (path / "report.html").read_text().count('data-path="run/run/episode/') == 5


def test_a_large_run_gets_no_report_but_a_warning(
    write_trained: Write,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ale_look.inspect.observer.LARGEST_RUN_MB", 0.001)
    path = write_trained(tmp_path / "run", steps=1)
    with caplog.at_level(logging.WARNING):
        notify(register(build(ReportOptions())), [finished(path)])
    assert "`ale report" in caplog.text
    assert not (path / "report.html").exists()


def test_a_damaged_run_is_reported_as_a_warning(
    write_trained: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_trained(tmp_path / "run", steps=1)
    (path / "episodes.jsonl").write_text("{}\n")
    with caplog.at_level(logging.WARNING):
        notify(register(build(ReportOptions())), [finished(path)])
    assert "no report" in caplog.text
