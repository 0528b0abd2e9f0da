"""The observer ``nats``, and what ``ale workers events`` reads."""

import asyncio
import json
import math
import os
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from attrs import frozen
from nats.js.api import ConsumerConfig, DeliverPolicy, Header
from nats.js.errors import ObjectNotFoundError

from ale.errors import AleError
from ale.plugin import hookimpl
from ale.runs import Redactor, secret_names
from ale.types import (
    EpisodeFinished,
    EpisodeStage,
    EvaluationFinished,
    RunFinished,
    RunStarted,
    RunSteered,
    StepFinished,
)
from ale_nats.connection import Link, connected
from ale_nats.messages import encoded
from ale_nats.options import EventOptions
from ale_nats.subjects import EVENTS, event_stream, run_token, subject
from ale_nats_client.client import LOST
from ale_nats_client.options import ServerOptions

T = TypeVar("T")
_WAITING = 50_000
"""Events that may wait: there are about six of each episode."""
_BATCH = 200
CONNECT_TIMEOUT_S = 5.0
FINISH_TIMEOUT_S = 30.0
"""How long the end of the run waits until every event is stored."""
_RETRY_S = 0.5
_SENT = tuple[str, bytes]
"""Name of the hook, and the event as JSON."""


class EventPublisher:
    """Publishes every event of a run, with secrets masked."""

    def __init__(self, options: EventOptions, environ: Mapping[str, str]) -> None:
        self._options, self._environ = options, environ
        self._redactor = Redactor(environ)
        self._sending: _Sending | None = None

    @hookimpl
    def ale_run_started(self, event: RunStarted) -> None:
        """Connect, in a thread."""
        self._redactor = Redactor(self._environ, secret_names(event.config))
        self._sending = _Sending(self._options, self._environ, event.run_id)
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
    def ale_run_steered(self, event: RunSteered) -> None:
        """Publish it."""
        self._send("ale_run_steered", event)

    @hookimpl
    def ale_run_finished(self, event: RunFinished) -> None:
        """Publish it, and wait until all are stored."""
        self._send("ale_run_finished", event)
        if self._sending is not None:
            self._sending.close(FINISH_TIMEOUT_S)

    def _send(self, hook: str, event: object) -> None:
        if self._sending is not None:
            self._sending.send(hook, self._redactor.scrub_json(encoded(event)))


class _Sending:
    """A thread with a loop of its own, so that the client answers the server's pings."""

    def __init__(self, options: EventOptions, environ: Mapping[str, str], run: str) -> None:
        self._options, self._environ, self._run = options, environ, run_token(run)
        self._waiting: deque[_SENT] = deque()
        self._error: Exception | None = None
        self._closing = False
        self._until = math.inf  # when to try no more, of `time.monotonic`
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._awake = False
        self._session = os.urandom(4).hex()
        self._number = 0
        self._thread = threading.Thread(target=self._work, name="ale-nats-events", daemon=True)
        self._thread.start()

    def send(self, hook: str, data: bytes) -> None:
        """Queue an event; raises what the sending of an earlier one has failed with."""
        if self._error is not None:
            raise self._error
        if len(self._waiting) >= _WAITING:
            raise AleError(f"the observer nats: {_WAITING} events are waiting; giving up")
        self._waiting.append((hook, data))
        if not self._awake:
            self._awake = True
            self._loop.call_soon_threadsafe(self._wake.set)

    def close(self, timeout_s: float) -> None:
        """Wait until every event is stored. Raises what that has failed with."""
        self._until = time.monotonic() + timeout_s / 2  # an attempt may take seconds
        self._closing = True
        if self._thread.is_alive():
            with suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._wake.set)
        self._thread.join(timeout_s)
        if self._error is not None:
            raise self._error
        if self._thread.is_alive():
            raise AleError(f"the observer nats: not finished after {timeout_s:g} s; abandoned")

    def _work(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._send_all())
        except (AleError, *LOST) as error:  # raised again by the next `send` or `close`
            self._error = error

    async def _send_all(self) -> None:
        connection = connected(
            self._options,
            self._environ,
            name=f"ale workers events {self._run}",
            timeout_s=CONNECT_TIMEOUT_S,
        )
        async with connection as link:
            await link.ensure([event_stream()])
            while self._waiting or not self._closing:
                await self._wake.wait()
                self._wake.clear()
                self._awake = False
                while self._waiting:
                    await self._send_batch(link)

    async def _send_batch(self, link: Link) -> None:
        """Send some events, and wait until the server has stored the last of them.

        It stores them in their order. After a lost connection all are sent again under the same
        ids, by which the server drops those that it has.
        """
        count = min(len(self._waiting), _BATCH)
        batch: list[tuple[str, bytes, dict[str, str]]] = []
        stored = False
        while not stored:
            try:
                while len(batch) < count:
                    batch.append(await self._message(link, *self._waiting[len(batch)]))
                for where, body, headers in batch[:-1]:
                    await link.client.publish(where, body, headers=headers)
                where, body, headers = batch[-1]
                await link.stream.publish(where, body, headers=headers)
                stored = True
            except LOST:
                if time.monotonic() > self._until:
                    raise
                await asyncio.sleep(_RETRY_S)
        for _ in batch:
            self._waiting.popleft()

    async def _message(
        self, link: Link, hook: str, data: bytes
    ) -> tuple[str, bytes, dict[str, str]]:
        self._number += 1
        body, headers = await link.pack(f"event.{self._run}", data)
        unique = f"{self._run}.{self._session}.{self._number}"
        return subject("event", self._run, hook), body, {**headers, Header.MSG_ID: unique}


@frozen
class ShownEvent:
    """An event as `ale workers events` shows it."""

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
    async with connected(server, environ, name="ale workers events") as link:
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
