"""What the server answers, and whom."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ale.testing.waiting import wait_for
from ale.types import Stop, Trajectory
from ale_look.view import live
from ale_look.view.catalog import Catalog
from ale_look.view.following import Following
from ale_look.view.keys import key_of

from .conftest import attempt, begin_run, write_run

API = ("about.json", "runs.json", "search.json", "run/first.json", "run/first/episodes.json")


def got(client: TestClient, path: str) -> Any:
    """An answer, once what is new has been read."""
    while True:
        answer = client.get(f"/api/{path}")
        assert answer.status_code == 200, answer.text
        made = answer.json()
        if not (isinstance(made, dict) and made.get("reading") is True):
            return made


def test_who_has_no_token_is_told_nothing(client: TestClient) -> None:
    for path in (*API, "live", "run/first/episode/0.json", "run/none.json"):
        for head in ("", "Bearer wrong", "Basic a-token-for-tests", "Bearer a-token-for-testsx"):
            answer = client.get(f"/api/{path}", headers={"Authorization": head})
            assert answer.status_code == 401, (path, head)
            assert "first" not in answer.text
        assert client.get(f"/api/{path}?token=a-token-for-tests", headers={"Authorization": ""})


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost.evil.example:8900"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:3000"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://127.0.0.1:8900", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Host": "localhost:8900"}, 200),
    ],
)
def test_a_page_of_another_site_is_refused_even_with_the_token(
    head: dict[str, str], status: int, client: TestClient
) -> None:
    for path in ("/", "/app.js", *(f"/api/{each}" for each in API)):
        answer = client.get(path, headers=head)
        assert answer.status_code == status, path
        assert "access-control-allow-origin" not in answer.headers


def test_every_answer_keeps_scripts_of_others_out(client: TestClient) -> None:
    for path in ("/", "/app.js", "/view.css", "/api/runs.json", "/api/none", "/none"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_an_address_between_episodes_is_no_damage(client: TestClient, runs: Path) -> None:
    size = (runs / "first" / "episodes.jsonl").stat().st_size
    for at in (1, 12, size - 1, size, size + 9):
        answer = client.get(f"/api/run/first/episode/{at}.json")
        assert answer.status_code == 400
        assert f"no episode begins at byte {at}" in answer.json()["error"], at


def test_nothing_can_be_written(client: TestClient) -> None:
    for path in ("/", "/api/runs.json", "/api/run/first.json", "/api/live"):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert client.request(method, path, json={}).status_code == 405


def test_runs_have_their_state_success_and_interval(client: TestClient, runs: Path) -> None:
    open_run = begin_run(runs / "deeper" / "second")
    answer = got(client, "runs.json")
    by_name = {row["run_id"]: row for row in answer["runs"]}
    assert answer["problems"] == []
    assert (by_name["second"]["state"], by_name["first"]["state"]) == ("running", "completed")
    assert by_name["first"]["success"] == 0.5
    assert 0 < by_name["first"]["low"] < 0.5 < by_name["first"]["high"] < 1
    assert by_name["second"]["success"] is None
    assert by_name["first"]["model"] == "m"
    assert got(client, f"run/{by_name['second']['key']}.json")["run_id"] == "second"
    open_run.close()


def test_keys_are_names_of_files_and_of_one_run_each(tmp_path: Path) -> None:
    names = ["a", "a/b", "x/b", "\u202eé", "..a", "a b", "A" * 200, "a?b", "%2e%2e"]
    names += ["a.json", key_of(tmp_path / "a b", tmp_path)]
    keys = [key_of(tmp_path / name, tmp_path) for name in names]
    assert keys[0] == "a"
    assert len({*keys}) == len(names)
    assert all(key.replace("-", "").replace(".", "").replace("_", "").isalnum() for key in keys)
    assert all(not key.startswith(".") and len(key) < 130 for key in keys)


def test_a_run_that_is_not_there_is_an_error_that_names_the_nearest(client: TestClient) -> None:
    for key in ("frist", "..%2f..", "%2e%2e%2fetc"):
        answer = client.get(f"/api/run/{key}.json")
        assert answer.status_code in (400, 404)
    assert "did you mean 'first'?" in client.get("/api/run/frist.json").json()["error"]


@pytest.mark.parametrize("n", [23, 5000])
def test_numbers_of_any_length_are_answered(client: TestClient, n: int) -> None:
    digits = "9" * n
    for part in ("episode", "tokens", "worth", "credit"):
        answer = client.get(f"/api/run/first/{part}/{digits}.json?scheme=single")
        assert answer.status_code == 400
        assert "offset" in answer.json()["error"]
    assert client.get(f"/api/run/first/episodes.json?since={digits}.{digits}").status_code == 200
    assert client.get(f"/api/search.json?limit={digits}").status_code in (200, 400)


@pytest.mark.parametrize("name", ["step", "min_reward", "after", "limit"])
@pytest.mark.parametrize("value", ["9" * 30, "-" + "9" * 30, "nan", "1e400"])
def test_a_number_that_no_column_can_hold_is_no_failure(
    client: TestClient, name: str, value: str
) -> None:
    got(client, "runs.json")
    assert client.get(f"/api/search.json?{name}={value}").status_code in (200, 400)


@pytest.mark.parametrize("value", [None, "x", []])
def test_a_run_whose_manifest_is_not_one_is_an_error_and_no_failure(
    client: TestClient, runs: Path, value: object
) -> None:
    write_run(runs / "second", attempt(0))
    manifest = json.loads((runs / "first" / "manifest.json").read_text())
    manifest["config"]["run"] = value
    (runs / "first" / "manifest.json").write_text(json.dumps(manifest))
    answer = client.get("/api/run/first.json")
    assert answer.status_code == 400
    assert "config.run" in answer.json()["error"]
    listed = got(client, "runs.json")
    assert [row["key"] for row in listed["runs"]] == ["second"]
    assert "first" in listed["problems"][0]


def test_a_search_for_fewer_than_one_episode_is_refused(client: TestClient) -> None:
    answer = client.get("/api/search.json?limit=-5")
    assert answer.status_code == 400
    assert "at least 1" in answer.json()["error"]
    assert len(got(client, "search.json?limit=1000")["rows"]) == 3


def test_a_run_is_what_its_report_says(client: TestClient) -> None:
    run = got(client, "run/first.json")
    tiles = {tile["label"]: tile for tile in run["tiles"]}
    assert tiles["success"]["value"] == "50.0%"
    assert run["outcome"]["name"] == "completed"
    (task,) = run["tasks"]
    assert (task["n"], task["succeeded"], task["broken"], task["goal"]) == (
        *(2, 1, 1),
        "Rename the file a to b.",
    )
    assert [(each["k"], each["mean"]) for each in run["pass_at"]] == [(1, 0.5), (2, 1.0)]
    (cause,) = run["causes"]
    assert cause["message"] == "agent: LLMError: connection refused"


def test_the_list_of_episodes_says_why_and_continues(client: TestClient, runs: Path) -> None:
    first = got(client, "run/first/episodes.json")
    assert first["columns"]["why"] == [
        *("", "exists: b is there", "agent: LLMError: connection refused"),
    ]
    with (runs / "first" / "episodes.jsonl").open("ab") as file:
        file.write((runs / "first" / "episodes.jsonl").read_bytes().split(b"\n")[0])
    half = got(client, f"run/first/episodes.json?since={first['reading']}.3")
    assert (half["columns"]["id"], half["since"]) == ([], 3)
    with (runs / "first" / "episodes.jsonl").open("ab") as file:
        file.write(b"\n")
    # The line is one that the run has already: the list is another one.
    again = got(client, f"run/first/episodes.json?since={first['reading']}.3")
    assert again["reading"] != first["reading"]
    assert again["since"] == 0
    assert len(again["columns"]["id"]) == 3


def offsets(client: TestClient) -> list[int]:
    found: list[int] = got(client, "run/first/episodes.json")["columns"]["offset"]
    return found


def test_an_episode_has_its_turns_credit_and_evidence(client: TestClient) -> None:
    episode = got(client, f"run/first/episode/{offsets(client)[0]}.json")
    assert [chunk["w"] for chunk in episode["chunks"]] == [0.5, 1.0]
    assert episode["scores"][0][:3] == ["exists", True, 1.0]
    assert episode["goal"] == "Rename the file a to b."
    assert episode["turns"][0]["parts"][0]["calls"][0]["seen"] == "a"
    assert episode["learned_in"] == 0
    assert client.get("/api/run/first/episode/99999999.json").status_code == 400
    assert client.get("/api/run/first/episode/1.json").status_code == 400


def test_long_texts_lose_their_middle_unless_all_is_asked_for(
    client: TestClient, runs: Path
) -> None:
    write_run(runs / "long", attempt(0, seen="x" * 1_000_000))
    short = client.get("/api/run/long/episode/0.json")
    whole = client.get("/api/run/long/episode/0.json?whole=1")
    assert len(short.content) < 50_000
    assert "characters left out" in short.text
    assert "x" * 1_000_000 in whole.text


def test_credit_is_computed_again_under_any_schemes(client: TestClient) -> None:
    at = offsets(client)[0]
    credit = got(client, f"run/first/credit/{at}.json?scheme=single&scheme=double")
    assert [each["scheme"] for each in credit] == ["single", "double"]
    assert [each["weights"] for each in credit] == [[1.0, 1.0], [2.0, 2.0]]
    wrong, right = got(client, f"run/first/credit/{at}.json?scheme=singel&scheme=double")
    assert wrong["refused"].endswith("did you mean 'single'?")
    assert right == credit[1]
    assert client.get(f"/api/run/first/credit/{at}.json").status_code == 400
    broken = client.get(f"/api/run/first/credit/{offsets(client)[2]}.json?scheme=single")
    assert (broken.status_code, "no credit" in broken.json()["error"]) == (400, True)


def test_looking_at_a_run_does_not_run_its_plugin_files(
    client: TestClient, runs: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    store = begin_run(runs / "given", plugins=[str(file)], credit={"type": "mine"})
    store.add_episode(attempt(0))
    store.close()
    for path in ("runs.json", "run/given.json", "run/given/episode/0.json"):
        got(client, path)
    client.get("/api/run/given/credit/0.json?scheme=mine&scheme=single")
    assert not (tmp_path / "ran").exists()


def test_a_name_that_may_be_in_what_is_not_read_yet_is_not_refused(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.get("/api/search.json?failed=later").status_code == 400
    monkeypatch.setattr(Catalog, "reading", property(lambda _: True))
    found = client.get("/api/search.json?failed=later").json()
    assert found == {"rows": [], "more": False, "reading": True, "partly": False}


def test_words_and_filters_find_episodes_with_the_turn(client: TestClient) -> None:
    found = got(client, 'search.json?q="am done" attempt')["rows"]
    assert [row["episode_id"] for row in found] == ["0-rename-2", "0-rename-1", "0-rename-0"]
    (excerpt,) = found[0]["excerpts"]
    assert excerpt["turn"] == 1
    assert [piece for hit, piece in excerpt["parts"] if hit] == ["am done", "attempt"]
    for asked, ids in (
        ("tool_failed=shell", ["0-rename-1"]),
        ("tool_failed=finish", []),
        ("tool=finish&min_reward=1", ["0-rename-0"]),
        ("failed=exists", ["0-rename-1"]),
        ("broken=1", ["0-rename-2"]),
        ("error=REFUSED", ["0-rename-2"]),
        ("run=first&order=best&limit=1", ["0-rename-0"]),
        ("q=sigma", []),
    ):
        rows = got(client, f"search.json?{asked}")["rows"]
        assert [row["episode_id"] for row in rows] == ids, asked
    for wrong in ("step=one", "order=nicest", "run=none", 'q="..."'):
        assert client.get(f"/api/search.json?{wrong}").status_code == 400, wrong
    for wrong, name in (("failed=exist", "exists"), ("tool=shel", "shell")):
        answer = client.get(f"/api/search.json?{wrong}")
        assert answer.status_code == 400, wrong
        assert f"did you mean '{name}'?" in answer.json()["error"]


def test_an_excerpt_shows_whole_words_where_most_of_them_stand(
    client: TestClient, runs: Path
) -> None:
    seen = f"notes, Files and nologin: no file yet.\n{'x ' * 300}\nls: no such file or directory"
    write_run(runs / "second", attempt(0, seen=seen, said="Not such a thing."))
    (found,) = [row for row in got(client, "search.json?q=no such file")["rows"] if row["excerpts"]]
    (excerpt,) = found["excerpts"]
    assert "or directory" in "".join(piece for _, piece in excerpt["parts"])
    assert [piece for hit, piece in excerpt["parts"] if hit] == ["no", "such", "file"]


def test_a_run_without_a_model_in_its_config_has_that_of_its_episodes(
    client: TestClient, runs: Path
) -> None:
    store = begin_run(runs / "second", llm={"type": "ale-llm/scripted"})
    store.add_episode(attempt(0, trajectory=Trajectory(turns=(), stop=Stop(reason="finished"))))
    store.close()
    rows = got(client, "runs.json")["runs"]
    (model,) = [row["model"] for row in rows if row["run_id"] == "second"]
    assert model == "scripted"


def test_runs_are_compared(client: TestClient, runs: Path) -> None:
    begin_run(runs / "second", credit={"type": "ale-parts/double"}).close()
    found = got(client, "compare.json?run=first&run=second")
    assert found["settings"] == [["credit.type", ["single", "double"]]]
    assert dict(map(tuple, found["results"]))["episodes"] == ["3", "0"]
    assert client.get("/api/compare.json?run=first").status_code == 400


def test_what_is_read_on_is_what_a_new_reading_says(runs: Path) -> None:
    store = begin_run(runs / "live")
    following = Following(runs / "live")
    for number in range(5):
        store.add_episode(attempt(number))
        facts = following.update()
        other = Following(runs / "live").update()
        assert facts.heads == other.heads
        assert facts.by_task == other.by_task
    assert following.readings == 1
    store.add_episode(attempt(1, reward=1.0))
    assert [head.reward for head in following.update().heads] == [1.0, None, 1.0, 0.0, 1.0]
    assert following.readings == 2
    store.close()


@pytest.mark.parametrize("file", ["episodes", "events", "tasks"])
def test_a_damaged_line_is_left_out_and_named(client: TestClient, runs: Path, file: str) -> None:
    path = runs / "first" / f"{file}.jsonl"
    path.write_bytes(b"\xff\n" + path.read_bytes().partition(b"\n")[2])
    listed = got(client, "run/first/episodes.json")["columns"]
    first = 1 if file == "episodes" else 0
    assert listed["id"] == ["0-rename-0", "0-rename-1", "0-rename-2"][first:]
    for at, name in zip(listed["offset"], listed["id"], strict=True):
        assert got(client, f"run/first/episode/{at}.json")["id"] == name
    got(client, "run/first/timeline.json")
    (warned,) = [
        text for text in got(client, "run/first.json")["warnings"] if text.startswith("Left out")
    ]
    assert f"{file}.jsonl:1: " in warned


async def test_changes_are_named_while_somebody_listens(catalog: Catalog, runs: Path) -> None:
    events = live.events(catalog, every_s=0.01)
    said = [await anext(events), await anext(events)]
    assert said == [b"retry: 2000\n\n", b":\n\n"]
    store = begin_run(runs / "live")
    seen: list[str] = []
    for _ in range(2 * live.LOOK_FOR_RUNS):
        if (line := await anext(events)).startswith(b"data: "):
            seen += json.loads(line[6:])
    assert seen == ["live"]
    store.add_episode(attempt(0))
    assert await anext(events) == b'data: ["live"]\n\n'
    store.close()  # its process no longer writes
    assert await anext(events) == b'data: ["live"]\n\n'
    assert await anext(events) == b":\n\n"


def test_runs_that_are_read_while_the_list_is_made_are_not_missed(
    client: TestClient, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page asks again as long as it is told that the server is reading."""
    listed, update, go = catalog.rows, catalog.update, threading.Event()

    def rows() -> list[dict[str, Any]]:
        found = listed()
        go.set()
        wait_for(lambda: not catalog.reading)
        return found

    monkeypatch.setattr(catalog, "rows", rows)
    monkeypatch.setattr(catalog, "update", lambda: (go.wait(30), update()))
    answer = client.get("/api/runs.json").json()
    assert (answer["runs"], answer["reading"]) == ([], True)
    assert [row["key"] for row in client.get("/api/runs.json").json()["runs"]] == ["first"]
