"""Steering from the page: who may, what is refused, and a real run that ends by a button."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ale._run.control import ACTIONS, Control, listening
from ale.errors import InputError
from ale.runs import Registry, RunReader
from ale.testing.waiting import wait_for
from ale_look.view.bundle import write_bundle
from ale_look.view.catalog import Catalog
from ale_look.view.noting import MOST_BYTES

from .conftest import Page, begin_run
from .test_view_browser import address, files_of

PARTS = """
from ale.plugin import Component, hookimpl
from ale.testing.fakes import FakeChunker, FakeCreditScheme, FolderBackend


def part(name, make):
    return [Component(name, None, lambda options, context: make(), summary="Of a test.")]


@hookimpl
def ale_sandboxes():
    return part("here", FolderBackend)


@hookimpl
def ale_chunkers():
    return part("whole", FakeChunker)


@hookimpl
def ale_credit_schemes():
    return part("same", FakeCreditScheme)
"""
RUN = '''
import asyncio
from pathlib import Path

import ale


@ale.agent
async def patient(context: ale.AgentContext) -> None:
    """Waits for a file."""
    while not Path("gate").exists():
        await asyncio.sleep(0.02)


ale.run({
    "tasks": [ale.Task(id="wait", goal="Wait.")],
    "agent": patient,
    "criteria": [lambda answer: 1.0],
    "sandbox": {"type": "here"},
    "chunker": {"type": "whole"},
    "credit": {"type": "same"},
    "plugins": ["parts.py"],
    "observers": [],
    "run": {"rollouts": 6, "concurrency": 2, "steps": 2, "directory": "runs"},
})
'''


class Live:
    """A run in a process of its own, whose episodes wait until they are let go."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = (folder / "log").open("w+b")
        (folder / "parts.py").write_text(PARTS)
        command = [sys.executable, "-c", RUN]
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=self._log, stderr=subprocess.STDOUT
        )
        wait_for(self._found, self.log)

    def _found(self) -> bool:
        assert self.process.poll() is None, self.log()
        return any(self._folder.glob("runs/*/control"))

    def log(self) -> str:
        return (self._folder / "log").read_text()

    @property
    def path(self) -> Path:
        (found,) = (each.parent for each in self._folder.glob("runs/*/events.jsonl"))
        return found

    def let_go(self) -> None:
        (self._folder / "gate").touch()

    def events(self) -> list[Mapping[str, Any]]:
        return [each for each in RunReader(self.path).events() if each["event"] == "steered"]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """A run in the folder of the page, beside another one that has ended."""
    made = Live(tmp_path)
    yield made
    made.end()


@pytest.fixture
def runs(tmp_path: Path, live: Live, make: Any) -> Path:
    """The folder."""
    return tmp_path / "runs"


def steer_of(live: Live) -> str:
    return f"/api/run/{live.path.name}/steer.json"


def test_a_run_is_steered_and_says_so_in_its_events(client: TestClient, live: Live) -> None:
    path = steer_of(live)
    wait_for(lambda: client.get(path).json().get("running") == 2, live.log)
    told = client.get(path).json()
    assert (told["alive"], told["paused"], told["concurrency"]) == (True, False, 2)
    assert {*told["takes"]} == {*ACTIONS} - {"state", "evaluate"}
    assert [each["id"] for each in told["episodes"]] == ["0-wait-0", "0-wait-1"]
    assert client.post(path, json={"action": "pause"}).json()["paused"] is True
    assert client.post(path, json={"action": "concurrency", "to": 3}).json()["concurrency"] == 3
    client.post(path, json={"action": "cancel", "to": "0-wait-1"})
    wait_for(lambda: client.get(path).json()["running"] == 1, live.log)
    assert client.post(path, json={"action": "stop"}).json()["stopping"] is True
    live.let_go()
    live.process.wait(60)
    assert client.get(path).json() == {"alive": False}
    assert [each["action"] for each in live.events()] == ["pause", "concurrency", "cancel", "stop"]
    refused = client.post(path, json={"action": "pause"})
    assert (refused.status_code, "is not running" in refused.text) == (400, True)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"action": "paus"}, "did you mean 'pause'?"),
        ({"action": "concurrency"}, "concurrency needs a number of at least 1"),
        ({"action": "concurrency", "to": 0}, "concurrency needs a number of at least 1"),
        ({"action": "concurrency", "to": True}, "nothing can be asked of a run so"),
        ({"action": "cancel", "to": "0-wait-7"}, "no episode '0-wait-7' is running"),
        ({"action": "evaluate"}, "no section evaluation"),
        ({"action": "stop", "now": True}, "now"),
        ([], "nothing can be asked of a run so"),
    ],
)
def test_what_can_not_be_asked_of_a_run_is_refused(
    client: TestClient, live: Live, asked: Any, message: str
) -> None:
    answer = client.post(steer_of(live), json=asked)
    assert (answer.status_code, message in answer.json()["error"]) == (400, True), answer.text
    assert live.events() == []


