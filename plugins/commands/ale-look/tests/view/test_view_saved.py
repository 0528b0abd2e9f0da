"""Searches that are saved under a name: who has them, and what is refused."""

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ale.runs import Registry
from ale_look.view import saved as saving
from ale_look.view.catalog import Catalog
from ale_look.view.server import app
from ale_openai_wire import Admission

from .conftest import TOKEN, Page
from .test_view_browser import HOSTILE, address

PATH = "/api/searches.json"


def names(client: TestClient) -> list[str]:
    return [each["name"] for each in client.get(PATH).json()["searches"]]


def test_a_search_is_there_for_the_next_server_until_it_is_deleted(
    client: TestClient, catalog: Catalog, registry: Registry, runs: Path
) -> None:
    assert client.get(PATH).json() == {"searches": [], "problem": None, "writable": True}
    client.post(PATH, json={"name": "refused", "query": "q=refused"})
    client.post(PATH, json={"name": " done ", "query": "q=done&order=best"})
    client.post(PATH, json={"name": "refused", "query": "q=connection"})
    head = {"Authorization": f"Bearer {TOKEN}", "Host": "127.0.0.1:8901"}
    other = Catalog(runs, catalog.database)
    again = TestClient(app(other, registry, TOKEN, Admission.at("127.0.0.1")), headers=head)
    assert again.get(PATH).json()["searches"] == [
        {"name": "done", "query": "q=done&order=best"},
        {"name": "refused", "query": "q=connection"},
    ]
    one = Catalog(runs / "first", catalog.database)
    alone = TestClient(app(one, registry, TOKEN, Admission.at("127.0.0.1")), headers=head)
    assert names(alone) == ["done", "refused"]
    assert not (runs / "first" / saving.FILE).exists()
    again.post(PATH, json={"name": "refused", "query": ""})
    assert names(client) == ["done"]
    assert len((runs / saving.FILE).read_text().splitlines()) == 4
    assert (runs / saving.FILE).stat().st_mode & 0o077 == 0


def test_what_a_killed_server_has_begun_is_named_until_the_next_takes_its_place(
    client: TestClient, runs: Path
) -> None:
    client.post(PATH, json={"name": "one", "query": "q=1"})
    with (runs / saving.FILE).open("a") as file:
        file.write('{"name": "tw')
    assert names(client) == ["one"]
    assert client.get(PATH).json()["problem"].endswith("searches.jsonl: no search in line 2")
    client.post(PATH, json={"name": "three", "query": "q=3"})
    assert names(client) == ["one", "three"]
    assert client.get(PATH).json()["problem"] is None


def test_a_server_waits_no_longer_than_a_moment_for_another_one(
    client: TestClient, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.post(PATH, json={"name": "one", "query": "q=1"})
    monkeypatch.setattr("ale._store.shared._PATIENCE_S", 0.05)
    with (runs / saving.FILE).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        refused = client.post(PATH, json={"name": "two", "query": "q=2"})
    assert "is locked by another process" in refused.json()["error"]
    assert names(client) == ["one"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"name": "", "query": "q=1"}, "this is no search"),
        ({"name": "  ", "query": "q=1"}, "a search needs a name"),
        ({"name": "x" * 101, "query": "q=1"}, "this is no search"),
        ({"name": "x", "query": "q" * 4001}, "this is no search"),
        ({"name": "x", "query": "q=1", "more": 1}, "this is no search"),
        ([], "this is no search"),
    ],
)
def test_what_is_no_search_is_refused(
    client: TestClient, runs: Path, asked: Any, message: str
) -> None:
    answer = client.post(PATH, json=asked)
    assert (answer.status_code, message in answer.json()["error"]) == (400, True), answer.text
    assert not (runs / saving.FILE).exists()


def test_too_many_and_a_file_that_is_a_link_are_refused(
    client: TestClient, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "MOST", 1)
    client.post(PATH, json={"name": "one", "query": "q=1"})
    refused = client.post(PATH, json={"name": "two", "query": "q=2"})
    assert (refused.status_code, "delete one first" in refused.text) == (400, True)
    (runs / saving.FILE).unlink()
    (tmp_path / "mine").write_text("")
    (runs / saving.FILE).symlink_to(tmp_path / "mine")
    refused = client.post(PATH, json={"name": "one", "query": "q=1"})
    assert (refused.status_code, "can't be written" in refused.text) == (400, True)
    assert (tmp_path / "mine").read_text() == ""


