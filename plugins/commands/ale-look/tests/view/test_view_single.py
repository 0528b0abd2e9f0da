"""`report.html` in a real Chromium, opened from disk."""

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from attrs import evolve

from ale.runs import Registry, RunReader, add_note
from ale.testing.builders import turn
from ale.testing.credit import known_worth
from ale.text import visible
from ale.types import Message, Note, Stop, Trajectory
from ale.values import NAME, write_values
from ale_look.view.pages import one_script
from ale_look.view.single import write_report

from .conftest import Page, attempt, begin_run, write_run
from .test_view_browser import ANSI, HOSTILE


def report_of(path: Path, episodes: int = 200, registry: Registry | None = None) -> str:
    """The address of the page of a run."""
    target = path / "report.html"
    write_report(
        RunReader(path), target, episodes=episodes, megabytes=8.0, registry=registry or Registry()
    )
    return target.as_uri()


def test_a_file_from_disk_shows_the_run_its_tasks_and_its_episodes(page: Page, runs: Path) -> None:
    page.open(report_of(runs / "first"))
    page.until("document.querySelectorAll('#episodes .line').length === 3")
    assert page.value("document.title") == "first"
    assert "in this file" not in page.text()
    page.value("document.querySelector('#tasks tbody a').click()")
    page.until("document.querySelector('.grid.parts')")
    assert "3 attempts: 1 of 2 succeed" in page.text()
    page.value("document.querySelector('.grid.head a').click()")
    page.until("document.querySelectorAll('.turn').length === 2")
    assert "chunker turns, credit single" in page.text()
    page.reads("+0.500")
    page.until("document.querySelector('a[rel=next]')")
    page.press("n")
    page.until("document.querySelector('h1')?.innerText.includes('0-rename-1')")
    kept = page.value("location.href")
    page.open("about:blank")
    page.open(kept)
    page.until("document.querySelectorAll('.turn').length === 2")
    page.press("?")
    page.reads("show or hide this")
    assert "search" not in page.text(), "a copy has none"
    page.press("?")
    page.press("u")
    page.until("document.querySelector('#tasks')")
    page.press("u")
    page.until("location.hash === '#/'")
    assert page.value("Boolean(document.querySelector('#tasks'))"), "there is one run"


def test_what_was_left_out_is_said_wherever_episodes_are_counted(page: Page, runs: Path) -> None:
    url = report_of(runs / "first", episodes=2)
    page.open(url)
    page.until("document.querySelectorAll('#episodes .line').length === 2")
    assert "2 of 3 are in this file" in page.text()
    heads = page.value("[...document.querySelectorAll('#tasks th')].map((e) => e.innerText)")
    assert "attempts in this file" in heads
    page.value("document.querySelector('#tasks tbody a').click()")
    page.until("document.querySelector('.grid.head')")
    assert "2 attempts in this file" in page.text()
    held = {row.id for row in map(attempt, (0, 1))}
    left = next(
        offset for offset, e in RunReader(runs / "first").episodes.once() if e.id not in held
    )
    page.value(f"location.hash = '#/run/first/e/{left}/0-rename-2'")
    page.until("document.querySelector('[role=alert]')")
    assert "This file does not have it" in page.text()


def test_values_stand_in_the_file(page: Page, runs: Path, registry: Registry) -> None:
    groups, values = known_worth(rollouts=32, seed=0)
    episodes = [rollout.episode for group in groups for rollout in group.rollouts]
    path = write_run(runs / "valued", *episodes, credit=False)
    write_values(path / NAME, values)
    url = report_of(path, registry=registry)
    page.open(f"{url}#/run/valued/e/0/{episodes[0].id}")
    page.until("document.querySelector('.worth svg')")


def test_credit_of_other_schemes_is_in_the_file(page: Page, runs: Path, registry: Registry) -> None:
    url = report_of(runs / "first", registry=registry)
    page.open(f"{url}#/run/first/e/0/0-rename-0?schemes=double%20mine")
    page.until("document.querySelectorAll('.strip').length === 2")
    heads = page.value("document.querySelector('.chunk header').innerText")
    assert heads.split("\n")[:2] == ["single +0.500", "double +2.000"]
    assert "no credit under mine in this copy" in page.text()
    page.value("document.querySelector('[aria-label=\"remove double\"]').click()")
    page.until("document.querySelectorAll('.strip').length === 1")
    offered = page.value("[...document.querySelectorAll('#schemes option')].map((e) => e.value)")
    assert sorted(offered) == ["double", "single"]