def test_nobody_else_steers(client: TestClient, live: Live) -> None:
    """Neither a page of another site, nor who has not the token."""
    path, stop = steer_of(live), json.dumps({"action": "stop"})
    for head, status in (
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ):
        heads = {"Content-Type": "application/json", **head}
        assert client.post(path, content=stop, headers=heads).status_code == status, head
    long = client.post(
        path, content=stop + " " * MOST_BYTES, headers={"Content-Type": "application/json"}
    )
    assert long.status_code == 413
    assert client.get(path, headers={"Authorization": ""}).status_code == 401
    assert live.events() == []
    assert client.get(path).json()["stopping"] is False
    heads = {"Content-Type": "application/json", "Origin": "http://127.0.0.1:8900"}
    assert client.post(path, content=stop, headers=heads).json()["stopping"] is True


def test_a_run_that_has_ended_can_not_be_steered(
    client: TestClient, live: Live, tmp_path: Path, make: Any
) -> None:
    make(tmp_path / "runs" / "ended")
    path = "/api/run/ended/steer.json"
    assert client.get(path).json() == {"alive": False}
    assert client.post(path, json={"action": "pause"}).status_code == 400


PANEL = "document.querySelector('#steer')"


def press(page: Page, text: str) -> None:
    """Press the button with a text, once it is there."""
    buttons = "[...document.querySelectorAll('#steer button')]"
    found = f"{buttons}.find((each) => each.innerText.includes({json.dumps(text)}))"
    page.until(f"{found} && !{found}.disabled")
    page.value(f"{found}.click()")


def test_buttons_pause_slow_down_cancel_and_end_a_run(page: Page, served: str, live: Live) -> None:
    page.open(address(served, f"/run/{live.path.name}"))
    press(page, "Pause")
    page.until(f"{PANEL}.innerText.includes('paused')")
    number = f"{PANEL}.querySelector('input[type=number]')"
    page.value(f"{number}.focus(); {number}.select()")
    page.press("4")
    page.value(f"{number}.form.requestSubmit()")
    wait_for(lambda: [e["action"] for e in live.events()] == ["pause", "concurrency"], live.log)
    assert live.events()[1]["concurrency"] == 4
    page.value(f"{PANEL}.querySelector('summary').click()")
    page.until(f"{PANEL}.querySelectorAll('tbody tr').length === 2")
    press(page, "Cancel")
    assert len(live.events()) == 2, "it is asked whether it is meant"
    press(page, "Press again to cancel")
    page.until(f"{PANEL}.querySelectorAll('tbody tr').length === 1")
    press(page, "Finish what runs and end")
    press(page, "Press again to finish")
    page.until(f"{PANEL}.innerText.includes('ending')")
    live.let_go()
    assert live.process.wait(60) == 0, live.log()
    page.until(f"!{PANEL}")
    page.until("document.querySelector('header .badge').innerText === 'drained'")
    assert [each["action"] for each in live.events()][2:] == ["cancel", "stop"]
    assert {each.id for each in RunReader(live.path).episodes} == {"0-wait-0", "0-wait-1"}


def test_the_run_ends_after_the_step_that_it_is_in(page: Page, served: str, live: Live) -> None:
    page.open(address(served, f"/run/{live.path.name}"))
    press(page, "End after this step")
    assert live.events() == [], "it is asked whether it is meant"
    press(page, "Press again to end after this step")
    page.until(f"{PANEL}.innerText.includes('ends after this step')")
    live.let_go()
    assert live.process.wait(60) == 0, live.log()
    assert {each.step for each in RunReader(live.path).episodes} == {0}
    page.until(f"!{PANEL}")


def test_a_button_lets_the_run_find_how_many_run_and_shows_it(
    page: Page, served: str, live: Live
) -> None:
    page.open(address(served, f"/run/{live.path.name}"))
    press(page, "auto")
    pressed = f"{PANEL}.querySelector('form button[aria-pressed=true]')"
    page.until(pressed)
    assert [(e["action"], e["auto"]) for e in live.events()] == [("concurrency", True)]
    number = f"{PANEL}.querySelector('input[type=number]')"
    page.value(f"{number}.focus(); {number}.select()")
    page.press("3")
    page.value(f"{number}.form.requestSubmit()")
    page.until(f"!{pressed}")
    assert (live.events()[-1]["concurrency"], live.events()[-1]["auto"]) == (3, False)


def test_a_run_that_is_paused_is_called_so_on_its_page_and_in_the_list(
    page: Page, served: str, live: Live
) -> None:
    badge = "document.querySelector('header .badge')?.innerText"
    page.open(address(served, f"/run/{live.path.name}"))
    page.until(f"{badge} === 'running'")
    press(page, "Pause")
    page.until(f"{badge} === 'paused'")
    page.value("location.hash = '#/'")
    page.until("document.querySelector('#runs .badge')?.innerText === 'paused'")
    page.value(f"location.hash = '#/run/{live.path.name}'")
    press(page, "Resume")
    page.until(f"{badge} === 'running'")