def test_nobody_else_saves_or_reads_searches(client: TestClient, runs: Path) -> None:
    body = json.dumps({"name": "one", "query": "q=1"})
    for head, status in (
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Origin": "http://evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ):
        heads = {"Content-Type": "application/json", **head}
        assert client.post(PATH, content=body, headers=heads).status_code == status, head
    assert client.get(PATH, headers={"Authorization": ""}).status_code == 401
    assert not (runs / saving.FILE).exists()


def test_the_page_saves_opens_and_deletes_a_search(page: Page, served: str, runs: Path) -> None:
    page.open(address(served, "/search"))
    page.until("document.querySelector('#saved')")
    assert not page.value("document.querySelector('#saved form')")
    page.value("location.hash = '#/search?q=done&failed=exists'")
    page.until("document.querySelector('#saved form')")
    page.value("document.querySelector('#saved input').focus()")
    for key in "mine":
        page.press(key)
    page.value("document.querySelector('#saved form').requestSubmit()")
    page.until("document.querySelector('#saved a')?.innerText === 'mine'")
    page.value("location.hash = '#/search'")
    page.until("document.querySelector('input.big').value === ''")
    page.value("document.querySelector('#saved a').click()")
    page.until("document.querySelectorAll('.hit').length === 1")
    assert page.value("location.hash") == "#/search?q=done&failed=exists"
    page.value("document.querySelector('#saved button.x').click()")
    page.until("!document.querySelector('#saved a')")


def test_a_hostile_search_leads_nowhere_else_and_runs_nothing(
    page: Page, served: str, client: TestClient
) -> None:
    query = 'q="><script>window.owned=1</script>&__proto__=1#/run/x&javascript:window.owned=1'
    client.post(PATH, json={"name": HOSTILE[:100], "query": query})
    page.open(address(served, "/search"))
    page.until("document.querySelector('#saved a')")
    assert page.value("document.querySelector('#saved a').getAttribute('href')").startswith(
        "#/search?"
    )
    page.value("document.querySelector('#saved a').click()")
    page.until("document.querySelector('input.big').value.includes('script')")
    assert not page.value("window.owned")
    assert page.value("document.querySelectorAll('#app script, #app img').length") == 0


def test_a_folder_that_can_not_be_written_shows_what_is_saved_and_takes_nothing(
    page: Page, served: str, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.post(PATH, json={"name": "one", "query": "q=done"})
    monkeypatch.setattr(saving.os, "access", lambda *_: False)  # as the tests run as root
    page.open(address(served, "/search?q=done"))
    page.until("document.querySelector('#saved a')")
    assert page.value("document.querySelectorAll('#saved form, #saved button').length") == 0


def enter(page: Page, box: str, text: str) -> None:
    """Type a text into an input, where it replaces what is there."""
    page.value(f"{box}.focus(); {box}.select()")
    for key in text:
        page.press(key)


WORDS = "document.querySelector('input.big')"
FAILED = "document.querySelectorAll('.fields input')[1]"


@pytest.mark.parametrize(("box", "refused"), [(WORDS, "/(unclosed/"), (FAILED, "exist")])
def test_what_is_found_after_a_refused_search_stands_below_its_form(
    page: Page, served: str, box: str, refused: str
) -> None:
    page.open(address(served, "/search"))
    page.until("document.querySelectorAll('.hit').length === 3")
    tags = "[...document.querySelector('main').children].map((each) => each.tagName)"
    for _ in range(2):
        enter(page, box, refused)
        page.until("document.querySelector('[role=alert]')")
        enter(page, box, "exists")
        page.until("!document.querySelector('[role=alert]') && document.querySelector('.hits')")
        assert page.value(tags)[:3] == ["H1", "INPUT", "DIV"]
    page.errors = [each for each in page.errors if "400" not in each]
