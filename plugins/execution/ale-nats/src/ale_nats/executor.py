"""The executor ``nats``: jobs into a stream, episodes out of another one."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import msgspec
from attrs import define, field, frozen
from nats.aio.msg import Msg
from nats.errors import BadSubscriptionError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import APIError, NotFoundError, ObjectNotFoundError, ServerError

from ale.errors import AleError
from ale.protocols import RunningRun, Workers
from ale.text import seconds
from ale.types import Episode, Job
from ale.workers import decode, encode
from ale_nats.connection import Link, connected
from ale_nats.messages import Announcement, Progress, Refusal, encoded
from ale_nats.options import NatsOptions
from ale_nats.subjects import (
    ACK,
    EPISODES,
    JOBS,
    RUNS,
    episodes_consumer,
    job_token,
    jobs_consumer,
    run_token,
    streams,
    subject,
)
from ale_nats_client.client import LOST

T = TypeVar("T")

SILENCE_S = 30.0
"""Seconds without any worker after which this is reported, once."""
_CLOSE_S = 15.0
"""Seconds to tell the server that the run has ended."""
_RETRY_S = 0.3
_EPISODE_WAIT_S = 600.0
"""Seconds in which the run stores an episode that it was given, before it is given it again."""
_UNLIMITED = 1_000_000
_FULL = "maximum messages exceeded"
"""JetStream's words for a stream that takes no more messages for now."""
_SAME_SUBJECT = "per subject"
"""Part of its words where the job is there already."""
_GONE = (NotFoundError, ObjectNotFoundError)


@frozen
class NatsExecutor:
    """Hands jobs to workers over a NATS server."""

    options: NatsOptions
    environ: Mapping[str, str] = field(repr=False)
    remote: bool = True

    async def check(self) -> None:
        """Can the server be reached, and does it have JetStream?"""
        async with connected(self.options, self.environ, name="ale check"):
            pass

    @asynccontextmanager
    async def open(self, run: RunningRun) -> AsyncIterator[Workers]:
        """A session of a run: announced to the workers, and ended on exit."""
        session: Session | None = None

        async def lost() -> None:
            if session is not None:
                session.connection_lost()

        async def back() -> None:
            if session is not None:
                await session.connection_back()

        name = f"ale run {run.spec.run_id}"
        connection = connected(self.options, self.environ, name=name, on_lost=lost, on_back=back)
        async with connection as link:
            session = Session(link, run, self.options)
            try:
                await session.start()
                yield session
            finally:
                await session.close()


@define(eq=False)
class _Asked:
    """A job that the run waits for."""

    job: Job
    answer: "asyncio.Future[Episode | None]"
    taken_by: str | None = None
    withdrawn: bool = False


