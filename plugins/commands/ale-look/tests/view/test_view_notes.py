"""Notes: who may write them, what of them is refused, and how the page shows and takes them."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ale.runs import Registry, RunReader, add_note
from ale.types import Note
from ale_look.view import live
from ale_look.view.bundle import write_bundle
from ale_look.view.catalog import Catalog
from ale_look.view.noting import MOST_BYTES

from .conftest import Page, attempt, begin_run
from .test_view_api import got
from .test_view_browser import ANSI, HOSTILE, address, files_of

NOTES = "/api/run/first/notes.json"
ID = "0-rename-0"
FIRST = {"offset": 0, "episode": ID}


def said(client: TestClient, **fields: Any) -> Any:
    """The notes, after this one was written."""
    answer = client.post(NOTES, json={**FIRST, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()["notes"]


def test_a_note_is_written_replaced_and_withdrawn(client: TestClient, runs: Path) -> None:
    assert client.get(NOTES).json() == {"notes": [], "problem": None}
    (one,) = said(client, turn=1, label=" odd ", comment="It stops\ntoo early.", by="Ada")
    assert (one["label"], one["comment"], one["by"]) == ("odd", "It stops\ntoo early.", "Ada")
    assert (one["episode"], one["turn"], one["verdict"], one["schema"]) == (ID, 1, None, 1)
    assert len(said(client, verdict="good")) == 2
    changed = said(client, turn=1, label="early", id=one["id"], by="Bob")
    assert [(each["label"], each["by"]) for each in changed] == [("", ""), ("early", "Bob")]
    (left,) = said(client, turn=1, id=one["id"])
    assert left["verdict"] == "good"
    assert client.get(NOTES).json()["notes"] == [left]
    (stored,) = RunReader(runs / "first").notes
    assert (stored.id, stored.verdict, stored.turn) == (left["id"], "good", None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "needs a label, a comment or a verdict"),
        ({"comment": " \n"}, "needs a label, a comment or a verdict"),
        ({"episode": "0-rename-7", "label": "x"}, "no episode '0-rename-7' at 0"),
        ({"offset": 1, "label": "x"}, "no episode '0-rename-0' at 1"),
        ({"label": "x", "turn": 2}, "there is no turn 2"),
        ({"label": "x", "turn": -1}, "turn"),
        ({"label": "x", "turn": 1.5}, "turn"),
        ({"label": "x" * 101}, "label"),
        ({"comment": "x" * 20_001}, "comment"),
        ({"by": "x" * 101, "label": "x"}, "by"),
        ({"verdict": "great"}, "verdict"),
        ({"label": "x", "at": 1.0}, "at"),
        ({"label": "x", "id": "none"}, "withdrawn"),
        ({"label": 1}, "label"),
    ],
)
def test_what_is_no_note_on_this_run_is_refused(
    client: TestClient, runs: Path, fields: dict[str, Any], message: str
) -> None:
    answer = client.post(NOTES, json={**FIRST, **fields})
    assert answer.status_code == 400
    assert message in answer.json()["error"]
    assert not (runs / "first" / "notes.jsonl").exists()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"offset":0,"episode":"\\ud800"}', b"\xff"])
def test_what_is_no_json_of_a_note_is_refused(client: TestClient, body: bytes) -> None:
    answer = client.post(NOTES, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert "no note" in answer.json()["error"]


def test_a_note_stays_on_its_episode_and_turn(client: TestClient) -> None:
    (one,) = said(client, label="x", turn=0)
    offset = client.get("/api/run/first/episodes.json").json()["columns"]["offset"][1]
    second = {"offset": offset, "episode": "0-rename-1"}
    for other in ({"turn": 1}, {"turn": None}, {**second, "turn": 0}):
        asked = {**FIRST, "label": "y", "id": one["id"], **other}
        answer = client.post(NOTES, json=asked)
        assert (answer.status_code, "another episode" in answer.text) == (400, True)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Origin": "http://127.0.0.1:8900", "Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_only_the_page_with_the_token_writes(
    client: TestClient, runs: Path, head: dict[str, str], status: int
) -> None:
    body = json.dumps({**FIRST, "label": "x"})
    heads = {"Content-Type": "application/json", **head}
    assert client.post(NOTES, content=body, headers=heads).status_code == status
    assert (runs / "first" / "notes.jsonl").exists() == (status == 200)


def test_a_body_that_is_too_long_is_refused(client: TestClient, runs: Path) -> None:
    body = json.dumps({**FIRST, "label": "x"}).encode() + b" " * MOST_BYTES
    answer = client.post(NOTES, content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.headers["connection"]) == (413, "close")
    assert str(MOST_BYTES) in answer.json()["error"]
    assert not (runs / "first" / "notes.jsonl").exists()


def test_no_other_address_takes_anything(client: TestClient) -> None:
    for method in ("PUT", "DELETE", "PATCH"):
        assert client.request(method, NOTES, json={}).status_code == 405
    assert client.post("/api/run/frist/notes.json", json={}).status_code == 400


def test_notes_of_many_at_once_are_all_there(client: TestClient, runs: Path) -> None:
    def write(name: str) -> None:
        for n in range(10):
            add_note(runs / "first", Note(id=f"{name}{n}", at=9e9, episode=ID, label=name))

    other = threading.Thread(target=write, args=("other",))
    other.start()
    for n in range(10):
        said(client, label=f"mine {n}")
    other.join()
    assert len(client.get(NOTES).json()["notes"]) == 20


def test_what_is_left_out_of_the_file_is_named(client: TestClient, runs: Path) -> None:
    said(client, label="x")
    file = runs / "first" / "notes.jsonl"
    with file.open("ab") as opened:
        opened.write(b'{"schema":1,')
    answer = client.get(NOTES).json()
    assert [each["label"] for each in answer["notes"]] == ["x"]
    assert "notes.jsonl:2" in answer["problem"]
    assert [each["label"] for each in said(client, label="y")] == ["x", "y"]
    with file.open("ab") as opened:
        opened.write(b"damaged\n")
    for answer in (client.get(NOTES), client.post(NOTES, json={**FIRST, "label": "z"})):
        assert (answer.status_code, "notes.jsonl:3" in answer.json()["error"]) == (400, True)
    assert client.get("/api/run/first.json").status_code == 200, "the run is shown all the same"


def test_a_note_is_not_older_than_its_episode(client: TestClient, runs: Path) -> None:
    """The clock of the machine that the episode ran on may be ahead."""
    store = begin_run(runs / "ahead")
    store.add_episode(attempt(0, started_at="2999-01-01T00:00:00+00:00"))
    store.close()
    path = "/api/run/ahead/notes.json"
    answer = client.post(path, json={**FIRST, "verdict": "bad"})
    assert [each["verdict"] for each in answer.json()["notes"]] == ["bad"]


def test_a_note_on_an_episode_that_is_gone_or_was_sampled_again_is_not_shown(
    client: TestClient, runs: Path
) -> None:
    add_note(runs / "first", Note(id="a", at=9e9, episode="0-gone-0", label="x"))
    add_note(runs / "first", Note(id="b", at=1.0, episode=ID, label="y"))
    assert client.get(NOTES).json()["notes"] == []


def found(client: TestClient, asked: str) -> dict[str, Any]:
    """The excerpts of the episodes that a search finds."""
    return {
        row["episode_id"]: row["excerpts"] for row in got(client, f"search.json?{asked}")["rows"]
    }


def test_a_search_finds_the_text_of_notes(client: TestClient, runs: Path) -> None:
    said(client, turn=1, label="jumpy", comment="It stops too early: \u65e9\u3059\u304e")
    excerpt = found(client, "q=early")[ID][0]
    assert (excerpt["turn"], excerpt["note"]) == (1, True)
    assert [text for hit, text in excerpt["parts"] if hit] == ["early"]
    for asked, ids in (
        ("q=jumpy stops", [ID]),
        ('q="stops too"&min_reward=1', [ID]),
        ("q=\u3059\u304e", [ID]),
        ("q=jumpy&run=first", [ID]),
        ("q=jumpy&failed=exists", []),
        ("q=jumpy&max_reward=0.5", []),
        ("q=jump", []),
        ("q=jumpy done", []),
    ):
        assert [*found(client, asked)] == ids, asked
    assert len(found(client, "q=attempt")) == 3
    said(client, label="attempt")
    assert len(found(client, "q=attempt")) == 3
    assert [each.get("note") for each in found(client, "q=attempt")[ID]] == [True, None]


def test_a_search_leaves_out_notes_on_what_is_gone_and_damaged_files(
    client: TestClient, runs: Path
) -> None:
    add_note(runs / "first", Note(id="a", at=1.0, episode=ID, label="jumpy"))
    add_note(runs / "first", Note(id="b", at=9e9, episode="0-gone-0", label="jumpy"))
    assert found(client, "q=jumpy") == {}
    with (runs / "first" / "notes.jsonl").open("ab") as file:
        file.write(b"damaged\n")
    assert len(found(client, "q=attempt")) == 3


async def test_who_listens_hears_of_a_note(catalog: Catalog, runs: Path) -> None:
    events = live.events(catalog, every_s=0.01)
    assert [await anext(events), await anext(events)] == [b"retry: 2000\n\n", b":\n\n"]
    add_note(runs / "first", Note(id="a", at=9e9, episode=ID, label="x"))
    assert await anext(events) == b'data: ["first"]\n\n'


def test_a_copy_has_the_notes(
    client: TestClient, catalog: Catalog, registry: Registry, tmp_path: Path
) -> None:
    made = said(client, label="x", by="Ada")
    with (catalog.folder / "first" / "notes.jsonl").open("ab") as file:
        file.write(b"{")
    catalog.update()
    write_bundle(catalog, tmp_path / "site", registry)
    stored = json.loads((tmp_path / "site/api/run/first/notes.json").read_bytes())
    assert (stored["notes"], str(tmp_path) in stored["problem"]) == (made, False)
    about = json.loads((tmp_path / "site/api/about.json").read_bytes())
    assert about["by"] == "", "who made the copy is nobody's business"


EPISODE = f"/run/first/e/0/{ID}"
WRITING = "document.querySelector('form.writing')"


def stored(runs: Path, name: str = "first") -> list[Note]:
    return [*RunReader(runs / name).notes]


def typed(page: Page, text: str) -> None:
    for key in text:
        page.press(key)


def test_an_episode_is_marked_and_a_turn_noted_with_the_keyboard(
    page: Page, served: str, runs: Path
) -> None:
    page.open(address(served, EPISODE))
    page.until("document.querySelector('#turn-0.current')")
    page.press("g")
    page.until("document.querySelector('button[aria-pressed=true]')?.innerText === 'good'")
    page.until("document.querySelector('.noted .badge.good')")
    page.press("b")
    page.until("document.querySelector('button[aria-pressed=true]')?.innerText === 'bad'")
    assert [note.verdict for note in stored(runs)] == ["bad"], "it is the same note"
    page.press("b")
    page.until("!document.querySelector('.noted li')")
    assert stored(runs) == []
    page.press("j")
    page.until("document.querySelector('#turn-1.current')")
    page.press("c")
    page.until("document.activeElement.matches('#turn-1 form.writing input')")
    typed(page, "jumpy")
    page.value(f"{WRITING}.querySelector('textarea').focus()")
    typed(page, "gbn")  # letters, and no keys of the page
    keys = "{key: 'Enter', ctrlKey: true, bubbles: true}"
    page.value(f"document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {keys}))")
    page.until("document.querySelector('#turn-1 .noted li')")
    page.until(f"!{WRITING}")
    (note,) = stored(runs)
    assert (note.turn, note.label, note.comment, note.verdict) == (1, "jumpy", "gbn", None)
    page.open("about:blank")
    page.open(address(served, EPISODE))
    page.until("document.querySelector('#turn-1 .noted li')")
    page.press("e")
    page.until(WRITING)
    assert page.value("document.querySelectorAll('.turn form.writing').length") == 0
    page.press("Escape")
    page.until(f"!{WRITING}")
    assert len(stored(runs)) == 1


AT_ONCE = """
const shown = new MutationObserver(() => {
  if (!document.querySelector('#turn-0.current')) return;
  shown.disconnect();
  for (const key of ['c', 'j']) {
    document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  }
  const later = () => setTimeout(() => { window.settled = 1; }, 300);
  requestAnimationFrame(() => requestAnimationFrame(later));
});
shown.observe(document.getElementById('app'), { childList: true, subtree: true });
location.hash = PLACE;
"""


def test_keys_count_as_soon_as_an_episode_is_there(page: Page, served: str) -> None:
    """Nothing that the page does once it has been painted takes back what they did."""
    page.open(address(served, "/run/first"))
    page.until("document.querySelectorAll('#episodes .line').length === 3")
    page.value(AT_ONCE.replace("PLACE", json.dumps(f"#{EPISODE}")))
    page.until("window.settled")
    assert page.value("Boolean(document.querySelector('#turn-0 form.writing'))")
    assert page.value("Boolean(document.querySelector('#turn-1.current'))")


def test_a_note_is_edited_and_withdrawn(page: Page, served: str, runs: Path) -> None:
    add_note(runs / "first", Note(id="a", at=9e9, episode=ID, comment="first", by="Ada"))
    page.open(address(served, EPISODE))
    page.until("document.querySelector('.noted li')")
    page.value("document.querySelector('.noted li button').click()")
    page.until(f"{WRITING}?.querySelector('textarea').value === 'first'")
    page.value(f"{WRITING}.querySelector('textarea').focus()")
    page.value("document.activeElement.setSelectionRange(5, 5)")
    typed(page, "!")
    page.value(f"{WRITING}.requestSubmit()")
    page.until("document.querySelector('.noted pre')?.innerText === 'first!'")
    assert [(note.id, note.comment) for note in stored(runs)] == [("a", "first!")]
    page.value("document.querySelectorAll('.noted li button')[1].click()")
    page.until("!document.querySelector('.noted li')")
    assert stored(runs) == []


def test_notes_of_others_come_while_one_is_written(page: Page, served: str, runs: Path) -> None:
    page.open(address(served, EPISODE))
    page.until("document.querySelector('#turn-0.current') && document.querySelector('.dot.on')")
    page.press("c")
    page.until(WRITING)
    typed(page, "mine")
    add_note(runs / "first", Note(id="a", at=9e9, episode=ID, turn=1, label="theirs"))
    page.until("document.querySelector('#turn-1 .noted li')")
    assert page.value(f"{WRITING}.querySelector('input').value") == "mine"


def test_a_note_that_is_refused_stays_in_the_form(page: Page, served: str, runs: Path) -> None:
    page.open(address(served, EPISODE))
    page.until("document.querySelector('#turn-0.current')")
    page.press("e")
    page.until(WRITING)
    page.value(f"{WRITING}.requestSubmit()")
    page.until("document.querySelector('.tools [role=alert]')")
    assert "needs a label, a comment or a verdict" in page.text()
    page.until("document.querySelector('.dot.on')")
    add_note(runs / "first", Note(id="a", at=9e9, episode=ID, turn=1, label="theirs"))
    page.until("document.querySelector('#turn-1 .noted li')")
    assert "needs a label, a comment or a verdict" in page.text(), "others have changed the run"
    assert page.value(f"Boolean({WRITING})")
    page.errors = [each for each in page.errors if "400" not in each]


def test_attempts_are_marked_side_by_side(page: Page, served: str, runs: Path) -> None:
    add_note(runs / "first", Note(id="a", at=9e9, episode="0-rename-1", label="jumpy"))
    page.open(address(served, "/run/first/task/rename"))
    heads = "document.querySelectorAll('.grid.head > div')"
    page.until(f"{heads}[1]?.querySelector('.badge:not(a .badge)')")
    assert "jumpy" in page.value(f"{heads}[1].innerText")
    page.value(f"{heads}[1].querySelectorAll('button')[1].click()")
    page.until(f"{heads}[1].querySelector('button[aria-pressed=true]')")
    assert page.value("document.querySelectorAll('button[aria-pressed=true]').length") == 1
    assert [(note.episode, note.verdict) for note in stored(runs)][1:] == [("0-rename-1", "bad")]


def test_the_list_has_the_episodes_with_notes(page: Page, served: str, runs: Path) -> None:
    add_note(runs / "first", Note(id="a", at=9e9, episode=ID, turn=0, label="jumpy"))
    lines = "document.querySelectorAll('#episodes .line')"
    page.open(address(served, "/run/first"))
    page.until(
        f"{lines}.length === 3 && document.querySelector('#episodes .filter [type=checkbox]')"
    )
    page.value("document.querySelector('#episodes .filter [type=checkbox]').click()")
    page.until(f"{lines}.length === 1")
    assert ID in page.value(f"{lines}[0].innerText")
    assert "jumpy" in page.value(f"{lines}[0].innerText")
    assert page.value("location.hash") == "#/run/first?notes=1"
    page.value("location.hash = '#/run/first?q=JUMPY'")
    page.until(f"{lines}.length === 1")


def test_a_note_that_was_found_leads_to_its_turn(page: Page, served: str, runs: Path) -> None:
    add_note(runs / "first", Note(id="a", at=9e9, episode=ID, turn=1, label="jumpy"))
    page.open(address(served, "/search?q=jumpy"))
    page.until("document.querySelector('.excerpt mark')?.innerText === 'jumpy'")
    assert "note on turn 1" in page.value("document.querySelector('.excerpt').innerText")
    page.value("document.querySelector('.excerpt').click()")
    page.until("document.querySelector('#turn-1.current .noted li')")


def test_nothing_in_a_note_can_run(page: Page, served: str, runs: Path) -> None:
    hostile = {"label": HOSTILE, "comment": HOSTILE + ANSI, "by": HOSTILE}
    store = begin_run(runs / "hostile")
    store.add_episode(attempt(0, id=HOSTILE, task_id=HOSTILE))
    store.close()
    for turn in (None, 0):
        made = Note(id=f"{HOSTILE}{turn}", at=9e9, episode=HOSTILE, turn=turn, **hostile)
        add_note(runs / "hostile", made)
    for path, shown in (
        ("/run/hostile", "#episodes .line .badge"),
        ("/run/hostile?notes=1&q=owned", "#episodes .line .badge"),
        ("/run/hostile/e/0/x", "#turn-0 .noted li"),
    ):
        page.open("about:blank")
        page.open(address(served, path))
        page.until(f"document.querySelector({json.dumps(shown)})")
        if "/e/" in path:
            page.press("c")
            page.until(f"{WRITING}?.querySelector('option')")
        assert not page.value("window.owned"), path
        kinds = "#app script, #app iframe, #app img, #app svg"
        assert page.value(f"document.querySelectorAll({json.dumps(kinds)}).length") == 0
        text = page.value("document.getElementById('app').textContent")
        assert not {"\u202e", "\x1b"} & {*text}
    page.press("Escape")
    page.press("g")
    page.until("document.querySelector('button[aria-pressed=true]')?.innerText === 'good'")
    assert stored(runs, "hostile")[-1].episode == HOSTILE, "as it is stored, not as it is shown"


def test_a_copy_shows_notes_and_takes_none(
    page: Page, catalog: Catalog, registry: Registry, runs: Path, tmp_path: Path
) -> None:
    add_note(runs / "first", Note(id="a", at=9e9, episode=ID, turn=0, label="jumpy"))
    catalog.update()
    write_bundle(catalog, tmp_path / "site", registry)
    with files_of(tmp_path / "site") as url:
        page.open(f"{url}/#{EPISODE}")
        page.until("document.querySelector('#turn-0 .noted li')")
        for key in "gbce":
            page.press(key)
        page.press("j")
        page.until("document.querySelector('#turn-1.current')")
        assert not page.value(f"Boolean({WRITING})")
        assert page.value("document.querySelectorAll('.noted button').length") == 0
        assert "Note on" not in page.text()
        page.open(f"{url}/#/run/first?notes=1")
        page.until("document.querySelectorAll('#episodes .line').length === 1")
