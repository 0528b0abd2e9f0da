"""The page in a real Chromium: hostile content, live update, keys, and a static copy."""

import functools
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from ale.runs import Registry, RunReader
from ale.testing.builders import turn
from ale.testing.credit import known_worth
from ale.types import Message, Score, Stop, Trajectory, replace
from ale.values import NAME, rates, write_values
from ale_look.inspect.overview import overview
from ale_look.view.bundle import write_bundle
from ale_look.view.catalog import Catalog
from ale_look.view.server import app
from ale_openai_wire import Admission

from .conftest import TOKEN, Page, attempt, begin_run, credited, serving, write_run

HOSTILE = (
    "</script><script>document.title='owned';window.owned=1</script>"
    '<img src=x onerror="window.owned=1"><svg onload=window.owned=1>'
    "<iframe srcdoc='<script>top.owned=1</script>'></iframe>"
    "<a href='javascript:window.owned=1'>x</a>"
    "{{constructor.constructor('window.owned=1')()}}<!--\u202eevil\u202c"
)
FINISHED = Stop(reason="finished")
ANSI = (
    "\x1b[31mred\x1b[0m \x1b[1;38;5;196mbright\x1b[0m \x1b]0;title\x07\x1b[2J\x1b[Hplain\n10%\r20%"
)


def address(url: str, path: str = "/") -> str:
    return f"{url}/#token={TOKEN}{path}"


def test_views_are_reached_and_their_addresses_stay(page: Page, served: str) -> None:
    page.open(address(served))
    page.until("document.querySelector('#runs tbody a')")
    assert TOKEN not in page.value("location.href")
    page.value("document.querySelector('#runs tbody a').click()")
    page.until("document.querySelectorAll('#episodes .line').length === 3")
    assert page.value("location.hash") == "#/run/first"
    assert "agent: LLMError: connection refused" in page.text()
    page.value("document.querySelector('#tasks tbody a').click()")
    page.until("document.querySelector('.grid.parts')")
    assert "1 of 2 succeed" in page.text()
    page.value("document.querySelector('.grid.head a').click()")
    page.until("document.querySelectorAll('.turn').length === 2")
    kept = page.value("location.href")
    page.open("about:blank")
    page.open(kept)
    page.until("document.querySelectorAll('.turn').length === 2")
    page.reads("+0.500")


def test_without_the_token_the_page_asks_for_it(page: Page, served: str) -> None:
    page.open(f"{served}/")
    page.until("document.querySelector('input[type=password]')")
    page.value("document.querySelector('input').focus()")
    for key in TOKEN:
        page.press(key)
    page.value("document.querySelector('form').requestSubmit()")
    page.until("document.querySelector('#runs')")
    page.errors = [each for each in page.errors if "401" not in each]


def test_a_server_that_has_ended_is_named_and_one_that_is_back_is_asked_again(
    page: Page, catalog: Catalog, registry: Registry, runs: Path
) -> None:
    def made(token: str) -> Any:
        return app(catalog, registry, token, Admission.at("127.0.0.1"))

    with serving(made(TOKEN)) as url:
        page.open(address(url, "/run/first"))
        page.until("document.querySelectorAll('#episodes .line').length === 3")
        page.until("document.querySelector('.dot.on')")
    page.until("!document.querySelector('.dot.on')")
    page.press("t")
    page.reads("The server does not answer: is `ale view` still running?")
    port = int(url.rpartition(":")[2])
    with serving(made(TOKEN), port):
        page.until("document.querySelector('canvas')")
    page.until("!document.querySelector('.dot.on')")
    with serving(made("another-token"), port):
        page.until("document.querySelector('input[type=password]')")
    page.errors = []


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/", "#runs"),
        ("/run/first/e/0/0-rename-0", ".turn"),
        ("/run/first/task/rename", ".grid.parts"),
        ("/compare?run=first&run=first", ".compare"),
        ("/search?q=done", ".hit"),
    ],
)
def test_every_page_asks_again_once_its_server_is_back(
    path: str, shown: str, page: Page, catalog: Catalog, registry: Registry
) -> None:
    made = app(catalog, registry, TOKEN, Admission.at("127.0.0.1"))
    with serving(made) as url:
        page.open(address(url, "/run/first"))
        page.until("document.querySelector('.dot.on')")
    page.until("!document.querySelector('.dot.on')")
    page.value(f"location.hash = {json.dumps(path)}")
    page.reads("The server does not answer: is `ale view` still running?")
    with serving(made, int(url.rpartition(":")[2])):
        page.until(f"document.querySelector({json.dumps(shown)})")
        page.until("!document.querySelector('[role=alert]')")
    page.errors = []