class Session:
    """One session of a run, and its jobs and episodes in the server."""

    def __init__(self, link: Link, run: RunningRun, options: NatsOptions) -> None:
        self._link, self._run, self._options = link, run, options
        self._token = run_token(run.spec.run_id)
        self._asked: dict[str, _Asked] = {}
        self._early: dict[str, Msg] = {}
        """Episodes of an earlier session, which the run has not asked for yet."""
        self._given: dict[str, Msg] = {}
        """Messages of the episodes that the run has and has not stored."""
        self._episodes: JetStreamContext.PushSubscription | None = None
        self._before = 0
        """The last message in the stream of episodes when this session began."""
        self._draining = False
        self._heard = False
        """Whether a worker has taken a job, or has said why not."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._give_up: asyncio.TimerHandle | None = None
        self._silence: asyncio.TimerHandle | None = None

    # The session

    async def start(self) -> None:
        """Announce the run, and take what an earlier session of it has left."""
        link, token = self._link, self._token
        await link.ensure(streams())
        if not await self._announced():
            await self._purge()  # late results of a session that ended are not wanted
        with suppress(NotFoundError):
            # Of a session that was killed: what it was given and did not store comes again.
            await link.stream.delete_consumer(EPISODES, episodes_consumer(token))
        self._before = (await link.stream.stream_info(EPISODES)).state.last_seq
        await self._make_consumer()
        await self._subscribe()
        await link.client.subscribe(subject("stage", token, "*"), cb=self._on_stage)
        await link.client.subscribe(subject("refused", token), cb=self._on_refusal)
        await self._announce()
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(SILENCE_S, self._report_silence)

    async def _announced(self) -> bool:
        return await self._link.has(RUNS, subject("run", self._token))

    async def _make_consumer(self) -> None:
        config = ConsumerConfig(
            durable_name=jobs_consumer(self._token),
            filter_subject=subject("job", self._token, "*"),
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self._options.lost_after_s,
            max_ack_pending=_UNLIMITED,
        )
        await self._link.stream.add_consumer(JOBS, config)

    async def _subscribe(self) -> None:
        """Receive episodes from now on."""
        self._episodes = await self._link.stream.subscribe(
            subject("episode", self._token, "*"),
            durable=episodes_consumer(self._token),
            stream=EPISODES,
            cb=self._on_episode,
            manual_ack=True,
            config=ConsumerConfig(ack_wait=_EPISODE_WAIT_S, max_ack_pending=_UNLIMITED),
        )

    async def _announce(self) -> None:
        made = Announcement(
            spec=self._run.spec,
            labels=self._options.labels,
            lost_after_s=self._options.lost_after_s,
            deliveries=self._options.deliveries,
        )
        body, headers = await self._link.pack(f"run.{self._token}", encoded(made))
        await self._link.stream.publish(subject("run", self._token), body, headers=headers or None)

    async def close(self) -> None:
        """Tell the workers that the run has ended, and remove all that it has in the server."""
        for timer in (self._give_up, self._silence):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            task.cancel()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._link.client.publish(subject("end", self._token))
                await self._purge()
                for message in (*self._early.values(), *self._given.values()):
                    await self._link.remove(message)
        except LOST as error:
            self._run.report(f"the NATS server was not told that the run ended: {error}")

    async def _purge(self) -> None:
        stream, token = self._link.stream, self._token
        await stream.purge_stream(RUNS, subject=subject("run", token))
        await stream.purge_stream(JOBS, subject=subject("job", token, "*"))
        await stream.purge_stream(EPISODES, subject=subject("episode", token, "*"))
        for where, name in (
            (JOBS, jobs_consumer(token)),
            (EPISODES, episodes_consumer(token)),
        ):
            with suppress(NotFoundError):
                await stream.delete_consumer(where, name)

    # What the run calls

    async def run(self, job: Job) -> Episode | None:
        """As in the protocol."""
        token = job_token(job.id)
        early = self._early.pop(token, None)
        if early is not None and (episode := await self._read(early)) is not None:
            self._given[token] = early
            return episode
        if self._draining:
            return None
        asked = _Asked(job, asyncio.get_running_loop().create_future())
        self._asked[token] = asked
        try:
            await self._queue(token, asked)
            return await asked.answer
        except asyncio.CancelledError:
            with suppress(*LOST):
                async with asyncio.timeout(_CLOSE_S):
                    await self._withdraw(token)
            raise
        finally:
            del self._asked[token]

    async def stored(self, job: Job) -> None:
        """Acknowledge the episode, and for its worker the job."""
        message = self._given.pop(job_token(job.id))
        await self._again(lambda: self._acknowledge(message))

    def drain(self) -> None:
        """Withdraw what no worker has taken."""
        self._draining = True
        for token, asked in self._asked.items():
            if asked.taken_by is None and not asked.answer.done():
                asked.withdrawn = True
                asked.answer.set_result(None)
                self._begin(self._withdraw(token))

    async def _queue(self, token: str, asked: _Asked) -> None:
        body, headers = await self._link.pack(f"job.{self._token}", encode(asked.job))
        where = subject("job", self._token, token)

        async def publish() -> bool:
            """False where the queue is full."""
            try:
                await self._link.stream.publish(where, body, headers=headers or None)
            except APIError as error:
                if error.description == _FULL:
                    return False
                if _SAME_SUBJECT not in (error.description or ""):
                    raise
            return True

        while not asked.answer.done() and not await self._again(publish):  # noqa: ASYNC110
            await asyncio.sleep(_RETRY_S)
        if asked.withdrawn:  # `drain` may have looked for it before it was there
            await self._again(lambda: self._withdraw(token))

    async def _withdraw(self, token: str) -> None:
        """Take a job out of the queue, and end it where it runs."""
        where = subject("job", self._token, token)
        # Not by a purge of its subject: nats-server 2.9 then no longer gives away lost jobs again.
        with suppress(NotFoundError, ServerError):  # it is done, or is being removed
            found = await self._link.stream.get_last_msg(JOBS, where)
            assert found.seq is not None
            await self._link.stream.delete_msg(JOBS, found.seq)
        await self._link.client.publish(subject("cancel", self._token, token))

    async def _again(
        self, call: Callable[[], Awaitable[T]], *, final: tuple[type[Exception], ...] = ()
    ) -> T:
        """Make a call until it succeeds. `_fail` ends it where the server stays away.

        Args:
            final: errors that another attempt does not help against; they are raised.
        """
        deadline = time.monotonic() + self._options.give_up_s
        while True:
            try:
                return await call()
            except final:
                raise
            except LOST as error:
                if time.monotonic() > deadline:
                    raise AleError(
                        f"the NATS server does not do what it is asked: {error}"
                    ) from None
            await asyncio.sleep(_RETRY_S)

    # What the server sends

    async def _on_episode(self, message: Msg) -> None:
        token = message.subject.rpartition(".")[2]
        asked = self._asked.get(token)
        if asked is not None and not asked.answer.done():
            episode = await self._read(message)
            if episode is not None and not asked.answer.done():
                self._given[token] = message
                asked.answer.set_result(episode)
        elif token in self._given:
            if _place(self._given[token]) != _place(message):
                await message.ack()  # another copy, of a worker that was thought to be lost
        elif message.metadata.sequence.stream <= self._before:
            self._early[token] = message
        else:
            await self._acknowledge(message)  # stored already, or not wanted any more

    async def _read(self, message: Msg) -> Episode | None:
        try:
            body = await self._again(lambda: self._link.unpack(message), final=_GONE)
            return decode(body, Episode)
        except (*_GONE, msgspec.MsgspecError) as error:
            # Without its acknowledgement the work is given to another worker.
            self._run.report(f"an episode could not be read, and is sampled again: {error}")
            await message.ack()
            return None

    async def _acknowledge(self, message: Msg) -> None:
        """Remove an episode from the server, and its job."""
        job = (message.headers or {}).get(ACK)
        if job is not None:
            await self._link.client.publish(job, b"+ACK")
        if not message.is_acked:
            await message.ack()
        await self._link.remove(message)

    async def _on_stage(self, message: Msg) -> None:
        asked = self._asked.get(message.subject.rpartition(".")[2])
        progress = decode(message.data, Progress)
        self._heard = True
        if asked is None:
            return
        if progress.stage != "queued":
            self._run.on_stage(asked.job, progress.stage)  # type: ignore[arg-type]
        elif asked.taken_by is not None and progress.delivery > 1:
            what = f"{asked.job.id}, which {asked.taken_by} had"
            self._run.report(f"no sign of life: {what}, is run again on {progress.worker}")
        asked.taken_by = progress.worker

    async def _on_refusal(self, message: Msg) -> None:
        refusal = decode(message.data, Refusal)
        self._heard = True
        reasons = "\n".join(refusal.reasons)
        self._run.report(f"the worker {refusal.worker} can't run this run's episodes:\n{reasons}")

    # When nothing comes

    def connection_lost(self) -> None:
        """Wait for the server, but not for ever."""
        if self._give_up is None:
            loop, limit_s = asyncio.get_running_loop(), self._options.give_up_s
            self._give_up = loop.call_later(limit_s, self._fail)
            self._run.report(
                f"the connection to the NATS server at {self._options.url} is lost; trying again "
                f"for {seconds(limit_s)}"
            )

    async def connection_back(self) -> None:
        """Make what the server has lost, if it was started without its files."""
        if self._give_up is not None:
            self._give_up.cancel()
            self._give_up = None
            self._run.report("the connection to the NATS server is back")
        self._begin(self._restore())

    async def _restore(self) -> None:
        async def restore() -> None:
            await self._link.ensure(streams())
            await self._make_consumer()
            await self._receive_again()
            if not await self._announced():
                await self._announce()

        await self._again(restore)
        for token, asked in [*self._asked.items()]:
            if not asked.answer.done():
                await self._queue(token, asked)

    async def _receive_again(self) -> None:
        """Episodes that were lost on their way come again at once, not after `_EPISODE_WAIT_S`."""
        stream = self._link.stream
        assert self._episodes is not None, "made when the session began"
        with suppress(BadSubscriptionError):  # an earlier attempt has done so
            await self._episodes.unsubscribe()
        with suppress(NotFoundError):
            await stream.delete_consumer(EPISODES, episodes_consumer(self._token))
        last = (await stream.stream_info(EPISODES)).state.last_seq
        self._before = min(self._before, last)  # less where the server has lost its files
        await self._subscribe()

    def _fail(self) -> None:
        limit = self._options.give_up_s
        error = AleError(f"no NATS server at {self._options.url} for {limit:g} s; resume the run")
        for asked in self._asked.values():
            if not asked.answer.done():
                asked.answer.set_exception(error)

    def _report_silence(self) -> None:
        if not self._heard and self._asked:
            labels = f" --labels {','.join(self._options.labels)}" if self._options.labels else ""
            self._run.report(
                f"no worker has taken an episode for {SILENCE_S:g} s; "
                f"start some: ale workers run --nats {self._options.url}{labels}"
            )

    def _begin(self, call: Any) -> None:
        task = asyncio.create_task(call)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _place(message: Msg) -> int:
    """Of a message in its stream."""
    return message.metadata.sequence.stream
