"""The observer on pseudo-terminals, pipes and captured output."""

import fcntl
import io
import logging
import os
import pty
import re
import struct
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import click
import pytest
from attrs import evolve

from ale.plugin import BuildContext
from ale.testing.observer import (
    ObserverContract,
    ended,
    episodes,
    finished,
    notify,
    register,
    report,
    stages,
    started,
)
from ale.testing.waiting import wait_for
from ale.types import StepFinished, StepReport
from ale_observe_console.observer import make
from ale_observe_console.options import ConsoleOptions
from ale_observe_console.screen import Screen

HERE = Path()


class Glass:
    """The screen after a stream of text: the few controls that rich uses, and wrapping."""

    def __init__(self, width: int = 80) -> None:
        self.width = width
        self.rows = [""]
        self.row = self.column = 0

    def feed(self, text: str) -> None:
        for control, count, code, character in re.findall(
            r"(\x1b\[\??([0-9]*)([A-Za-z]))|(.)", text, re.DOTALL
        ):
            if control:
                self._control(int(count or 1), code)
            elif character == "\r":
                self.column = 0
            elif character == "\n":
                self.row += 1
                self.rows += [""] * (self.row + 1 - len(self.rows))
            else:
                if self.column == self.width:
                    self.row, self.column = self.row + 1, 0
                    self.rows += [""] * (self.row + 1 - len(self.rows))
                row = self.rows[self.row].ljust(self.column)
                self.rows[self.row] = row[: self.column] + character + row[self.column + 1 :]
                self.column += 1

    def _control(self, count: int, code: str) -> None:
        if code == "A":
            assert self.row >= count, "above the first row"
            self.row -= count
        elif code == "K":
            assert count == 2, "the whole line"
            self.rows[self.row] = ""

    @property
    def text(self) -> list[str]:
        return [row.rstrip() for row in self.rows if row.strip()]


class Terminal:
    """A pseudo-terminal as standard error, read by a thread where `read`."""

    def __init__(self, read: bool, columns: int = 80) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.stream = os.fdopen(slave, "w", encoding="utf-8")
        self.seen = b""
        if read:
            threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while data := os.read(self.master, 4096):
                self.seen += data
        except OSError:  # the last writer has closed it
            return

    def wait_for(self, text: str) -> str:
        wait_for(lambda: text in self.seen.decode(errors="replace"), lambda: self.seen)
        return self.seen.decode()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal(read=True)
    yield made
    made.stream.close()


def build(
    monkeypatch: pytest.MonkeyPatch, stream: TextIO, environ: dict[str, str], **fields: object
) -> object:
    """The observer, with these options; a name in capitals is a constant of it."""
    monkeypatch.setattr("sys.stderr", stream)
    for name in [name for name in fields if name.isupper()]:
        monkeypatch.setattr(f"ale_observe_console.observer.{name}", fields.pop(name))
    options = ConsoleOptions(**fields)  # type: ignore[arg-type]
    return make(options, BuildContext(environ=environ, monotonic=time.monotonic))


class TestPlain(ObserverContract):
    @pytest.fixture
    def observer(self, monkeypatch: pytest.MonkeyPatch) -> object:
        return build(monkeypatch, io.StringIO(), {}, QUIET_INTERVAL_S=0.01)


