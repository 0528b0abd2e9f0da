"""The timeline of a run: what is said of each episode's time, and the rows in a real Chromium."""

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ale.runs import Registry
from ale.testing.builders import turn
from ale.types import Observation, Stop, TokenTrace, Trajectory, replace
from ale_look.view.bundle import write_bundle
from ale_look.view.catalog import Catalog
from ale_look.view.timeline import Timeline

from .conftest import Page, attempt, begin_run, write_run
from .test_view_api import got
from .test_view_browser import HOSTILE, address, files_of
from .test_view_single import report_of

BEGAN = 1_793_534_400.0  # 2026-11-01T12:00:00+00:00


def at(seconds: float) -> str:
    """So many seconds after it."""
    return datetime.fromtimestamp(BEGAN + seconds, UTC).isoformat(timespec="milliseconds")


def trace(*versions: int) -> TokenTrace:
    """Tokens that these versions sampled."""
    n = len(versions)
    return TokenTrace(
        prompt_ids=(1,), output_ids=(2,) * n, logprobs=(-0.1,) * n, policy_versions=versions
    )


def timed(number: int, start: float, *turns: tuple[float, float, int], **fields: Any) -> Any:
    """An attempt whose turns have seconds of the model and of tools, and a version."""
    made = tuple(
        replace(
            (made := turn("Go.")),
            completion=replace(made.completion, tokens=trace(version - 1, version)),
            observations=(Observation(call_id="c", tool="shell", content="", duration_s=tools),),
            duration_s=model + tools,
        )
        for model, tools, version in turns
    )
    agent = sum(model + tools for model, tools, _ in turns)
    known = {"sandbox": 1.0, "setup": 0.5, "agent": agent + 0.25, "grading": 2.0, "teardown": 0.5}
    return attempt(
        number,
        id=f"0-rename-{number}",
        started_at=at(start),
        seconds=known,
        trajectory=Trajectory(turns=made, stop=Stop(reason="finished")),
        **fields,
    )


@pytest.fixture
def timed_run(runs: Path) -> Path:
    """Three episodes, of which two overlap, a step and an evaluation."""
    store = begin_run(runs / "timed")
    store.add_event("run_started", BEGAN)
    store.add_episode(timed(0, 1.0, (2.0, 1.0, 3), (4.0, 0.5, 4)))
    store.add_episode(timed(1, 3.0, (1.0, 1.0, 4)))
    store.add_episode(timed(2, 20.0, (1.0, 1.0, 5), split="evaluation"))
    store.add_event("step_finished", BEGAN + 18, step=0, metrics={"seconds.training": 4.0})
    store.add_event(
        "evaluation_finished", BEGAN + 30, step=1, n_graded=2, n_succeeded=1, seconds=9.0
    )
    store.set_outcome({"outcome": "completed", "seconds": 30.0})
    store.close()
    return runs / "timed"


def test_an_episode_has_its_time_by_what_it_was_spent_on(
    client: TestClient, timed_run: Path
) -> None:
    found = got(client, "run/timed/timeline.json")
    columns = found["columns"]
    assert (found["began"], found["ms"], found["episodes"], found["untimed"]) == (
        *(BEGAN, 30_000, 3, 0),
    )
    assert columns["start"] == [1000, 3000, 20_000]
    assert columns["turns"] == [[2000, 1000, 4000, 500], [1000, 1000], [1000, 1000]]
    assert columns["versions"] == [[3, 4], [4], [5]]
    assert columns["before"] == [1500] * 3
    assert (columns["rest"], columns["grading"]) == ([250] * 3, [2000] * 3)
    assert columns["after"] == [500] * 3
    assert columns["evaluation"] == [False, False, True]
    assert columns["reward"] == [1.0, 0.0, None]
    assert [(kind, at) for kind, at, _ in found["marks"]] == [
        *(("start", 0), ("step", 18_000), ("evaluation", 30_000)),
    ]
    assert found["marks"][1][2]["training"] == 4.0


def test_episodes_are_read_once_and_the_last_of_an_id_counts(timed_run: Path) -> None:
    timeline = Timeline(timed_run)
    assert timeline.update()["columns"]["start"] == [1000, 3000, 20_000]
    store = begin_run(timed_run.with_name("other"))
    store.add_episode(timed(1, 7.0, (1.0, 1.0, 4)))
    store.add_episode(attempt(9, id="untimed", started_at=""))
    store.close()
    line = (timed_run.with_name("other") / "episodes.jsonl").read_bytes()
    file = timed_run / "episodes.jsonl"
    before = file.read_bytes()
    file.write_bytes(before + line)
    found = timeline.update()
    assert found["columns"]["start"] == [1000, 7000, 20_000]
    assert (found["episodes"], found["untimed"]) == (3, 1)
    file.write_bytes(line)  # what was read is gone
    assert timeline.update()["columns"]["start"] == [7000]


