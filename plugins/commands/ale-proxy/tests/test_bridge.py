"""`ale workers bridge`: managers assign, workers take and answer, what is graded is an episode."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from ale.errors import InputError, PluginError
from ale.protocols import MiddlewareContext, Rewritten
from ale.recording import Recording
from ale.runs import Registry, RunReader
from ale.testing.openai_server import openai_server
from ale.types import Message
from ale_proxy.bridge.api import Keys
from ale_proxy.bridge.openapi import document
from ale_proxy.bridge.operations import OPERATIONS
from ale_proxy.bridge.running import BridgeOptions, bridging, run
from ale_proxy.journal import FOLDER
from ale_proxy.running import ProxyOptions
from ale_proxy.sessions import Sessions

from .conftest import CONFIG

TASK = {"prompt": "What is the capital of France?", "task_id": "france", "id": "f1"}
MANAGER, WORKER = "the-key-of-managers", "the-key-of-workers"


class Asking:
    """Requests to a bridge, each answer checked against the bridge's own document."""

    def __init__(self, client: httpx.AsyncClient, sessions: Sessions) -> None:
        self.client = client
        self.sessions = sessions
        self.document = document()
        self.seen: set[tuple[str, int]] = set()

    async def __call__(
        self, method: str, path: str, body: Any = None, key: str = "", status: int = 201
    ) -> Any:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        sent = None if body is None else content
        headers |= {"Content-Type": "application/json"} if sent is not None else {}
        answer = await self.client.request(method, path, content=sent, headers=headers)
        assert answer.status_code == status, answer.text
        plain = path.partition("?")[0]
        known = next(
            each
            for each in OPERATIONS
            if each.method == method
            and (each.path == plain or (each.name in ("task", "end") and plain.count("/") == 2))
        )
        self.seen.add((known.name, status))
        described = self.document["paths"][known.path][method.lower()]["responses"][str(status)]
        if "content" not in described:
            assert not answer.content
            return None
        schema = described["content"]["application/json"]["schema"]
        whole = {**schema, "components": self.document["components"]}
        jsonschema.Draft202012Validator(whole).validate(answer.json())
        return answer.json()


@contextlib.asynccontextmanager
async def bridge(
    path: Path, *, keys: Keys | None = None, killed: bool = False, **options: Any
) -> AsyncIterator[Asking]:
    """A bridge with a run directory; `killed` ends it as ``kill -9`` would."""
    middleware = options.pop("middleware", ())
    lease_s = options.pop("lease_s", 60.0)
    chosen = BridgeOptions(
        proxy=ProxyOptions(**{"upstream": "", **options}, port=0), lease_s=lease_s
    )
    recording = Recording(path, CONFIG, Registry())
    secrets = [key for key in (keys.manager, keys.worker) if key] if keys else []
    sessions = Sessions(recording, idle_s=600, middleware=middleware, secrets=secrets)
    async with (
        bridging(chosen, sessions, keys) as url,
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client,
    ):
        yield Asking(client, sessions)
        if killed:
            sessions._open.clear()
    recording.close()


def episodes(path: Path) -> list[Any]:
    return list(RunReader(path).episodes)