def running(n: int) -> list[dict[str, Any]]:
    return [{"id": f"0-wait-{i}", "stage": "agent", "seconds": 1.0} for i in range(n)]


@contextmanager
def taking(path: Path, *actions: str) -> Iterator[dict[str, Any]]:
    """Inside the block, this process's run at the path takes these requests, as a loop does, but
    refuses any number of episodes; what it answers may be changed.
    """
    state = {**Control(concurrency=1).state(), "stopping": False, "takes": [*actions]}
    told = state | {"episodes": running(1)}
    ready, end = threading.Event(), asyncio.Event()

    def carry_out(action: str, _: object) -> Mapping[str, Any]:
        if action == "concurrency":
            raise InputError.of("that is more than it takes")
        return told

    async def listen() -> None:
        async with listening(path, carry_out, pytest.fail):
            ready.set()
            await end.wait()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(listen(),))
    thread.start()
    assert ready.wait(60)
    try:
        yield told
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()


def test_there_is_no_button_for_what_the_run_does_not_take(
    page: Page, served: str, tmp_path: Path
) -> None:
    store = begin_run(tmp_path / "runs" / "loop")
    with taking(store.path, "stop"):
        page.open(address(served, "/run/loop"))
        page.until(PANEL)
        page.value(f"{PANEL}.querySelector('summary').click()")
        page.until(f"{PANEL}.querySelectorAll('tbody tr').length === 1")
        buttons = f"[...{PANEL}.querySelectorAll('button')].map((each) => each.innerText)"
        assert page.value(buttons) == ["Finish what runs and end"]
    store.close()


def test_what_is_refused_is_said_until_something_else_is_asked(
    page: Page, served: str, tmp_path: Path
) -> None:
    store = begin_run(tmp_path / "runs" / "loop")
    with taking(store.path, "pause", "concurrency") as told:
        page.open(address(served, "/run/loop"))
        page.until(f"{PANEL}?.querySelector('form')")
        page.value(f"{PANEL}.querySelector('form').requestSubmit()")
        page.reads("that is more than it takes")
        for n in (2, 3):
            told["episodes"] = running(n)
            page.reads(f"{n} episodes running")
        assert "that is more than it takes" in page.text()
        press(page, "Pause")
        page.until(f"!{PANEL}.querySelector('[role=alert]')")
    store.close()
    page.errors = [each for each in page.errors if "400" not in each]


def test_the_list_of_running_episodes_stays_open_while_there_are_none(
    page: Page, served: str, tmp_path: Path
) -> None:
    store = begin_run(tmp_path / "runs" / "loop")
    with taking(store.path, "stop") as told:
        page.open(address(served, "/run/loop"))
        page.until(f"{PANEL}?.querySelector('summary')")
        page.value(f"{PANEL}.querySelector('summary').click()")
        for n in (1, 0, 2):
            told["episodes"] = running(n)
            page.until(f"{PANEL}.querySelector('summary')?.innerText.startsWith('{n} episode')")
            page.until(f"{PANEL}.querySelectorAll('tbody tr').length === {n}")
            assert page.value(f"{PANEL}.querySelector('details').open"), n
    store.close()


def test_a_narrow_page_has_room_for_running_episodes(page: Page, served: str, live: Live) -> None:
    page.resize(390)
    page.open(address(served, f"/run/{live.path.name}"))
    page.until(f"{PANEL}?.querySelector('summary')")
    page.value(f"{PANEL}.querySelector('summary').click()")
    page.until(f"{PANEL}.querySelectorAll('tbody tr').length === 2")
    assert page.value(f"{PANEL}.querySelector('table').closest('.scroll') !== null")
    assert page.value("document.documentElement.scrollWidth <= innerWidth")


def test_why_a_running_run_can_not_be_steered_is_said(page: Page, served: str, live: Live) -> None:
    page.open(address(served, f"/run/{live.path.name}"))
    page.until(PANEL)
    (live.path / "control").unlink()
    page.reads("It can't be steered: ")
    assert not page.value(f"Boolean({PANEL})")


def test_a_copy_and_a_run_that_has_ended_have_no_buttons(
    page: Page, served: str, catalog: Catalog, registry: Registry, live: Live, tmp_path: Path
) -> None:
    name = live.path.name
    catalog.update()
    write_bundle(catalog, tmp_path / "site", registry)
    with files_of(tmp_path / "site") as url:
        page.open(f"{url}/#/run/{name}")
        page.until("document.querySelector('#episodes')")
        assert not page.value(f"Boolean({PANEL})")
    live.let_go()
    live.process.wait(60)
    page.open(address(served, f"/run/{name}"))
    page.until("document.querySelectorAll('#episodes .line').length")
    assert not page.value(f"Boolean({PANEL})")