def test_turns_too_short_to_be_told_apart_are_one(runs: Path) -> None:
    short = [(0.001, 0.0005, 1)] * 50 + [(0.001, 0.0005, 2)] * 50
    path = write_run(runs / "short", timed(0, 0.0, *short), timed(1, 3000.0, (1.0, 1.0, 1)))
    columns = Timeline(path).update()["columns"]
    assert columns["turns"][0] == [50, 25, 50, 25]
    assert columns["versions"][0] == [1, 2]


PIXEL = """(() => {
  const canvas = document.querySelector('.timeline canvas');
  const place = [AT * canvas.width, DOWN * devicePixelRatio];
  return [...canvas.getContext('2d').getImageData(...place, 1, 1).data];
})()"""
COLOUR = """(() => {
  const canvas = document.createElement('canvas').getContext('2d');
  canvas.fillStyle = getComputedStyle(document.body).getPropertyValue('--NAME').trim();
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
})()"""
CLICK = """(() => {
  const canvas = document.querySelector('.timeline canvas');
  const box = canvas.getBoundingClientRect();
  const place = { bubbles: true, clientX: box.left + box.width * AT, clientY: box.top + DOWN };
  for (const kind of ['mousedown', 'mouseup']) canvas.dispatchEvent(new MouseEvent(kind, place));
})()"""
TIMED_KEY = """(() => {
  window.took = 0;
  const begun = performance.now();
  const key = new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true });
  document.activeElement.dispatchEvent(key);
  requestAnimationFrame(() => setTimeout(() => { window.took = performance.now() - begun; }));
})()"""


def pixel(page: Page, x: float, y: float) -> list[int]:
    """The colour of the canvas at a share of its width and a CSS pixel of its height."""
    return list(page.value(PIXEL.replace("AT", str(x)).replace("DOWN", str(y))))


def colour(page: Page, name: str) -> list[int]:
    """A colour of the page's theme, as the canvas has it."""
    return list(page.value(COLOUR.replace("NAME", name)))


def see(page: Page, url: str) -> None:
    """Open a timeline, and look at it once it is drawn."""
    page.open("about:blank")
    page.open(url)
    page.until("document.querySelector('.timeline canvas')?.width > 100")


def press(page: Page, key: str) -> None:
    """A key where the focus is; also one that has no text."""
    page.value(
        "document.activeElement.dispatchEvent("
        f"new KeyboardEvent('keydown', {{ key: {json.dumps(key)}, bubbles: true }}))"
    )


def test_rows_show_the_model_in_the_colour_of_its_version(
    page: Page, served: str, timed_run: Path
) -> None:
    page.open(address(served, "/run/timed"))
    page.until("document.querySelector('#tasks')")
    page.press("t")
    page.until("location.hash === '#/run/timed/timeline'")
    see(page, page.value("location.href"))
    assert "3 episodes in 2 rows" in page.value(
        "document.querySelector('.timeline').getAttribute('aria-label')"
    )
    first, other = 42 + 9, 42 + 18 + 9
    assert pixel(page, 3.5 / 30, first) == colour(page, "c3")
    assert pixel(page, 7.5 / 30, first) == colour(page, "c4")
    assert pixel(page, 5.0 / 30, other) == colour(page, "c4")
    assert pixel(page, 22.0 / 30, first) == colour(page, "c5")
    card = colour(page, "card")
    tools, grading = pixel(page, 5.0 / 30, first), pixel(page, 11.5 / 30, first)
    assert len({*map(tuple, (tools, grading, card, colour(page, "c3")))}) == 4
    assert pixel(page, 15.0 / 30, first) == card