class TestTerminal(ObserverContract):
    flat_bytes = 2 * 1024 * 1024  # rich caches the widths of up to 4096 texts

    @pytest.fixture
    def observer(self, monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> object:
        return build(monkeypatch, terminal.stream, {"TERM": "xterm"}, REFRESH_S=0.01)


def test_a_short_run_in_a_log_takes_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    manager = register(build(monkeypatch, log, {}))
    notify(manager, [started(HERE), *episodes(range(8)), finished(HERE)])
    assert log.getvalue().splitlines() == [
        "ale run run-1: 8 episodes, 4 concurrent",
        "completed after 1s: 8/8 episodes, success 50% of 6, broken 2",
    ]


def test_a_log_gets_a_line_by_time_even_while_nothing_finishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = io.StringIO()
    manager = register(build(monkeypatch, log, {}, QUIET_INTERVAL_S=0.1))
    notify(manager, [started(HERE)])
    time.sleep(0.35)
    notify(manager, [finished(HERE)])
    assert 3 <= log.getvalue().count("\n") <= 5
    assert "0/8 episodes done, success none graded" in log.getvalue()


def test_a_log_gets_the_line_of_a_training_step_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    manager = register(build(monkeypatch, log, {}, QUIET_INTERVAL_S=600.0))
    notify(manager, [started(HERE), report(0)])
    wait_for(lambda: "step 0: loss 0.5" in log.getvalue(), log.getvalue)
    notify(manager, [report(1), finished(HERE)])
    steps = [line for line in log.getvalue().splitlines() if line.startswith("step ")]
    assert [line.partition(":")[0] for line in steps] == ["step 0", "step 1"]


def test_a_terminal_ends_with_one_clean_line(
    monkeypatch: pytest.MonkeyPatch, terminal: Terminal
) -> None:
    manager = register(build(monkeypatch, terminal.stream, {"TERM": "xterm"}, REFRESH_S=0.01))
    notify(manager, [started(HERE), *episodes(range(4))])
    terminal.wait_for("4/8")
    notify(manager, [*episodes(range(4, 8)), finished(HERE)])
    glass = Glass()
    glass.feed(terminal.wait_for("completed"))
    assert glass.text == ["completed after 1s: 8/8 episodes, success 50% of 6, broken 2"]


def test_time_moves_on_a_terminal_while_nothing_finishes(
    monkeypatch: pytest.MonkeyPatch, terminal: Terminal
) -> None:
    environ = {"TERM": "xterm", "NO_COLOR": "1"}
    manager = register(build(monkeypatch, terminal.stream, environ))
    notify(manager, [started(HERE)])
    terminal.wait_for("1s so far")
    notify(manager, [finished(HERE)])


def test_redraws_are_no_more_frequent_than_asked(
    monkeypatch: pytest.MonkeyPatch, terminal: Terminal
) -> None:
    begun = time.monotonic()
    manager = register(build(monkeypatch, terminal.stream, {"TERM": "xterm"}, REFRESH_S=0.2))
    notify(manager, [started(HERE, 10_000)])
    number = 0
    while number < 100 or time.monotonic() < begun + 1.0:
        notify(manager, [ended(number, 1.0)])
        number += 1
        time.sleep(0.001)
    notify(manager, [finished(HERE)])
    drawn = terminal.wait_for("completed").count("/10000")
    took = time.monotonic() - begun
    # Three more: the first, that when the display ends, and the line that stays.
    assert 3 <= drawn <= took / 0.2 + 3


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> None:
    environ = {"TERM": "xterm", "NO_COLOR": "1"}
    manager = register(build(monkeypatch, terminal.stream, environ))
    notify(manager, [started(HERE), finished(HERE)])
    assert re.findall(r"\x1b\[[0-9;]*m", terminal.wait_for("completed")) == []


def test_a_dumb_terminal_gets_plain_lines(
    monkeypatch: pytest.MonkeyPatch, terminal: Terminal
) -> None:
    manager = register(build(monkeypatch, terminal.stream, {"TERM": "dumb"}))
    notify(manager, [started(HERE), finished(HERE)])
    assert "\x1b" not in terminal.wait_for("completed")


def test_off_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    manager = register(build(monkeypatch, log, {}, mode="off"))
    notify(manager, [started(HERE), *episodes(range(8)), finished(HERE)])
    assert log.getvalue() == ""


def test_a_terminal_that_does_not_read_does_not_block_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck = Terminal(read=False)
    manager = register(build(monkeypatch, stuck.stream, {"TERM": "xterm"}, REFRESH_S=0.0001))
    notify(manager, [started(HERE, None)])
    for number in range(500):
        notify(manager, episodes([number]))
        time.sleep(0.001)
    notify(manager, [finished(HERE)])
    assert any(thread.name == "ale-console" for thread in threading.enumerate())  # it was stuck
    os.close(stuck.master)
    stuck.stream.close()


def test_a_reader_that_is_gone_is_reported_once_by_the_next_hook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        manager = register(build(monkeypatch, stream, {}, QUIET_INTERVAL_S=0.01))
        notify(manager, [started(HERE)])
        wait_for(lambda: not any(t.name == "ale-console" for t in threading.enumerate()))
        with pytest.raises(BrokenPipeError):
            notify(manager, [ended(0, 1.0)])
        notify(manager, [ended(1, 1.0), finished(HERE)])


def test_a_pipe_in_place_of_a_terminal_that_breaks_ends_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Rich would end the thread without a word, and send standard output nowhere."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        manager = register(build(monkeypatch, stream, {}, mode="terminal", REFRESH_S=0.01))
        notify(manager, [started(HERE)])
        wait_for(lambda: not any(t.name == "ale-console" for t in threading.enumerate()))
        with pytest.raises(BrokenPipeError):
            notify(manager, [ended(0, 1.0)])
    print("still here", flush=True)
    assert capfd.readouterr().out == "still here\n"


@pytest.mark.parametrize("columns", [80, 40, 20])
def test_messages_of_the_program_stay_whole_above_the_progress(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    notice = "Finishing what is running; Ctrl-C again to cancel it."
    terminal = Terminal(read=True, columns=columns)
    monkeypatch.setattr("sys.stderr", terminal.stream)
    handler = logging.StreamHandler()
    logging.getLogger().addHandler(handler)
    try:
        environ = {"TERM": "xterm", "NO_COLOR": "1"}
        manager = register(build(monkeypatch, terminal.stream, environ, REFRESH_S=0.01))
        notify(manager, [started(HERE), *stages(0, "agent"), *stages(1, "agent")])
        terminal.wait_for("0s agent")
        click.echo(f"\n{notice}", err=True)
        logging.getLogger("demo").warning("a warning of a library")
        notify(manager, episodes(range(2, 6)))
        terminal.wait_for("4/8")
        during = Glass(columns)
        during.feed(terminal.seen.decode())
        notify(manager, [*episodes((0, 1, 6, 7)), finished(HERE)])
        after = Glass(columns)
        after.feed(terminal.wait_for("completed"))
    finally:
        logging.getLogger().removeHandler(handler)
        terminal.stream.close()
    for glass in (during, after):
        text = " ".join(" ".join(glass.text).split())
        assert notice in text
        assert "a warning of a library" in text
    assert "running" not in after.text[-1]
    assert handler.stream is sys.stderr is terminal.stream


def test_a_step_without_an_update_is_reported_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = io.StringIO()
    manager = register(build(monkeypatch, log, {}))
    begun = evolve(started(HERE), config={"trainer": {"type": "demo"}})

    def step(
        number: int, rewards: tuple[float, ...], updates: float, **more: float
    ) -> Iterator[object]:
        for rollout, reward in enumerate(rewards):
            made = ended(rollout, reward)
            yield evolve(made, episode=evolve(made.episode, step=number))
        report = StepReport(step=number, policy_version=0, metrics={"updates": updates, **more})
        yield StepFinished(report=report)

    events = [begun, *step(0, (1.0, 1.0), 0), *step(1, (1.0, 0.0), 4), *step(2, (1.0, 0.0), 0)]
    events += step(3, (1.0, 1.0), 0, steps_skipped=1)
    events += step(4, (1.0, 0.0), 0, updates_without_gradient=1)
    notify(manager, [*events, finished(HERE)])  # type: ignore[list-item]
    notices = [line for line in log.getvalue().splitlines()[1:] if ": updates " not in line]
    assert notices == [
        "step 0: no group had two different rewards: nothing was learned",
        "step 2: no update: nothing was learned",
        "step 3: a loss or gradient was not finite: nothing was learned",
        "step 4: every token was masked, clipped or dropped by the correction: nothing was learned",
        "completed after 1s: 10/8 episodes, success 70% of 10, broken 0, no update in 4 of 5 steps",
    ]


def test_a_terminal_shows_that_nothing_was_learned(
    monkeypatch: pytest.MonkeyPatch, terminal: Terminal
) -> None:
    manager = register(build(monkeypatch, terminal.stream, {"TERM": "xterm"}, REFRESH_S=0.01))
    report = StepReport(step=0, policy_version=0, metrics={"updates": 0.0})
    notify(manager, [started(HERE), StepFinished(report=report)])
    terminal.wait_for("no update in any step: nothing was learned")
    notify(manager, [finished(HERE)])


def test_the_size_is_the_terminals() -> None:
    terminal = Terminal(read=True, columns=40)
    assert Screen(terminal.stream, {"TERM": "xterm"}).size() == (40, 24)
    terminal.stream.close()


def test_listing_the_plugin_imports_neither_its_options_nor_the_observer() -> None:
    import subprocess
    import sys

    code = "import sys, ale_observe_console.plugin as p; p.ale_observers(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    assert [m for m in modules if m.startswith("ale_observe_console")] == [
        "ale_observe_console",
        "ale_observe_console.plugin",
    ]
    assert "rich" not in modules


def test_a_closed_standard_error_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    made = make(ConsoleOptions(), BuildContext())
    assert not [name for name in dir(made) if name.startswith("ale_")]