def test_notes_stand_in_the_file(page: Page, runs: Path) -> None:
    add_note(runs / "first", Note(id="a", at=9e9, episode="0-rename-0", turn=1, label="jumpy"))
    add_note(runs / "first", Note(id="b", at=9e9, episode="0-rename-1", label="unlike-others"))
    url = report_of(runs / "first", episodes=1)
    page.open(f"{url}#/run/first?notes=1")
    page.until("document.querySelectorAll('#episodes .line').length === 1")
    page.value("document.querySelector('#episodes .line').click()")
    page.until("document.querySelector('#turn-1 .noted li')")
    page.reads("jumpy")
    assert "Withdraw" not in page.text()
    assert "unlike-others" not in (runs / "first" / "report.html").read_text()


def test_nothing_that_stands_in_the_file_can_run(page: Page, runs: Path) -> None:
    turns = turn(
        HOSTILE, calls=[(HOSTILE, json.dumps({HOSTILE: HOSTILE}))], observations=[HOSTILE + ANSI],
        errors=[HOSTILE], prompt=[Message(role="user", content=HOSTILE)], fresh_context=True,
    )  # fmt: skip
    forged = "</script><script data-path='about.json'>{}</script>"
    stop = Stop(reason="finished", detail=HOSTILE + forged)
    bad = attempt(
        1, id=HOSTILE, task_id=HOSTILE, start="", trajectory=Trajectory(turns=(turns,), stop=stop)
    )
    store = begin_run(runs / "hostile", llm={"type": HOSTILE, "model": HOSTILE})
    for each in (
        bad,
        evolve(bad, id="0-plain", rollout=7),
        attempt(2, id=f"{HOSTILE}2", task_id=HOSTILE),
    ):
        store.add_episode(each)
    store.add_event("reported", 0.0, message=HOSTILE + forged)
    store.close()
    said = HOSTILE + forged
    add_note(
        runs / "hostile",
        Note(id="a", at=9e9, episode=HOSTILE, label=said, comment=said, by=said),
    )
    manifest = json.loads((runs / "hostile" / "manifest.json").read_text())
    manifest["run_id"] = HOSTILE + forged
    (runs / "hostile" / "manifest.json").write_text(json.dumps(manifest))
    url = report_of(runs / "hostile")
    task = quote(visible(HOSTILE), safe="")
    for path, shown in (
        ("", "#episodes .line"),
        ("#/run/hostile/e/0/x", ".turn"),
        (f"#/run/hostile/task/{task}", ".grid.head"),
    ):
        page.open("about:blank")
        page.open(url + path)
        page.until(f"document.querySelector({json.dumps(shown)})")
        page.value("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert not page.value("window.owned"), path
        assert page.value("document.title") != "owned"
        assert "\u202e" not in page.value("document.title")
        assert "\u202e" not in page.value("document.getElementById('app').textContent")
        kinds = "#app script, #app iframe, #app img, #app svg"
        assert page.value(f"document.querySelectorAll({json.dumps(kinds)}).length") == 0
        assert page.value("document.querySelectorAll('script[data-path]').length") == 10
    page.value("const s = document.createElement('script'); s.text = 'window.owned = 1'; "
               "document.body.append(s)")  # fmt: skip
    assert not page.value("window.owned"), "the policy allows the page's own script alone"
    assert any("Content Security Policy" in each for each in page.errors)
    page.errors = [each for each in page.errors if "Content Security Policy" not in each]


def test_the_modules_of_the_page_are_one_script_in_order() -> None:
    script = one_script()
    places = {
        name: script.index(f'modules["{name}"] =')
        for name in ("preact-htm.js", "format.js", "api.js", "bits.js", "run.js", "app.js")
    }
    assert [*places] == sorted(places, key=lambda name: places[name])


def test_a_module_that_is_not_understood_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"app.js": b'import x from "./other.js";\n'}
    monkeypatch.setattr("ale_look.view.pages.static_files", lambda: files)
    with pytest.raises(AssertionError, match=r"app\.js"):
        one_script()
