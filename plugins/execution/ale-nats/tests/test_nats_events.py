"""The observer ``nats`` and ``ale workers events``, with a real server."""

import asyncio
import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ale.errors import AleError
from ale.testing.builders import episode, turn
from ale.testing.observer import ObserverContract, steered
from ale.testing.waiting import wait_for
from ale.types import (
    EpisodeFinished,
    EpisodeStage,
    EvaluationFinished,
    RunFinished,
    RunStarted,
    StepFinished,
    StepReport,
)
from ale_nats import events
from ale_nats.events import EventPublisher, shown_events
from ale_nats.options import EventOptions
from ale_nats.testing import ALE
from ale_nats_client.options import ServerOptions
from ale_nats_client.testing import Server, free_port


class TestPublisher(ObserverContract):
    """It publishes the stages too: six events for each episode."""

    @pytest.fixture
    def observer(self, server: Server) -> object:
        return EventPublisher(EventOptions(url=server.url), {})


def started(run: str, **fields: Any) -> RunStarted:
    about: dict[str, Any] = {"n_episodes": 1, "n_done": 0, "n_graded": 0, "n_succeeded": 0}
    return RunStarted(run_id=run, directory="d", concurrency=1, at=1.0, **about, **fields)


def finished(run: str) -> RunFinished:
    about: dict[str, Any] = {"n_graded": 1, "n_broken": 0, "n_succeeded": 1, "mean_reward": 1.0}
    return RunFinished(run_id=run, directory="d", outcome="completed", seconds=1.0, at=9.0, **about)


def publish(publisher: EventPublisher, run: str, text: str = "hello", **fields: Any) -> None:
    """A run of one episode."""
    publisher.ale_run_started(started(run, **fields))
    publisher.ale_episode_stage(
        EpisodeStage(episode_id="0-t-0", task_id="t", stage="agent", at=2.0)
    )
    made = episode(1.0, turn(text), task_id="t", episode_id="0-t-0")
    publisher.ale_episode_finished(EpisodeFinished(episode=made, at=3.0))
    publisher.ale_run_finished(finished(run))


HOOKS = ["ale_run_started", "ale_episode_stage", "ale_episode_finished", "ale_run_finished"]


async def events_of(server: Server, run: str) -> list[dict[str, Any]]:
    found = []
    shown = shown_events(ServerOptions(url=server.url), {}, run, from_start=True)
    async for event in shown:
        found.append(json.loads(event.json))
        if event.hook == HOOKS[-1]:
            break
    await shown.aclose()
    return found


async def test_every_event_is_there_whole_and_in_order(server: Server) -> None:
    publish(EventPublisher(EventOptions(url=server.url), {}), "20260101 a.b")
    found = await events_of(server, "20260101 a.b")
    assert [event["event"] for event in found] == HOOKS
    assert found[2]["episode"]["trajectory"]["turns"][0]["completion"]["message"]["content"] == (
        "hello"
    )
    assert found[3]["outcome"] == "completed"


async def test_what_a_training_run_tells_is_there_too(server: Server) -> None:
    publisher = EventPublisher(EventOptions(url=server.url), {})
    publisher.ale_run_started(started("trains"))
    report = StepReport(step=4, policy_version=5, metrics={"loss": 0.25})
    publisher.ale_step_finished(StepFinished(report=report, at=2.0))
    counts: dict[str, Any] = {"n_graded": 8, "n_broken": 1, "n_succeeded": 6}
    publisher.ale_evaluation_finished(
        EvaluationFinished(step=5, policy_version=5, mean_reward=0.75, **counts)
    )
    publisher.ale_run_steered(steered("pause", paused=True))
    publisher.ale_run_finished(finished("trains"))
    _, step, evaluation, asked, _ = await events_of(server, "trains")
    assert step["event"] == "ale_step_finished"
    assert (step["report"]["step"], step["report"]["metrics"]) == (4, {"loss": 0.25})
    assert evaluation["event"] == "ale_evaluation_finished"
    assert {name: evaluation[name] for name in counts} == counts
    assert evaluation["mean_reward"] == 0.75
    assert asked["event"] == "ale_run_steered"
    assert (asked["action"], asked["paused"]) == ("pause", True)


