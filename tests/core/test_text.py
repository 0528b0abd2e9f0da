"""Numbers and notes for the terminal."""

import os
import pty
import sys

import pytest

from ale.text import number, on_a_terminal, shorten, tell, visible


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.925, "0.925"),
        (-1234567.25, "-1234567.250"),
        (999_999_999.0, "999999999.000"),
        (1e9, "1e+09"),
        (-1.23456e308, "-1.235e+308"),
        (-0.0001, "0.000"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_a_large_number_is_in_powers_of_ten(value: float, text: str) -> None:
    assert number(value) == text


def test_a_sign_and_the_number_of_digits_are_chosen() -> None:
    assert number(0.5, 4, sign=True) == "+0.5000"
    assert number(-1e-9, sign=True) == "+0.000"
    assert number(1e300, 2, sign=True) == "+1e+300"


def test_control_characters_of_a_text_are_made_visible() -> None:
    hostile = "\x1b[2J\x1b]52;c;Zm9v\x07 \x9b1m \x7f \u202eabc\ttab\nnext \u00a0\u5b8c"
    assert visible(hostile) == (
        "\u241b[2J\u241b]52;c;Zm9v\u2407 \u27e8U+009B\u27e91m \u2421 "
        "\u27e8U+202E\u27e9abc\ttab\nnext \u00a0\u5b8c"
    )
    assert shorten("a \x1b[2J\n b", 80) == "a \u241b[2J b"
    assert len(shorten("\u202e" * 9, 12)) == 12


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n", "plain\n"),
        ("a\r\nb\r\n", "a\r\nb\r\n"),
        ("1%\r50%\r100%\nnext", "100%\nnext"),
        ("longer\rab", "abnger"),
        ("abcdef\rxyz\r1", "1yzdef"),
        ("\rstart", "start"),
        ("gone\r\x1b[Know", "\x1b[Know"),
        ("\x1b[31mred\x1b[0m\rab", "ab"),
        ("\r\r\n\r", "\r\r\n\r"),
    ],
)
def test_carriage_returns_are_shown_as_on_a_terminal(text: str, shown: str) -> None:
    assert on_a_terminal(text) == shown


def test_a_note_on_a_terminal_is_wrapped_at_words(monkeypatch: pytest.MonkeyPatch) -> None:
    note = "network: false, set by 8 tasks, is not enforced: sandbox 'local' does not isolate it"
    ours, theirs = pty.openpty()
    monkeypatch.setenv("COLUMNS", "30")
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        tell(note)
        shown = os.read(ours, 1000).decode().replace("\r\n", "\n")
    os.close(ours)
    assert max(map(len, shown.splitlines())) <= 30
    assert shown.split() == note.split()


def test_a_note_in_a_log_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    tell("word " * 60 + "end")
    assert capsys.readouterr().err == "word " * 60 + "end\n"
