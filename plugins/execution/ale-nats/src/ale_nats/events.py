"""The observer ``nats``, and what ``ale events tail`` reads."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from attrs import frozen
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import ObjectNotFoundError

from ale.observers import BackgroundSender
from ale.plugin import hookimpl
from ale.runs import Redactor, secret_names
from ale.types import (
    EpisodeFinished,
    EpisodeStage,
    EvaluationFinished,
    RunFinished,
    RunStarted,
    StepFinished,
)
from ale_nats.connection import Link, connected
from ale_nats.messages import encoded
from ale_nats.options import EventOptions, ServerOptions
from ale_nats.subjects import EVENTS, event_stream, run_token, subject

T = TypeVar("T")
_SENT = tuple[str, bytes]
"""Name of the hook, and the event as JSON."""


class EventPublisher:
    """Publishes every event of a run, with secrets masked."""

    def __init__(self, options: EventOptions, environ: Mapping[str, str]) -> None:
        self._options, self._environ = options, environ
        self._redactor = Redactor(environ)
        self._sender: BackgroundSender[_SENT] | None = None
        self._run = ""

    @hookimpl
    def ale_run_started(self, event: RunStarted) -> None:
        """Connect, in a thread."""
        self._redactor = Redactor(self._environ, secret_names(event.config))
        self._run = event.run_id
        self._sender = BackgroundSender(self._connected, name="the observer nats")
        self._sender.start()
        self._send("ale_run_started", event)

    @hookimpl
    def ale_episode_stage(self, event: EpisodeStage) -> None:
        """Publish it."""
        self._send("ale_episode_stage", event)

    @hookimpl
    def ale_episode_finished(self, event: EpisodeFinished) -> None:
        """Publish it, with the whole episode."""
        self._send("ale_episode_finished", event)

    @hookimpl
    def ale_step_finished(self, event: StepFinished) -> None:
        """Publish it."""
        self._send("ale_step_finished", event)

    @hookimpl
    def ale_evaluation_finished(self, event: EvaluationFinished) -> None:
        """Publish it."""
        self._send("ale_evaluation_finished", event)

    @hookimpl
    def ale_run_finished(self, event: RunFinished) -> None:
        """Publish it, and wait until all are stored."""
        self._send("ale_run_finished", event)
        if self._sender is not None:
            self._sender.close(self._options.finish_timeout_s)

    def _send(self, hook: str, event: object) -> None:
        if self._sender is not None:
            self._sender.send((hook, self._redactor.scrub_json(encoded(event))))

    @contextmanager
    def _connected(self) -> Iterator[Callable[[_SENT], None]]:
        token = run_token(self._run)
        with _loop_in_a_thread() as wait:
            connection = connected(
                self._options,
                self._environ,
                name=f"ale events {self._run}",
                timeout_s=self._options.connect_timeout_s,
            )
            link = wait(connection.__aenter__())
            try:
                wait(link.ensure([event_stream()]))
                yield lambda sent: wait(_publish(link, token, *sent))
            finally:
                wait(connection.__aexit__(None, None, None))


async def _publish(link: Link, run: str, hook: str, data: bytes) -> None:
    body, headers = await link.pack(f"event.{run}", data)
    await link.stream.publish(subject("event", run, hook), body, headers=headers or None)


@contextmanager
def _loop_in_a_thread() -> Iterator[Callable[[Coroutine[Any, Any, T]], T]]:
    """A loop that runs between calls too, so that the client answers the server's pings."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="ale-nats-events", daemon=True)
    thread.start()
    try:
        yield lambda call: asyncio.run_coroutine_threadsafe(call, loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@frozen
class ShownEvent:
    """An event as `ale events tail` shows it."""

    run: str
    hook: str
    json: str
    """The whole event, with ``run`` and ``event`` before its own fields."""
    line: str
    """The most important of it, in one line."""


async def shown_events(
    server: ServerOptions, environ: Mapping[str, str], run: str | None, *, from_start: bool
) -> AsyncGenerator[ShownEvent, None]:
    """The events of a run, or of all, as they come.

    Args:
        run: the run's id.
        from_start: begin with the oldest that the server has.
    """
    policy = DeliverPolicy.ALL if from_start else DeliverPolicy.NEW
    async with connected(server, environ, name="ale events tail") as link:
        await link.ensure([event_stream()])
        arrived: asyncio.Queue[ShownEvent] = asyncio.Queue()

        async def take(message: Any) -> None:
            token, hook = message.subject.split(".")[-2:]
            with suppress(ObjectNotFoundError):
                arrived.put_nowait(_shown(token, hook, await link.unpack(message)))

        where = subject("event", "*" if run is None else run_token(run), "*")
        config = ConsumerConfig(deliver_policy=policy)
        await link.stream.subscribe(
            where, stream=EVENTS, cb=take, config=config, ordered_consumer=True
        )
        while True:
            yield await arrived.get()


def _shown(token: str, hook: str, data: bytes) -> ShownEvent:
    event: dict[str, Any] = msgspec.json.decode(data)
    run = str(event.get("run_id", token))
    whole = json.dumps({"run": run, "event": hook, **event}, ensure_ascii=False)
    at = datetime.fromtimestamp(event.get("at", 0.0), UTC).isoformat(timespec="seconds")
    facts = " ".join(f"{name}={value}" for name, value in _facts(event))
    name = hook.removeprefix("ale_")
    return ShownEvent(run=run, hook=hook, json=whole, line=f"{at} {run} {name} {facts}".rstrip())


def _facts(event: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """What fits in a line: plain values, and of an episode its id, task and reward."""
    flat = {**event, **(event.get("report") or {})}
    episode = event.get("episode")
    if episode is not None:
        flat |= {"episode_id": episode["id"], "reward": episode["reward"]}
        failure = episode.get("failure")
        if failure is not None:
            flat["failure"] = f"{failure['stage']}:{failure['kind']}"
    for name, value in flat.items():
        if name not in ("at", "run_id", "directory") and not isinstance(value, dict | list):
            yield name, value