def test_an_open_episode_gets_its_credit_and_its_tokens_once_they_are_there(
    page: Page, catalog: Catalog, registry: Registry, runs: Path
) -> None:
    tokens = Trajectory(turns=(turn("Go.", tokens=3),), stop=FINISHED)
    store = begin_run(runs / "live")
    store.add_episode(first := attempt(0, trajectory=tokens))
    button = "[...document.querySelectorAll('button')].find((e) => e.innerText.includes('sampled'))"
    made = app(catalog, registry, TOKEN, Admission.at("127.0.0.1"))
    with serving(made) as url:
        page.open(address(url, "/run/live/e/0/0-rename-0"))
        page.reads("not credited")
        page.until("document.querySelector('.dot.on')")
        with store.writing_credits(0) as keep:
            keep(credited(first, 0.5))
        store.add_event("step_finished", 1.0, step=0)
        page.reads("+0.500")
    page.until("!document.querySelector('.dot.on')")
    page.value(f"{button}.click()")
    page.reads("The server does not answer")
    with serving(made, int(url.rpartition(":")[2])):
        page.until("document.querySelectorAll('.short tbody tr').length === 3")
    store.close()
    page.errors = []


def test_keys_move_between_turns_and_episodes(page: Page, served: str) -> None:
    page.open(address(served, "/run/first"))
    page.until("document.querySelector('#episodes .line')")
    page.value("document.querySelectorAll('#episodes .line')[2].click()")
    page.until("document.querySelector('#turn-0.current')")
    page.press("j")
    page.until("document.querySelector('#turn-1.current')")
    page.press("k")
    page.until("document.querySelector('#turn-0.current')")
    page.until("document.querySelector('a[rel=next]')")
    page.press("n")
    page.until("location.hash.endsWith('0-rename-1')")
    page.until("document.querySelector('h1')?.innerText.includes('0-rename-1')")
    page.press("p")
    page.until("document.querySelector('h1')?.innerText.includes('0-rename-0')")
    page.press("u")
    page.until("document.querySelector('#tasks')")
    page.press("/")
    page.until("document.activeElement.matches('input.big')")
    for key in "refused":
        page.press(key)
    page.value("0")
    assert page.value("location.hash") == "#/search?q=refused"


def test_a_search_is_kept_in_the_address_and_leads_to_the_turn(page: Page, served: str) -> None:
    page.open(address(served, "/search?q=done&failed=exists"))
    page.until("document.querySelectorAll('.hit').length === 1")
    assert page.value("document.querySelector('mark').innerText") == "done"
    page.value("document.querySelector('.excerpt').click()")
    page.until("document.querySelector('#turn-1.current')")


def test_credit_of_other_schemes_stands_beside_that_of_the_run(page: Page, served: str) -> None:
    page.open(address(served, "/run/first/e/0/0-rename-0?schemes=double%20single"))
    page.until("document.querySelectorAll('.strip').length === 3")
    heads = page.value("document.querySelector('.chunk header').innerText")
    assert heads.split("\n")[:3] == ["single +0.500", "double +2.000", "single +1.000"]


def test_a_scheme_that_there_is_not_is_named_and_the_others_stay(page: Page, served: str) -> None:
    page.open(address(served, "/run/first/e/0/0-rename-0?schemes=double%20singel%20single:x=1"))
    page.until("document.querySelectorAll('.strip').length === 2")
    said = page.value("[...document.querySelectorAll('form .wrong')].map((e) => e.innerText)")
    assert said == [
        "singel: no credit scheme 'singel'; installed: double, single; did you mean 'single'?",
        "single:x=1: x: unknown option; expected no options of single",
    ]
    heads = page.value("document.querySelector('.chunk header').innerText")
    assert heads.split("\n")[:2] == ["single +0.500", "double +2.000"]


