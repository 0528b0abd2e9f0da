"""The observer on pseudo-terminals, pipes and captured output."""

import io
import os
import pty
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from ale.testing.observer import (
    ObserverContract,
    ended,
    episodes,
    finished,
    notify,
    register,
    started,
)
from ale_observe_console.observer import make
from ale_observe_console.plugin import ConsoleOptions
from ale_observe_console.screen import Screen, erase, place

HERE = Path()


class Glass:
    """What a person sees of a stream of text: the few controls that the console uses."""

    def __init__(self) -> None:
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
                row = self.rows[self.row].ljust(self.column)
                self.rows[self.row] = row[: self.column] + character + row[self.column + 1 :]
                self.column += 1

    def _control(self, count: int, code: str) -> None:
        if code == "A":
            self.row -= count
        elif code in "KJ":
            self.rows[self.row] = self.rows[self.row][: self.column]
            if code == "J":
                self.rows[self.row + 1 :] = []

    @property
    def text(self) -> list[str]:
        return [row.rstrip() for row in self.rows if row.strip()]


class Terminal:
    """A pseudo-terminal as standard error, read by a thread where `read`."""

    def __init__(self, read: bool) -> None:
        self.master, slave = pty.openpty()
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
        deadline = time.monotonic() + 5
        while text not in self.seen.decode(errors="replace"):
            assert time.monotonic() < deadline, self.seen
            time.sleep(0.01)
        return self.seen.decode()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal(read=True)
    yield made
    made.stream.close()


def build(
    monkeypatch: pytest.MonkeyPatch, stream: TextIO, environ: dict[str, str], **fields: object
) -> object:
    monkeypatch.setattr("sys.stderr", stream)
    options = ConsoleOptions(**fields)  # type: ignore[arg-type]
    return make(options, environ=environ, monotonic=time.monotonic)


class TestPlain(ObserverContract):
    @pytest.fixture
    def observer(self, monkeypatch: pytest.MonkeyPatch) -> object:
        return build(monkeypatch, io.StringIO(), {}, quiet_interval_s=0.01)


class TestTerminal(ObserverContract):
    @pytest.fixture
    def observer(self, monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> object:
        return build(monkeypatch, terminal.stream, {"TERM": "xterm"}, refresh_s=0.01)


def test_a_short_run_in_a_log_takes_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    manager = register(build(monkeypatch, log, {}))
    notify(manager, [started(HERE), *episodes(range(8)), finished(HERE)])
    assert log.getvalue().splitlines() == [
        "ale run run-1: 8 episodes, 4 at once",
        "completed after 0s: 8/8 episodes, success 50% of 6, broken 2",
    ]


def test_a_log_gets_a_line_by_time_even_while_nothing_finishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = io.StringIO()
    manager = register(build(monkeypatch, log, {}, quiet_interval_s=0.1))
    notify(manager, [started(HERE)])
    time.sleep(0.35)
    notify(manager, [finished(HERE)])
    assert 3 <= log.getvalue().count("\n") <= 5
    assert "0/8 done, success none graded" in log.getvalue()


def test_a_terminal_ends_with_one_clean_line(
    monkeypatch: pytest.MonkeyPatch, terminal: Terminal
) -> None:
    manager = register(build(monkeypatch, terminal.stream, {"TERM": "xterm"}, refresh_s=0.01))
    notify(manager, [started(HERE), *episodes(range(4))])
    terminal.wait_for("4/8")
    notify(manager, [*episodes(range(4, 8)), finished(HERE)])
    glass = Glass()
    glass.feed(terminal.wait_for("completed"))
    assert glass.text == ["completed after 0s: 8/8 episodes, success 50% of 6, broken 2"]


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
    manager = register(build(monkeypatch, terminal.stream, {"TERM": "xterm"}, refresh_s=0.2))
    notify(manager, [started(HERE, 10_000)])
    end = time.monotonic() + 1.0
    number = 0
    while time.monotonic() < end:
        notify(manager, [ended(number, 1.0)])
        number += 1
        time.sleep(0.001)
    notify(manager, [finished(HERE)])
    assert 3 <= terminal.wait_for("completed").count("\x1b[?2026h") <= 6


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


def test_a_terminal_that_does_not_read_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = Terminal(read=False)
    manager = register(build(monkeypatch, stuck.stream, {"TERM": "xterm"}, refresh_s=0.0001))
    start = time.monotonic()
    notify(manager, [started(HERE, None)])
    for number in range(500):
        notify(manager, episodes([number]))
        time.sleep(0.001)
    notify(manager, [finished(HERE)])
    assert time.monotonic() - start < 4.0
    assert any(thread.name == "ale-console" for thread in threading.enumerate())  # it was stuck
    os.close(stuck.master)
    stuck.stream.close()


def test_a_reader_that_is_gone_is_reported_once_by_the_next_hook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        manager = register(build(monkeypatch, stream, {}, quiet_interval_s=0.01))
        notify(manager, [started(HERE)])
        _until(lambda: not any(t.name == "ale-console" for t in threading.enumerate()))
        with pytest.raises(BrokenPipeError):
            notify(manager, [ended(0, 1.0)])
        notify(manager, [ended(1, 1.0), finished(HERE)])


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_block_is_redrawn_in_its_place() -> None:
    glass = Glass()
    glass.feed("$ ale run\r\n" + place(["one", "two is long"]) + place(["three", "four"]))
    assert glass.text == ["$ ale run", "three", "four"]
    glass.feed(place(["five"]))
    assert glass.text == ["$ ale run", "five"]
    glass.feed(erase() + "done\r\n")
    assert glass.text == ["$ ale run", "done"]


def test_a_message_of_another_part_of_the_program_stays_above_the_block() -> None:
    glass = Glass()
    glass.feed(place(["one", "two"]) + "warning: x\r\n" + place(["three", "four"]))
    assert glass.text == ["warning: x", "three", "four"]


def test_the_last_column_stays_free_and_the_size_is_the_terminals(terminal: Terminal) -> None:
    import fcntl
    import struct
    import termios

    fcntl.ioctl(terminal.stream, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    assert Screen(terminal.stream, {"TERM": "xterm"}).style().width == 39


def test_listing_the_plugin_imports_nothing_but_its_options() -> None:
    import subprocess
    import sys

    code = "import sys, ale_observe_console.plugin as p; p.ale_observers(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    assert [m for m in modules if m.startswith("ale_observe_console")] == [
        "ale_observe_console",
        "ale_observe_console.plugin",
    ]


def test_a_closed_standard_error_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    made = make(ConsoleOptions(), environ={}, monotonic=lambda: 0.0)
    assert not [name for name in dir(made) if name.startswith("ale_")]