async def test_an_event_that_is_larger_than_a_message_goes_by_the_object_store(
    server: Server,
) -> None:
    publish(EventPublisher(EventOptions(url=server.url), {}), "large", "x" * 3_000_000)
    found = await events_of(server, "large")
    message = found[2]["episode"]["trajectory"]["turns"][0]["completion"]["message"]
    assert message["content"] == "x" * 3_000_000


async def test_an_event_that_is_large_waits_for_a_server_that_is_away(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()
    pause = asyncio.sleep

    async def paused(delay: float) -> None:
        if threading.current_thread().name == "ale-nats-events" and delay == events._RETRY_S:
            failed.set()
        await pause(delay)

    monkeypatch.setattr(asyncio, "sleep", paused)
    publisher = EventPublisher(EventOptions(url=own_server.url), {})
    publisher.ale_run_started(started("away"))
    wait_for(lambda: not publisher._sending._waiting, "the first event")  # type: ignore[union-attr]
    own_server.stop()
    made = episode(1.0, turn("x" * 3_000_000), task_id="t", episode_id="0-t-0")
    publisher.ale_episode_finished(EpisodeFinished(episode=made, at=3.0))
    assert await asyncio.to_thread(failed.wait, 60), "no attempt has failed"
    own_server.start()
    publisher.ale_run_finished(finished("away"))
    found = await events_of(own_server, "away")
    assert [event["event"] for event in found] == [HOOKS[0], *HOOKS[2:]]


async def test_secrets_are_masked(server: Server) -> None:
    environ = {"OPENAI_API_KEY": "sk-12345678", "MINE": "something-else"}
    publisher = EventPublisher(EventOptions(url=server.url), environ)
    config = {"llm": {"type": "x", "key_env": "MINE"}}
    publish(publisher, "masked", "sk-12345678 something-else", config=config)
    message = (await events_of(server, "masked"))[2]["episode"]["trajectory"]["turns"][0]
    assert message["completion"]["message"]["content"] == "*** ***"


def test_a_server_that_is_not_there_is_an_error_of_the_observer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ale_nats.events.CONNECT_TIMEOUT_S", 1)
    options = EventOptions(url=f"nats://127.0.0.1:{free_port()}")
    with pytest.raises(AleError, match="no NATS server can be reached"):
        publish(EventPublisher(options, {}), "nobody")


def test_tail_prints_a_line_for_each_event_and_ends_with_the_run(server: Server) -> None:
    publish(EventPublisher(EventOptions(url=server.url), {}), "told")
    command = [ALE, "workers", "events", "told", "--nats", server.url, "--all", "--until-finished"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert [line.split()[2] for line in done.stdout.splitlines()] == [
        "run_started",
        "episode_stage",
        "episode_finished",
        "run_finished",
    ]
    assert "1970-01-01T00:00:03+00:00 told episode_finished episode_id=0-t-0 reward=1.0" in (
        done.stdout
    )


def test_tail_follows_what_happens_from_now_on(server: Server, tmp_path: Path) -> None:
    publish(EventPublisher(EventOptions(url=server.url), {}), "earlier")
    output = tmp_path / "output"
    command = [ALE, "workers", "events", "--nats", server.url, "--json", "--until-finished"]
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file)
    has_lines: Callable[[], bool] = lambda: bool(output.read_text())  # noqa: E731
    count = 0
    while process.poll() is None and not has_lines():  # until it listens
        count += 1
        publish(EventPublisher(EventOptions(url=server.url), {}), f"now{count}")
    wait_for(lambda: process.poll() is not None, "the end of ale workers events")
    assert process.returncode == 0
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert lines[-1]["event"] == "ale_run_finished"
    assert "earlier" not in {line["run"] for line in lines}