async def test_a_task_that_is_assigned_taken_answered_and_graded_is_an_episode(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run"
    async with bridge(path) as ask:
        assert (await ask("POST", "/tasks/assign", TASK))["state"] == "assigned"
        taken = await ask("POST", "/tasks/take", {"worker": "ada"}, status=200)
        assert (taken["id"], taken["prompt"]) == ("f1", TASK["prompt"])
        assert (await ask("GET", "/tasks/f1", status=200))["state"] == "taken"
        result = {"id": "f1", "worker": "ada", "result": "Paris", "steps": ["France.", "Capital."]}
        assert (await ask("POST", "/tasks/result", result))["state"] == "answered"
        await ask("POST", "/feedback", {"id": "f1", "text": "Say why.", "author": "bo"})
        graded = await ask("POST", "/feedback", {"id": "f1", "score": 0.5, "text": "Too short."})
        assert (graded["state"], graded["reward"]) == ("graded", 0.5)
        status = await ask("GET", "/status", status=200)
        assert (status["tasks"], status["open"]) == ({"graded": 1}, [])
        assert status["workers"][0]["name"] == "ada"
    (episode,) = episodes(path)
    assert (episode.id, episode.reward, episode.scores[0].value) == (graded["episode"], 0.5, 0.5)
    (turn,) = episode.trajectory.turns
    assert [message.content for message in turn.prompt] == [TASK["prompt"]]
    assert turn.completion.message.content == (
        "<step>France.</step>\n<step>Capital.</step>\n<answer>Paris</answer>"
    )
    said = [entry["text"] for entry in episode.metadata["feedback"]]
    assert said == ["Say why.", "Too short."]
    assert episode.metadata["assignment"]["worker"] == "ada"
    (task,) = RunReader(path).tasks
    assert (task.id, task.metadata["environment"]) == ("france", "chat")


async def test_nothing_acknowledged_is_lost_when_the_bridge_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    async with bridge(path, killed=True) as ask:
        await ask("POST", "/tasks/assign", TASK)
        await ask("POST", "/tasks/assign", {**TASK, "id": "f2"})
    async with bridge(path, killed=True) as ask:
        await ask("POST", "/tasks/take", {"worker": "ada"}, status=200)
    async with bridge(path, killed=True) as ask:
        assert (await ask("GET", "/tasks/f1", status=200))["state"] == "taken"
        await ask("POST", "/tasks/result", {"id": "f1", "worker": "ada", "result": "Paris"})
        await ask("POST", "/feedback", {"id": "f1", "text": "Good."})
    async with bridge(path, killed=True) as ask:
        shown = await ask("GET", "/tasks/f1", status=200)
        assert (shown["state"], shown["result"], shown["worker"]) == ("answered", "Paris", "ada")
        await ask("POST", "/feedback", {"id": "f1", "score": 1})
    async with bridge(path) as ask:
        assert (await ask("GET", "/tasks/f1", status=200))["state"] == "graded"
        assert (await ask("GET", "/tasks/f2", status=200))["state"] == "assigned"
    (episode,) = episodes(path)
    assert (episode.reward, episode.metadata["feedback"][0]["text"]) == (1.0, "Good.")
    assert len(list((path / FOLDER).iterdir())) == 1, "what is not graded stays open"


async def test_a_score_that_was_written_down_before_a_kill_is_stored_at_the_next_start(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run"
    async with bridge(path, killed=True) as ask:
        await ask("POST", "/tasks/assign", TASK)
        await ask("POST", "/tasks/result", {"id": "f1", "result": "Paris"})
    (file,) = (path / FOLDER).iterdir()
    with file.open("a") as journal:
        journal.write('{"feedback": {"score": 1.0, "text": "Yes."}}\n')
    async with bridge(path) as ask:
        assert (await ask("GET", "/tasks/f1", status=200))["reward"] == 1.0
        again = {"id": "f1", "score": 1.0, "text": "Yes."}
        assert (await ask("POST", "/feedback", again))["state"] == "graded"
    assert len(episodes(path)) == 1


async def test_requests_that_are_sent_twice_count_once(tmp_path: Path) -> None:
    path = tmp_path / "run"
    async with bridge(path) as ask:
        for _ in range(2):
            await ask("POST", "/tasks/assign", TASK)
        for _ in range(2):
            await ask("POST", "/tasks/result", {"id": "f1", "result": "Paris"})
        for _ in range(2):
            await ask("POST", "/feedback", {"id": "f1", "score": 1, "text": "Yes."})
        await ask("POST", "/tasks/assign", TASK)
        await ask("POST", "/tasks/result", {"id": "f1", "result": "Paris"})
        assert (await ask("POST", "/tasks/take", {"worker": "ada"}, status=204)) is None
    assert [len(each.metadata["feedback"]) for each in episodes(path)] == [1]


async def test_a_waiting_worker_gets_a_task_at_once_and_no_other_gets_it(tmp_path: Path) -> None:
    async with bridge(tmp_path / "run") as ask:
        waiting = [
            asyncio.create_task(
                ask.client.post("/tasks/take", json={"worker": name, "wait_s": 60}, timeout=90)
            )
            for name in ("ada", "bo")
        ]
        while len((await ask("GET", "/status", status=200))["workers"]) < 2:
            pass
        await ask("POST", "/tasks/assign", TASK)
        done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        (first,) = done
        assert first.result().json()["id"] == "f1"
        await ask("POST", "/tasks/assign", {**TASK, "id": "f2"})
        (second,) = rest
        assert (await second).json()["id"] == "f2"


async def test_a_task_goes_to_whom_it_is_for_and_to_who_has_its_environment(
    tmp_path: Path,
) -> None:
    async with bridge(tmp_path / "run") as ask:
        await ask("POST", "/tasks/assign", {**TASK, "worker": "ada"})
        await ask("POST", "/tasks/assign", {"prompt": "Fix it.", "id": "s", "environment": "swe"})
        chat = {"worker": "bo", "environments": ["chat", "terminal"]}
        await ask("POST", "/tasks/take", chat, status=204)
        assert (await ask("POST", "/tasks/take", {"worker": "bo"}, status=200))["id"] == "s"
        assert (await ask("POST", "/tasks/take", {"worker": "ada"}, status=200))["id"] == "f1"
        await ask("POST", "/tasks/result", {"id": "f1", "worker": "bo", "result": "?"}, status=409)


async def test_the_longest_id_of_a_task_makes_one_that_a_result_can_name(tmp_path: Path) -> None:
    async with bridge(tmp_path / "run") as ask:
        assigned = await ask("POST", "/tasks/assign", {"prompt": "?", "task_id": "t" * 80})
        await ask("POST", "/tasks/result", {"id": assigned["id"], "result": "!"})


async def test_a_task_whose_worker_is_lost_is_given_again(tmp_path: Path) -> None:
    async with bridge(tmp_path / "run", lease_s=1e-9) as ask:
        await ask("POST", "/tasks/assign", TASK)
        for worker in ("ada", "bo"):
            assert (await ask("POST", "/tasks/take", {"worker": worker}, status=200))["id"] == "f1"
        await ask("POST", "/tasks/result", {"id": "f1", "worker": "bo", "result": "Paris"})
        late = {"id": "f1", "worker": "ada", "result": "Lyon"}
        await ask("POST", "/tasks/result", late, status=409)
        assert (await ask("GET", "/tasks/f1", status=200))["worker"] == "bo"


@pytest.mark.parametrize("killed", [False, True])
async def test_what_a_lost_worker_asked_a_model_is_not_in_the_episode_of_the_next_one(
    tmp_path: Path, killed: bool
) -> None:
    path = tmp_path / "run"

    async def works(ask: Asking, worker: str) -> None:
        assert (await ask("POST", "/tasks/take", {"worker": worker}, status=200))["id"] == "f1"
        message = {"role": "user", "content": f"I am {worker}."}
        answer = await ask.client.post(
            "/v1/chat/completions",
            json={"model": "m", "messages": [message]},
            headers={"X-Ale-Session": "f1"},
        )
        assert answer.status_code == 200, answer.text

    with openai_server({"*": {"text": "It is Paris."}}) as server:
        options: dict[str, Any] = {"upstream": server.url, "lease_s": 1e-9}
        async with bridge(path, killed=killed, **options) as ask:
            await ask("POST", "/tasks/assign", TASK)
            await works(ask, "ada")
            await works(ask, "bo")
            if not killed:
                await graded(ask)
        if killed:
            async with bridge(path, **options) as ask:
                await graded(ask)
    (episode,) = episodes(path)
    assert [turn.prompt[0].content for turn in episode.trajectory.turns] == ["I am bo."]


async def graded(ask: Asking) -> None:
    late = {"id": "f1", "worker": "ada", "result": "Lyon"}
    await ask("POST", "/tasks/result", late, status=409)
    await ask("POST", "/tasks/result", {"id": "f1", "worker": "bo", "result": "Paris"})
    await ask("POST", "/feedback", {"id": "f1", "score": 1})


async def test_requests_to_a_model_keep_a_task_from_being_given_again(tmp_path: Path) -> None:
    with openai_server({"*": {"text": "It is Paris."}}) as server:
        async with bridge(tmp_path / "run", upstream=server.url) as ask:
            await ask("POST", "/tasks/assign", TASK)
            await ask("POST", "/tasks/take", {"worker": "ada"}, status=200)
            (session,) = ask.sessions
            assert session.assignment is not None
            long_ago = time.monotonic() - 61
            session.assignment.taken_at = session.last = long_ago
            body = {"model": "m", "messages": [{"role": "user", "content": "Where?"}]}
            await ask.client.post(
                "/v1/chat/completions", json=body, headers={"X-Ale-Session": "f1"}
            )
            await ask("POST", "/tasks/take", {"worker": "bo"}, status=204)
            session.last = long_ago
            await ask("POST", "/tasks/take", {"worker": "bo"}, status=200)


async def test_a_manager_waits_for_a_result(tmp_path: Path) -> None:
    async with bridge(tmp_path / "run") as ask:
        await ask("POST", "/tasks/assign", TASK)
        waiting = asyncio.create_task(ask("GET", "/tasks/f1?wait_s=60", status=200))
        await asyncio.sleep(0)
        await ask("POST", "/tasks/result", {"id": "f1", "result": "Paris"})
        assert (await waiting)["result"] == "Paris"


async def test_each_error_has_its_status_and_says_what_is_wrong(tmp_path: Path) -> None:
    async with bridge(tmp_path / "run") as ask:
        bad = await ask("POST", "/tasks/assign", b"{prompt:", status=400)
        assert "no JSON" in bad["error"]["message"]
        wrong = await ask("POST", "/tasks/assign", {"promt": "?"}, status=422)
        assert "promt" in wrong["error"]["message"]
        for path in ("/tasks/take", "/tasks/result", "/feedback"):
            await ask("POST", path, b"", status=400)
            await ask("POST", path, {"worker": 1}, status=422)
        await ask("POST", "/tasks/assign", TASK)
        await ask("POST", "/tasks/assign", {**TASK, "prompt": "Another?", "id": "x"}, status=409)
        await ask("POST", "/tasks/assign", {"prompt": "Other?", "id": "f1"}, status=409)
        for other in ({"worker": "bo"}, {"environment": "terminal"}):
            await ask("POST", "/tasks/assign", {**TASK, **other}, status=409)
        await ask("POST", "/feedback", {"id": "f1", "score": 1}, status=409)
        await ask("POST", "/feedback", {"id": "f1"}, status=422)
        score = await ask("POST", "/feedback", {"id": "f1", "score": 1.5}, status=422)
        assert "score" in score["error"]["message"]
        await ask("POST", "/feedback", {"id": "no", "score": 1}, status=404)
        await ask("POST", "/tasks/result", {"id": "no", "result": ""}, status=404)
        await ask("GET", "/tasks/no", status=404)
        await ask("GET", "/tasks/f1?wait_s=61", status=422)
        await ask("DELETE", "/tasks/no", status=404)
        assert (await ask("DELETE", "/tasks/f1", status=200))["state"] == "ended"
        await ask("POST", "/tasks/result", {"id": "f1", "result": "Late."}, status=409)
        await ask("GET", "/health", status=200)
        missing = [
            (operation.name, status)
            for operation in OPERATIONS
            for status in operation.statuses
            # These have tests of their own; 500 needs a middleware that fails.
            if status not in (401, 403, 408, 413, 415, 421, 500, 503, 507)
            and (operation.name, status) not in ask.seen
        ]
        assert not missing
    (episode,) = episodes(tmp_path / "run")
    assert episode.failure.kind == "NoAnswer"


async def test_a_worker_can_not_assign_or_grade_and_keys_are_never_stored(tmp_path: Path) -> None:
    keys = Keys(manager=MANAGER, worker=WORKER)
    told = {**TASK, "prompt": f"My key is {MANAGER}."}
    async with bridge(tmp_path / "run", keys=keys) as ask:
        for key in ("", "wrong", WORKER):
            await ask("POST", "/tasks/assign", told, key=key, status=401)
            await ask("POST", "/feedback", {"id": "f1", "score": 1}, key=key, status=401)
            await ask("GET", "/status", key=key, status=401)
            await ask("DELETE", "/tasks/f1", key=key, status=401)
        await ask("POST", "/tasks/take", {"worker": "ada"}, key="wrong", status=401)
        await ask("POST", "/tasks/result", {"id": "f1", "result": ""}, key="wrong", status=401)
        await ask("GET", "/tasks/f1", status=401)
        await ask("POST", "/tasks/assign", told, key=MANAGER)
        await ask("POST", "/tasks/take", {"worker": "ada"}, key=WORKER, status=200)
        result = {"id": "f1", "worker": "ada", "result": f"And mine is {WORKER}."}
        await ask("POST", "/tasks/result", result, key=WORKER)
        written = [file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()]
        await ask("POST", "/feedback", {"id": "f1", "score": 0}, key=MANAGER)
        await ask("GET", "/health", status=200)
    written += [file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert not [data for data in written for key in (MANAGER, WORKER) if key.encode() in data]


async def test_a_full_disk_is_said_and_nothing_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    async with bridge(path) as ask:
        await ask("POST", "/tasks/assign", TASK)
        (path / FOLDER).rename(path / "aside")
        (path / FOLDER).write_text("no folder can be made here")
        await ask("POST", "/tasks/assign", {**TASK, "id": "f2"}, status=507)
        for _ in range(2):
            await ask("POST", "/tasks/take", {"worker": "ada"}, status=507)
        await ask("POST", "/tasks/result", {"id": "f1", "result": "Paris"}, status=507)
        await ask("POST", "/feedback", {"id": "f1", "text": "Hm."}, status=507)
        (path / FOLDER).unlink()
        (path / "aside").rename(path / FOLDER)
        assert (await ask("GET", "/tasks/f1", status=200))["result"] is None
        await ask("GET", "/tasks/f2", status=404)
        await ask("POST", "/tasks/result", {"id": "f1", "result": "Paris"})


async def test_what_a_worker_asks_a_model_on_the_same_server_is_the_tasks_trajectory(
    tmp_path: Path,
) -> None:
    with openai_server({"*": {"text": "It is Paris."}}) as server:
        async with bridge(tmp_path / "run", upstream=server.url) as ask:
            await ask("POST", "/tasks/assign", TASK)
            taken = await ask("POST", "/tasks/take", {"worker": "ada"}, status=200)
            answer = await ask.client.post(
                "/v1/chat/completions",
                json={"model": "m", "messages": taken["messages"]},
                headers={"X-Ale-Session": taken["id"]},
            )
            assert answer.status_code == 200, answer.text
            await ask("POST", "/tasks/result", {"id": "f1", "worker": "ada", "result": "Paris"})
            await ask("POST", "/feedback", {"id": "f1", "score": 1})
    (episode,) = episodes(tmp_path / "run")
    (turn,) = episode.trajectory.turns
    assert turn.completion.message.content == "It is Paris."
    assert episode.metadata["assignment"]["result"] == "Paris"


class Hint:
    """A middleware that adds one sentence."""

    async def rewrite(self, head: tuple[Message, ...], context: MiddlewareContext) -> Rewritten:
        system = Message(role="system", content=f"Hint for {context.task.id}.")
        return Rewritten(messages=(system, *head), facts={"hint": "given"})


async def test_a_worker_reads_what_the_middleware_adds_and_it_is_what_is_stored(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run"
    async with bridge(path, killed=True, middleware=[("hint", Hint())]) as ask:
        await ask("POST", "/tasks/assign", TASK)
        taken = await ask("POST", "/tasks/take", {"worker": "ada"}, status=200)
        assert [each["role"] for each in taken["messages"]] == ["system", "user"]
    async with bridge(path, middleware=[("hint", Hint())]) as ask:
        await ask("POST", "/tasks/result", {"id": "f1", "worker": "ada", "result": "Paris"})
        await ask("POST", "/feedback", {"id": "f1", "score": 1})
    (episode,) = episodes(path)
    prompt = episode.trajectory.turns[0].prompt
    assert [message.content for message in prompt] == ["Hint for france.", TASK["prompt"]]
    assert episode.metadata["middleware"] == [{"type": "hint", "hint": "given"}]


class Halting:
    """A middleware that fails the first time, and waits for ever the second."""

    def __init__(self) -> None:
        self.asked = 0
        self.waits = asyncio.Event()

    async def rewrite(self, head: tuple[Message, ...], context: MiddlewareContext) -> Rewritten:
        self.asked += 1
        if self.asked == 1:
            raise PluginError("there are no hints")
        if self.asked == 2:
            self.waits.set()
            await asyncio.Event().wait()
        return Rewritten(messages=head)


async def test_a_task_that_could_not_be_given_is_free_at_once(tmp_path: Path) -> None:
    halting = Halting()
    async with bridge(tmp_path / "run", middleware=[("halting", halting)]) as ask:
        await ask("POST", "/tasks/assign", TASK)
        await ask("POST", "/tasks/take", {"worker": "ada"}, status=500)
        assert (await ask("GET", "/tasks/f1", status=200))["state"] == "assigned"
        leaving = asyncio.create_task(ask.client.post("/tasks/take", json={"worker": "ada"}))
        await halting.waits.wait()
        leaving.cancel()
        waiting = {"worker": "bo", "wait_s": 60}
        assert (await ask("POST", "/tasks/take", waiting, status=200))["id"] == "f1"


async def test_a_task_that_is_answered_while_it_is_being_given_is_not_given(
    tmp_path: Path,
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    class Slow:
        async def rewrite(self, head: tuple[Message, ...], context: MiddlewareContext) -> Rewritten:
            begun.set()
            await go_on.wait()
            return Rewritten(messages=head)

    async with bridge(tmp_path / "run", middleware=[("slow", Slow())]) as ask:
        await ask("POST", "/tasks/assign", TASK)
        taking = asyncio.create_task(ask("POST", "/tasks/take", {"worker": "ada"}, status=204))
        await begun.wait()
        await ask("POST", "/tasks/result", {"id": "f1", "worker": "bo", "result": "Paris"})
        go_on.set()
        await taking
        assert (await ask("GET", "/tasks/f1", status=200))["worker"] == "bo"


@pytest.mark.parametrize("field", ["id", "task_id", "worker"])
async def test_a_name_has_no_line_break_at_its_end(tmp_path: Path, field: str) -> None:
    async with bridge(tmp_path / "run") as ask:
        await ask("POST", "/tasks/assign", {**TASK, field: "name\n"}, status=422)


def test_managers_and_workers_have_different_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONE", MANAGER)
    monkeypatch.setenv("OTHER", MANAGER)
    proxy = ProxyOptions(upstream="", run=tmp_path / "run", key_env="ONE")
    options = BridgeOptions(proxy=proxy, worker_key_env="OTHER")
    with pytest.raises(InputError, match="are the same"):
        run(options, Registry(), print)
    assert not (tmp_path / "run").exists()


async def test_the_document_is_served_and_names_every_request(tmp_path: Path) -> None:
    async with bridge(tmp_path / "run") as ask:
        served = (await ask.client.get("/openapi.json")).json()
    assert served == json.loads(json.dumps(document()))
    named = {(method.upper(), path) for path, each in served["paths"].items() for method in each}
    assert named == {(each.method, each.path) for each in OPERATIONS}
    for schema in served["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
