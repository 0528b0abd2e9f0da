"""All calls run in processes of their own: what is tested can't reach the tests."""

import json
import subprocess
import sys

ASK = """
import json, sys, duration
answers = []
for name, argument in json.load(sys.stdin):
    try:
        answers.append(getattr(duration, name)(argument))
    except ValueError:
        answers.append("ValueError")
print(json.dumps(answers))
"""


def ask(name: str, *arguments: object) -> list[object]:
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        input=json.dumps([[name, argument] for argument in arguments]),
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    answers: list[object] = json.loads(done.stdout)
    return answers


def test_durations_are_read() -> None:
    assert ask("parse", "45s", "1h30m", "2d4h", "90m", "0s", " 12h\n", "1d1h1m1s", "007s") == [
        45,
        5400,
        187200,
        5400,
        0,
        43200,
        90061,
        7,
    ]


def test_anything_else_is_refused() -> None:
    wrong = ["", "  ", "h", "5", "1x", "1h 30m", "30m1h", "1h1h", "-5s", "1.5h", "1H", "1h30", "s5"]
    assert ask("parse", *wrong) == ["ValueError"] * len(wrong)


def test_durations_are_written_as_short_as_can_be() -> None:
    assert ask("render", 0, 45, 60, 5400, 86400, 90061, 3601) == [
        "0s",
        "45s",
        "1m",
        "1h30m",
        "1d",
        "1d1h1m1s",
        "1h1s",
    ]


def test_a_negative_duration_is_refused() -> None:
    assert ask("render", -1) == ["ValueError"]


def test_what_is_written_is_read_again() -> None:
    numbers = list(range(0, 400_000, 997))
    assert ask("parse", *ask("render", *numbers)) == numbers
