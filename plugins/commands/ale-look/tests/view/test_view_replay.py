"""The replay of an episode's terminal: what is shown when, keys, and its address."""

import json
from pathlib import Path

import pytest

from ale.testing.builders import turn
from ale.types import Stop, Trajectory, Turn, replace

from .conftest import Page, attempt, write_run
from .test_view_browser import ANSI, HOSTILE, address
from .test_view_single import report_of
from .test_view_timeline import press

SHOWN = "document.querySelector('.replay .screen')?.innerText"


def took(model: float, *calls: tuple[str, str, float]) -> Turn:
    """A turn whose calls are a command, its output and its seconds."""
    made = turn(
        "Go.",
        calls=[("shell", json.dumps({"command": command})) for command, _, _ in calls],
        observations=[seen for _, seen, _ in calls],
    )
    seconds = [each for _, _, each in calls]
    observed = tuple(
        replace(each, duration_s=spent)
        for each, spent in zip(made.observations, seconds, strict=True)
    )
    return replace(made, observations=observed, duration_s=model + sum(seconds))


@pytest.fixture
def played(runs: Path) -> Path:
    """An episode of three calls: at 5 to 7, 7 to 8, and 108 to 109 seconds."""
    turns = (
        took(5.0, ("echo one", ANSI, 2.0), ("echo two", "second", 1.0)),
        took(100.0, ("echo three", HOSTILE, 1.0)),
    )
    trajectory = Trajectory(turns=turns, stop=Stop(reason="finished"))
    return write_run(runs / "played", attempt(0, trajectory=trajectory))


def output(page: Page) -> str:
    return str(page.value("document.querySelector('.replay output').innerText"))


def test_calls_are_stepped_through_in_their_times(page: Page, served: str, played: Path) -> None:
    page.open(address(served, "/run/played/e/0/0-rename-0"))
    page.until("document.querySelector('.turn')")
    assert "3 calls in 2 min" in page.text()
    button = (
        "[...document.querySelectorAll('button')].find((e) => e.innerText.startsWith('Replay'))"
    )
    page.value(f"{button}.click()")
    page.until(f"{SHOWN}.includes('echo one')")
    assert output(page) == "5.0 s of 2 min"
    assert "running" in page.value(SHOWN)
    assert "plain" not in page.value(SHOWN)
    for key, time, there, absent in (
        (".", "7.0 s", "plain", "echo two"),
        (".", "8.0 s", "second", "echo three"),
        (",", "7.0 s", "plain", "echo two"),
        (".", "8.0 s", "the model answers", "echo three"),
        (".", "2 min", "owned", "the model answers"),
    ):
        press(page, key)
        page.until(f"document.querySelector('.replay output').innerText.startsWith('{time}')")
        assert there in page.value(SHOWN)
        assert absent not in page.value(SHOWN)
    assert page.value("document.querySelector('.replay .a-red').innerText") == "red"
    assert not page.value("window.owned")
    page.until("location.hash.endsWith('replay=2')")
    kept = page.value("location.href")
    page.open("about:blank")
    page.open(kept)
    page.until(f"{SHOWN}?.includes('echo three')")
    press(page, "Escape")
    page.until("!document.querySelector('.replay')")


def test_a_film_runs_faster_and_stands(page: Page, played: Path) -> None:
    page.open(f"{report_of(played)}#/run/played/e/0/0-rename-0?replay=0")
    page.until("document.activeElement?.matches('.replay')")
    for _ in range(9):
        press(page, ">")
    page.until("document.querySelector('.replay .modes b').innerText === '64\u00d7'")
    press(page, " ")
    page.until(f"{SHOWN}.includes('echo three')")
    page.until("document.querySelector('.replay .modes button').innerText === 'play'")
    assert output(page) == "2 min of 2 min"
    for _ in range(9):
        press(page, "<")
    page.until("document.querySelector('.replay .modes b').innerText === '1\u00d7'")
    press(page, " ")
    page.until(f"!{SHOWN}.includes('echo three')")
    press(page, " ")
    page.until("document.querySelector('.replay .modes button').innerText === 'play'")
    page.resize(390)
    assert page.value("document.documentElement.scrollWidth <= innerWidth")