def test_chunks_stand_below_each_other_whatever_the_scheme_is_called(
    page: Page, served: str
) -> None:
    page.open(address(served, "/run/first/e/0/0-rename-0?schemes=double%20ale-parts/double"))
    page.until("document.querySelectorAll('.strip').length === 3")
    lefts = (
        "[...document.querySelectorAll('.strip')].map((strip) => [...strip.children]"
        ".map((each) => Math.round(10 * each.getBoundingClientRect().left)).join())"
    )
    for width in (1280, 400):
        page.resize(width)
        assert len({*page.value(lefts)}) == 1, width
        assert page.value("document.documentElement.scrollWidth <= innerWidth"), width


def test_nothing_that_a_run_holds_can_run(page: Page, served: str, runs: Path) -> None:
    prompt = [Message(role="user", content=HOSTILE)]
    turns = turn(
        HOSTILE, calls=[(HOSTILE, json.dumps({HOSTILE: HOSTILE}))], observations=[HOSTILE + ANSI],
        errors=[HOSTILE], prompt=prompt, fresh_context=True,
    )  # fmt: skip
    stop = Stop(reason="finished", detail=HOSTILE)
    bad = attempt(
        1, id=HOSTILE, task_id=HOSTILE, start="", trajectory=Trajectory(turns=(turns,), stop=stop)
    )
    broken = attempt(2, id=f"{HOSTILE}2", task_id=HOSTILE, sandbox=HOSTILE)
    store = begin_run(runs / "hostile", llm={"type": HOSTILE, "model": HOSTILE})
    store.add_episode(bad)
    store.add_episode(broken)
    store.add_event("reported", 0.0, message=HOSTILE)
    store.close()
    key = "hostile"
    for path, shown in (
        ("/", "#runs"),
        (f"/run/{key}", "#episodes .line"),
        (f"/run/{key}/e/0/x", ".turn"),
        (f"/run/{key}/task/%E2%80%AEevil", "h1"),
        (f"/run/{key}/task/%3Cscript%3Ewindow.owned%3D1%3C%2Fscript%3E", "h1"),
        ("/search?q=owned", ".hit"),
        ("/search?error=owned", ".hit"),
        ("/compare?run=hostile&run=first", ".compare"),
    ):
        page.open("about:blank")
        page.open(address(served, path))
        page.until(f"document.querySelector({json.dumps(shown)})")
        page.value("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        page.value("0")
        assert not page.value("window.owned"), path
        assert page.value("document.title") != "owned"
        assert "\u202e" not in page.value("document.title"), path
        assert (
            page.value(
                "document.querySelectorAll('#app script, #app iframe, #app img, #app svg').length"
            )
            == 0
        )
        links = page.value(
            "[...document.querySelectorAll('a')].map((each) => each.getAttribute('href'))"
        )
        assert all(link.startswith("#") for link in links)
        assert "\u202e" not in page.value("document.getElementById('app').textContent")


def test_a_terminal_has_its_colours_and_nothing_else(page: Page, served: str, runs: Path) -> None:
    write_run(runs / "colours", attempt(0, seen=ANSI))
    page.open(address(served, "/run/colours/e/0/0-rename-0"))
    page.until("document.querySelector('.seen')")
    assert page.value("document.querySelector('.seen').innerText") == "red bright plain\n20%"
    assert page.value("document.querySelector('.seen .a-red').innerText") == "red"


def test_a_long_line_is_shown_whole_when_it_is_asked_for(
    page: Page, served: str, runs: Path
) -> None:
    write_run(runs / "long", attempt(0, seen="x" * 1_000_000 + "the end"))
    page.open(address(served, "/run/long/e/0/0-rename-0"))
    page.until("document.querySelector('.turn')")
    assert "characters left out" in page.text()
    assert page.value("document.documentElement.scrollWidth <= innerWidth")
    page.value(
        "[...document.querySelectorAll('button')]"
        ".find((each) => each.innerText === 'Show all of them').click()"
    )
    page.until("document.querySelector('.seen').textContent.length === 1000007")
    assert page.value("document.documentElement.scrollWidth <= innerWidth")


def test_a_run_is_followed_while_it_writes(page: Page, served: str, runs: Path) -> None:
    store = begin_run(runs / "live")
    page.open(address(served, "/run/live"))
    page.until("document.querySelector('.badge.live')")
    page.until("document.querySelector('.dot.on')")
    for number in range(3):
        store.add_episode(attempt(number))
        page.until(f"document.querySelectorAll('#episodes .line').length === {number + 1}", 10)
    store.set_outcome({"outcome": "completed", "seconds": 1.0})
    store.close()
    page.until("document.querySelector('.badge.good')", 10)
    page.open(address(served, "/"))
    page.until("document.querySelector('#runs')")
    write_run(runs / "later", attempt(0))
    page.until("document.querySelectorAll('#runs tbody tr').length === 3", 15)


def test_more_tabs_than_a_browser_has_connections_follow_a_run(
    page: Page, served: str, runs: Path
) -> None:
    store = begin_run(runs / "live")
    tabs = [page.tab() for _ in range(8)]
    for tab in tabs:
        page.turn_to(tab)
        page.open(address(served, "/run/live"))
        page.until("document.querySelector('.dot.on')", 10)
    for number in range(2):
        store.add_episode(attempt(number))
        for tab in tabs[number:]:
            page.turn_to(tab)
            page.until(f"document.querySelectorAll('#episodes .line').length === {number + 1}", 10)
        page.turn_to(tabs[number])
        page.leave()
    page.turn_to(tabs[-1])
    store.close()


def test_a_browser_without_shared_workers_follows_too(page: Page, served: str, runs: Path) -> None:
    page._ask("Page.addScriptToEvaluateOnNewDocument", source="delete window.SharedWorker")
    page.open(address(served))
    page.until("document.querySelector('.dot.on') && !window.SharedWorker")
    write_run(runs / "later", attempt(0))
    page.until("document.querySelectorAll('#runs tbody tr').length === 2", 15)


def test_values_of_states_are_drawn_above_credit(page: Page, served: str, runs: Path) -> None:
    groups, values = known_worth(rollouts=32, seed=0)
    episodes = [rollout.episode for group in groups for rollout in group.rollouts]
    path = write_run(runs / "valued", *episodes, credit=False)
    write_values(path / NAME, values)
    page.open(address(served, f"/run/valued/e/0/{episodes[0].id}"))
    page.until("document.querySelector('svg.worth, .worth svg')")
    titles = page.value("[...document.querySelectorAll('.worth circle')].map((c) => c.textContent)")
    states, worth = values.episodes[episodes[0].id].states, rates(values)
    shown = [float(re.search(r"(?:V |outcome: )(-?[0-9.]+)", title)[1]) for title in titles]  # type: ignore[index]
    expected = [worth[episodes[0].task_id, state] for state in states]
    assert shown == pytest.approx(expected, abs=0.006)
    heads = "document.querySelectorAll('.worth svg > g > text:first-child')"
    names = page.value(f"[...{heads}].map((each) => each.textContent)")
    assert {"worth", "single", "double"} <= {*names}


@contextmanager
def files_of(folder: Path) -> Iterator[str]:
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_copy_needs_nothing_but_a_server_of_files(
    page: Page, catalog: Catalog, registry: Registry, tmp_path: Path
) -> None:
    catalog.update()
    written = write_bundle(catalog, tmp_path / "site", registry)
    assert (written.runs, written.episodes) == (1, 3)
    with files_of(tmp_path / "site") as url:
        page.open(f"{url}/")
        page.until("document.querySelector('#runs tbody a')")
        page.value("document.querySelector('#runs tbody a').click()")
        page.until("document.querySelectorAll('#episodes .line').length === 3")
        page.value("document.querySelectorAll('#episodes .line')[2].click()")
        page.until("document.querySelectorAll('.turn').length === 2")
        page.reads("+0.500")
        assert "Search" not in page.text()
        page.value("location.hash += '?schemes=double'")
        page.until("document.querySelectorAll('.strip').length === 2")
        page.reads("+2.000")


WIDE = "20260101-120000-3f2a-a-run-with-a-rather-long-name-of-its-own"


@pytest.mark.parametrize("bundled", [False, True])
def test_the_runs_page_has_name_and_success_in_sight_at_any_width(
    bundled: bool, page: Page, served: str, catalog: Catalog, registry: Registry, tmp_path: Path
) -> None:
    forged = Score(criterion="exists", passed=True, value=1.0, contested=0.0)
    write_run(catalog.folder / WIDE, attempt(0, scores=(forged,)), *map(attempt, (1, 2)))
    catalog.update()
    write_bundle(catalog, tmp_path / "site", registry)
    with files_of(tmp_path / "site") as url:
        page.open(f"{url}/" if bundled else address(served))
        page.until("document.querySelectorAll('#runs tbody tr').length === 2")
        box = "document.querySelector('#runs')"
        for width, column in (
            (1280, "created"),
            (1200, "created"),
            (900, "created"),
            (390, "success"),
        ):
            page.resize(width)
            end = f"[...{box}.querySelectorAll('th')].find((e) => e.innerText === '{column}')"
            assert page.value(f"{end}.getBoundingClientRect().right") <= width, column
            name = page.value(f"{box}.querySelector('td.name').getBoundingClientRect().width")
            assert name >= 90, (width, name)


def test_a_narrow_page_of_a_run_has_all_of_it_within(page: Page, served: str, runs: Path) -> None:
    tasks = [attempt(n, id=f"{n}", task_id=f"a-task-with-a-name-{n}") for n in (0, 1)]
    write_run(runs / "wide", *tasks, *(attempt(n) for n in range(30)), credit=False)
    page.resize(390)
    page.open(address(served, "/run/wide"))
    page.until("document.querySelectorAll('#tasks .dots a').length > 20")
    assert page.value("document.documentElement.scrollWidth <= innerWidth")


def test_a_run_that_is_not_there_is_not_waited_for(page: Page, served: str) -> None:
    page.open(address(served, "/run/frist"))
    page.until("document.querySelector('[role=alert]')")
    assert "did you mean 'first'?" in page.text()
    assert "Reading" not in page.text()
    page.errors = [each for each in page.errors if "400" not in each]


@pytest.mark.parametrize(
    ("path", "shown", "said"),
    [
        *(
            (f"/run/first/{rest}", "#tasks", "names no page of the run; this is the run.")
            for rest in ("e/", "e/x", "e/-1/0-rename-0", "bogus", "task/")
        ),
        ("/bogus/x", "#runs", "names no page; these are all runs."),
        ("/run/", "#runs", "names no page; these are all runs."),
    ],
)
def test_an_address_that_names_no_page_says_so_and_what_it_shows(
    page: Page, served: str, path: str, shown: str, said: str
) -> None:
    page.open(address(served, path))
    page.until(f"document.querySelector('{shown} tbody a')")
    assert said in page.text()
    page.value("location.hash = '#/run/first/timeline'")
    page.until("document.querySelector('canvas')")
    assert "names no page" not in page.text()


def test_a_page_whose_first_request_fails_asks_again(
    page: Page, catalog: Catalog, registry: Registry
) -> None:
    failing = [503, 503]
    whole = app(catalog, registry, TOKEN, Admission.at("127.0.0.1"))

    async def flaky(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") == "/api/about.json" and failing:
            return await PlainTextResponse("busy", failing.pop())(scope, receive, send)
        return await whole(scope, receive, send)

    with serving(flaky) as url:
        page.open(address(url))
        page.reads("The server answers 503 for about.json.")
        page.until("document.querySelector('#runs tbody a')")
        assert not page.value("Boolean(document.querySelector('[role=alert]'))")
    page.errors = [each for each in page.errors if "503" not in each]


def test_the_list_of_keys_is_within_a_narrow_page_and_escape_closes_it(
    page: Page, served: str
) -> None:
    page.resize(400)
    page.open(address(served))
    page.until("document.querySelector('#runs')")
    page.press("?")
    page.until("document.querySelector('[role=dialog]')")
    cells = "[...document.querySelectorAll('[role=dialog] td')]"
    assert page.value(f"{cells}.every((e) => e.getBoundingClientRect().right <= innerWidth)")
    page.press("Escape")
    page.until("!document.querySelector('[role=dialog]')")


def test_numbers_are_rounded_as_in_the_terminal(page: Page, served: str, runs: Path) -> None:
    more = Trajectory(turns=(turn("Go."),) * 3, stop=Stop(reason="finished"))
    numbers = (0, 1, 3)
    path = write_run(runs / "mean", *map(attempt, numbers), attempt(4, trajectory=more))
    page.open(address(served, "/run/mean"))
    page.until("document.querySelector('#tasks tbody tr')")
    cells = page.value("document.querySelector('#tasks tbody tr').innerText").split()
    (row,) = [line.split() for line in overview(RunReader(path)).splitlines() if "2.2" in line]
    assert "2.2" in row
    assert "2.2" in cells


def test_the_outcome_of_a_long_detail_is_in_sight(page: Page, served: str, runs: Path) -> None:
    detail = "\n".join([*(f"line {n} of what the test printed" for n in range(40)), "exit code 0"])
    passed = Score(criterion="tests", passed=True, value=1.0, detail=detail)
    write_run(runs / "long", attempt(0, scores=(passed,)))
    page.resize(390)
    page.open(address(served, "/run/long/e/0/0-rename-0"))
    page.until("document.querySelector('.scores summary')")
    assert page.value("document.querySelector('.scores summary').innerText").endswith("exit code 0")
    page.value("document.querySelector('.scores details').open = true")
    page.until("document.querySelector('.scores pre')")
    assert "line 20 of" in page.text()


def test_a_pass_that_is_contested_is_said_where_success_is(
    page: Page, served: str, runs: Path
) -> None:
    forged = Score(criterion="exists", passed=True, value=1.0, contested=0.0)
    write_run(runs / "forged", attempt(0, scores=(forged,)))
    page.open(address(served))
    page.until("document.querySelectorAll('#runs tbody tr').length === 2")
    rows = page.value("[...document.querySelectorAll('#runs tbody tr')].map((e) => e.innerText)")
    assert ["1 contested pass" in row for row in rows] == ["forged" in row for row in rows]
    page.value("location.hash = '#/run/forged'")
    page.until("document.querySelector('header .badge.warn')")
    assert page.value("document.querySelector('header .badge.warn').innerText").startswith("1 con")


def test_ten_megabytes_are_shown_at_once(page: Page, served: str, runs: Path) -> None:
    """The aim is a second; a busy machine gets five. `tests/bench/bench_view.py` has the server's
    share.
    """
    lines = "\n".join(f"line {n} of what a command has printed" for n in range(2400))
    turns = tuple(
        turn(f"Turn {n}.", calls=[("shell", '{"command": "cat log"}')], observations=[lines])
        for n in range(105)
    )
    large = attempt(0, trajectory=Trajectory(turns=turns, stop=Stop(reason="finished")))
    write_run(runs / "large", large, credit=False)
    assert (runs / "large" / "episodes.jsonl").stat().st_size > 10_000_000
    page.open(address(served, "/run/first"))
    page.until("document.querySelector('#episodes .line')")
    begun = time.monotonic()
    page.value("location.hash = '#/run/large/e/0/0-rename-0'")
    page.until("document.querySelectorAll('.turn').length === 105")
    print(f"10 MB shown after {time.monotonic() - begun:.2f} s")
    assert time.monotonic() - begun < 5


BUTTON = "[...document.querySelectorAll('button')].find((e) => e.innerText.includes('sampled'))"
ENTROPIES = (
    "[...document.querySelectorAll('.short tbody tr')].map((e) => e.children[5].textContent)"
)


def write_tokens(path: Path) -> Path:
    """A run whose trainer has stored the ratios of four tokens; their file."""
    tokens = Trajectory(turns=(turn("Go.", tokens=3), turn("On.", tokens=1)), stop=FINISHED)
    write_run(path, attempt(0, trajectory=tokens))
    row = {"episode_id": "0-rename-0", "log_ratios": [[0.1, 0.2, 0.3], None]}
    (path / "ratios").mkdir()
    file = path / "ratios" / "00000.jsonl"
    file.write_text(json.dumps({**row, "entropies": [[1.25, None, 0.5], None]}))
    return file


def test_tokens_have_the_entropy_that_the_trainer_stored(
    page: Page, served: str, runs: Path
) -> None:
    file = write_tokens(runs / "tokens")
    for shown in (["1.2500", "-", "0.5000", "-"], ["-"] * 4):
        page.open("about:blank")
        page.open(address(served, "/run/tokens/e/0/0-rename-0"))
        page.until(BUTTON)
        page.value(f"{BUTTON}.click()")
        page.until("document.querySelectorAll('.short tbody tr').length === 4")
        assert page.value(ENTROPIES) == shown
        row = json.loads(file.read_text())  # as an earlier version has written it
        file.write_text(json.dumps({name: row[name] for name in ("episode_id", "log_ratios")}))


def test_tokens_have_their_text_or_why_there_is_none(page: Page, served: str, runs: Path) -> None:
    known, unknown = turn("Go on.\n", calls=[("finish", "{}")], tokens=5), turn("On.", tokens=1)
    trace = replace(known.completion.tokens, text_offsets=(0, 0, 2, 5, 7))
    known = replace(known, completion=replace(known.completion, tokens=trace))
    both = Trajectory(turns=(known, unknown), stop=FINISHED)
    write_run(runs / "tokens", attempt(0, trajectory=both))
    page.open(address(served, "/run/tokens/e/0/0-rename-0"))
    page.until(BUTTON)
    page.value(f"{BUTTON}.click()")
    page.until("document.querySelectorAll('.short tbody tr').length === 6")
    texts = "[...document.querySelectorAll('.short td.piece')].map((each) => each.textContent)"
    assert page.value(texts) == ["", "Go", " on", ".\u21b5", ""]
    assert "Tokens without a text are of the reasoning, of a call" in page.text()
    assert page.text().count("Which text each token is was not recorded") == 1


def test_a_copy_has_tokens_and_says_what_it_lacks(
    page: Page, catalog: Catalog, registry: Registry, tmp_path: Path
) -> None:
    write_tokens(catalog.folder / "tokens")
    catalog.update()
    write_bundle(catalog, tmp_path / "site", registry)
    assert not (tmp_path / "site/api/run/first/tokens").exists()
    with files_of(tmp_path / "site") as url:
        page.open(f"{url}/#/run/tokens/e/0/0-rename-0")
        page.until(BUTTON)
        page.value(f"{BUTTON}.click()")
        page.until("document.querySelectorAll('.short tbody tr').length === 4")
        assert page.value(ENTROPIES) == ["1.2500", "-", "0.5000", "-"]
        for path, said in (
            ("/search?q=done", "A copy has no search"),
            ("/compare?run=first", "A copy has no comparison of runs"),
            ("/run/frist", "This copy does not have it: `ale view` shows all of a run."),
            ("/run/first/e/7/0-rename-7", "This copy does not have it"),
        ):
            page.value(f"location.hash = {json.dumps(path)}")
            page.reads(said)
            assert "404" not in page.text()
    page.errors = [each for each in page.errors if "404" not in each]


def test_a_search_without_a_word_is_refused_in_words_of_the_page(page: Page, served: str) -> None:
    for path, said in (
        ("/search?q=//", "words: there is no word in '//'"),
        ("/search?min_reward=x", "reward at least: 'x' is no number"),
    ):
        page.open("about:blank")
        page.open(address(served, path))
        page.reads(said)
    page.errors = [each for each in page.errors if "400" not in each]


def test_times_are_those_of_the_clock_of_who_reads(page: Page, served: str, runs: Path) -> None:
    page._ask("Emulation.setTimezoneOverride", timezoneId="America/New_York")
    shown = "[...document.querySelectorAll('time')].map((each) => [each.innerText, each.title])"
    time_of_day = ["2026-11-01 07:00", "2026-11-01T12:00:00.000Z"]
    for path in ("/", "/run/first", "/run/first/e/0/0-rename-0", "/search", "/run/first/timeline"):
        page.open("about:blank")
        page.open(address(served, path))
        page.until("document.querySelector('time')")
        assert page.value(shown)[0] == time_of_day, path
        assert "T12:00" not in page.text()


def test_attempts_that_have_no_dot_are_counted(page: Page, served: str, runs: Path) -> None:
    write_run(runs / "many", *map(attempt, range(30)), credit=False)
    page.open(address(served, "/run/many"))
    page.until("document.querySelector('#tasks .dots')")
    assert page.value("document.querySelectorAll('#tasks .dots a').length") == 24
    page.reads("last 24 of 30")
    page.open("about:blank")
    page.open(address(served, "/run/first"))
    page.until("document.querySelectorAll('#tasks .dots a').length === 3")
    assert "last 24" not in page.text()