def test_keys_choose_open_and_zoom_and_the_address_keeps_it(
    page: Page, served: str, timed_run: Path
) -> None:
    see(page, address(served, "/run/timed/timeline"))
    page.value("document.querySelector('.timeline').focus()")
    for key, name in (("ArrowRight", 0), ("ArrowRight", 2), ("ArrowLeft", 0), ("ArrowDown", 1)):
        press(page, key)
        page.until(f"document.querySelector('.said b')?.innerText === '0-rename-{name}'")
    assert "policy 4" in page.value("document.querySelector('.said').innerText")
    press(page, "+")
    page.until("/from=\\d+&to=\\d+/.test(location.hash)")
    kept = page.value("location.href")
    see(page, kept)
    page.until("document.querySelector('.said b')?.innerText === '0-rename-1'")
    first, last = map(int, re.findall(r"(?:from|to)=(\d+)", kept))
    assert last - first == 15_000
    x = (5_000 - first) / 15_000
    assert pixel(page, x, 42 + 18 + 9) == colour(page, "c4")
    page.value("document.querySelector('.timeline').focus()")
    press(page, "0")
    page.until("!location.hash.includes('from=')")
    press(page, "Enter")
    page.until("document.querySelector('h1')?.innerText.includes('0-rename-1')")
    page.press("u")
    page.until("document.querySelector('#tasks')")


def test_a_click_chooses_and_narrow_screens_have_all_of_it(
    page: Page, served: str, timed_run: Path
) -> None:
    page.resize(390)
    see(page, address(served, "/run/timed/timeline"))
    page.value(CLICK.replace("AT", "22 / 30").replace("DOWN", "50"))
    page.until("document.querySelector('.said b')?.innerText === '0-rename-2'")
    assert "evaluation" in page.value("document.querySelector('.said').innerText")
    assert page.value("document.documentElement.scrollWidth <= innerWidth")


def test_an_episode_that_begins_as_another_one_ends_is_not_beside_it(
    page: Page, served: str, runs: Path
) -> None:
    """The time at which each begins is stored in whole milliseconds, cut off."""
    store = begin_run(runs / "close")
    turns = [(0.0006, 0.0006, 1)] * 20
    for number, start in enumerate((0.0, 4.273, 8.546)):
        store.add_episode(timed(number, start, *turns))
    store.close()
    see(page, address(served, "/run/close/timeline"))
    assert "3 episodes \u00b7 at most 1 at a time" in page.text()


def test_copies_have_the_timeline(
    page: Page, catalog: Catalog, registry: Registry, timed_run: Path, tmp_path: Path
) -> None:
    see(page, f"{report_of(timed_run)}#/run/timed/timeline")
    assert pixel(page, 3.5 / 30, 42 + 9) == colour(page, "c3")
    catalog.update()
    write_bundle(catalog, tmp_path / "site", registry)
    with files_of(tmp_path / "site") as url:
        see(page, f"{url}/#/run/timed/timeline")
        assert pixel(page, 3.5 / 30, 42 + 9) == colour(page, "c3")


def test_hostile_names_on_the_timeline_are_text(page: Page, served: str, runs: Path) -> None:
    write_run(runs / "hostile", attempt(0, id=HOSTILE, task_id=HOSTILE), credit=False)
    see(page, address(served, "/run/hostile/timeline?e=0"))
    page.until("document.querySelector('.said b')")
    assert "owned" in page.text()
    assert not page.value("window.owned")
    assert page.value("document.title") != "owned"
    kinds = "#app script, #app iframe, #app img, #app svg"
    assert page.value(f"document.querySelectorAll({json.dumps(kinds)}).length") == 0
    assert "\u202e" not in page.text()


def test_a_run_without_times_says_so(page: Page, served: str, runs: Path) -> None:
    write_run(runs / "bare", attempt(0, started_at=""), credit=False)
    page.open(address(served, "/run/bare/timeline"))
    page.until("document.querySelector('.empty')?.innerText.includes('No episode')")
    assert "1 episode without a time" in page.text()


def test_ten_thousand_episodes_are_drawn_at_once(page: Page, served: str, runs: Path) -> None:
    """The aim is a second until they are seen and 50 ms for a key; a machine with forty processes
    on two cores took sixteen seconds.
    """
    store = begin_run(runs / "many")
    for number in range(10_000):
        start = (number // 64) * 9.0 + (number % 64) * 0.1
        versions = number // 1000
        store.add_episode(timed(number, start, *[(0.4, 0.1, versions)] * 10))
    store.close()
    page.open(address(served, "/run/first"))
    page.until("document.querySelector('#episodes .line')")
    begun = time.monotonic()
    page.value("location.hash = '#/run/many/timeline'")
    page.until("document.querySelector('.timeline canvas')?.width > 100")
    print(f"10,000 episodes shown after {time.monotonic() - begun:.2f} s")
    page.value("document.querySelector('.timeline').focus()")
    page.value(TIMED_KEY)
    page.until("window.took")
    print(f"a key took {page.value('window.took'):.0f} ms")
    assert page.value("window.took") < 5000
