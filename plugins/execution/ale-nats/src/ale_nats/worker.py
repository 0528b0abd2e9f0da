"""``ale workers run``: takes jobs of any run, and runs them as the run itself would."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from attrs import define, field, frozen
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from ale.errors import InputError
from ale.processes import announced
from ale.runs import Registry
from ale.types import Episode, Job
from ale.workers import Worker, broken, decode, encode
from ale_nats.connection import Link, connected
from ale_nats.messages import Announcement, Progress, Refusal, encoded
from ale_nats.subjects import (
    ACK,
    EPISODES,
    JOBS,
    RUNS,
    job_token,
    jobs_consumer,
    streams,
    subject,
)
from ale_nats_client.client import LOST
from ale_nats_client.options import ServerOptions

_POLL_S = 10.0
"""Seconds between looks for runs whose announcement was missed."""
_PULL_S = 2.0
"""Seconds for which one run is asked for jobs before the next one's turn."""
_RETRY_S = 0.5
_BEATS = 3
"""Signs of life in the time after which a worker counts as lost."""


@frozen(kw_only=True)
class WorkerOptions:
    """What a worker process offers."""

    labels: frozenset[str] = frozenset()
    slots: int = 1
    """Jobs that it runs at once."""
    name: str = field(factory=lambda: f"{socket.gethostname()}-{os.getpid()}")
    require: frozenset[str] = frozenset()
    """What the sandbox of a run must isolate."""
    readable: frozenset[str] | None = None
    """Variables that runs may name; None: all."""
    idle_s: float | None = None
    """Seconds without a job after which it ends; None: never."""


@define(eq=False)
class _Taking:
    """A run that this worker takes jobs of."""

    announcement: Announcement
    body: bytes
    worker: Worker
    puller: "asyncio.Task[None] | None" = None
    ended: bool = False
    """The client may take a cancellation for a closed connection: the puller looks here too."""
    running: dict[str, "asyncio.Task[None]"] = field(factory=dict)


class WorkerProcess:
    """Takes jobs until it is told to stop."""

    def __init__(
        self,
        link: Link,
        options: WorkerOptions,
        report: Callable[[str], None],
        environ: Mapping[str, str],
    ) -> None:
        self._link, self._options = link, options
        self._report, self._environ = report, environ
        self._slots = asyncio.Semaphore(options.slots)
        self._runs: dict[str, _Taking] = {}
        self._refused: dict[str, bytes] = {}
        self._looking = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._draining = asyncio.Event()
        self._giving_back = False
        self._last = asyncio.get_running_loop().time()
        self.finished = 0
        """Jobs whose episodes are in the server."""

    async def serve(self) -> None:
        """Take jobs until `drain` was called and the last one is finished, or idle."""
        client = self._link.client
        await self._link.ensure(streams())
        await client.subscribe(subject("run", "*"), cb=self._on_run)
        await client.subscribe(subject("end", "*"), cb=self._on_end)
        await client.subscribe(subject("cancel", "*", "*"), cb=self._on_cancel)
        try:
            while not self._draining.is_set():
                with suppress(*LOST):
                    await self._look()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._draining.wait(), self._wait_s())
                if self._idle():
                    break
            await self._finish()
        finally:
            self._giving_back = True
            for taking in [*self._runs.values()]:
                await self._leave(taking)
            with suppress(*LOST):
                await client.flush()

    def drain(self) -> None:
        """Take no further jobs; those that run are finished."""
        self._draining.set()

    def _wait_s(self) -> float:
        return min(_POLL_S, self._options.idle_s or _POLL_S)

    def _idle(self) -> bool:
        limit, now = self._options.idle_s, asyncio.get_running_loop().time()
        busy = any(taking.running for taking in self._runs.values())
        return limit is not None and not busy and now - self._last >= limit

    async def _finish(self) -> None:
        for taking in self._runs.values():
            taking.ended = True
            if taking.puller is not None:
                taking.puller.cancel()
        running = [task for taking in self._runs.values() for task in taking.running.values()]
        await asyncio.gather(*running, return_exceptions=True)

    # Runs

    async def _look(self) -> None:
        """Find the runs of the server; leave those that have ended."""
        stream = self._link.stream
        info = await stream.stream_info(RUNS, subjects_filter=subject("run", "*"))
        tokens = {name.rpartition(".")[2] for name in info.state.subjects or {}}
        for token in {*self._runs} - tokens:
            await self._end(token)
        for token in tokens:
            with suppress(NotFoundError):
                raw = await stream.get_last_msg(RUNS, subject("run", token))
                message = Msg(self._link.client, data=raw.data or b"", headers=raw.headers)
                await self._consider(token, await self._link.unpack(message))

    async def _on_run(self, message: Msg) -> None:
        token = message.subject.rpartition(".")[2]
        self._begin(self._consider_message(token, message))

    async def _consider_message(self, token: str, message: Msg) -> None:
        with suppress(*LOST):
            await self._consider(token, await self._link.unpack(message))

    async def _consider(self, token: str, body: bytes) -> None:
        """Take jobs of a run from now on, or say why not."""
        async with self._looking:
            known = self._runs.get(token)
            if self._draining.is_set() or self._refused.get(token) == body:
                return
            if known is not None and known.body == body:
                return
            if known is not None:
                await self._end(token)
            try:
                announcement = decode(body, Announcement)
            except msgspec.MsgspecError as error:
                await self._refuse(token, body, [f"it was announced by another version: {error}"])
                return
            missing = {*announcement.labels} - self._options.labels
            if missing:
                self._refused[token] = body
                return
            await self._join(token, body, announcement)

    async def _join(self, token: str, body: bytes, announcement: Announcement) -> None:
        spec = announcement.spec
        try:
            # A registry of its own: two runs may load plugin files that register the same names.
            worker = Worker.build(
                spec,
                Registry.installed(),
                self._environ,
                name=self._options.name,
                require=self._options.require,
                readable=self._options.readable,
            )
        except InputError as error:
            await self._refuse(token, body, [str(problem) for problem in error.problems])
            return
        if problem := await worker.prune():
            self._report(problem)
        taking = _Taking(announcement, body, worker)
        self._runs[token] = taking
        taking.puller = asyncio.create_task(self._pull(token, taking))
        self._report(f"takes jobs of {spec.run_id} (sandbox {worker.sandbox})")

    async def _refuse(self, token: str, body: bytes, reasons: list[str]) -> None:
        self._refused[token] = body
        self._report(f"takes no jobs of {token}:\n" + "\n".join(reasons))
        refusal = Refusal(worker=self._options.name, reasons=tuple(reasons))
        await self._link.client.publish(subject("refused", token), encoded(refusal))

    async def _on_end(self, message: Msg) -> None:
        await self._end(message.subject.rpartition(".")[2])

    async def _end(self, token: str) -> None:
        self._refused.pop(token, None)
        taking = self._runs.pop(token, None)
        if taking is not None:
            self._report(f"{taking.announcement.spec.run_id} has ended")
            self._begin(self._leave(taking))

    async def _leave(self, taking: _Taking) -> None:
        """Stop a run's jobs, and close its parts."""
        taking.ended = True
        pullers = [] if taking.puller is None else [taking.puller]
        for tasks in (pullers, [*taking.running.values()]):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for problem in await taking.worker.aclose():
            self._report(problem)

    async def _on_cancel(self, message: Msg) -> None:
        *_, token, job = message.subject.split(".")
        taking = self._runs.get(token)
        if taking is not None and job in taking.running:
            taking.running[job].cancel()

    # Jobs

    async def _pull(self, token: str, taking: _Taking) -> None:
        """Take jobs of one run, as many as there are free slots."""
        jobs = await self._link.stream.pull_subscribe_bind(jobs_consumer(token), stream=JOBS)
        try:
            await self._pull_from(jobs, token, taking)
        finally:
            # Else the server would answer a request that nobody waits for any more with a job.
            with suppress(*LOST):
                await jobs.unsubscribe()
                await self._link.client.flush()

    async def _pull_from(
        self, jobs: JetStreamContext.PullSubscription, token: str, taking: _Taking
    ) -> None:
        while not taking.ended:
            await self._slots.acquire()
            held = True
            try:
                (message,) = await jobs.fetch(1, timeout=_PULL_S)
                self._start(token, taking, message)
                held = False
            except (TimeoutError, IndexError):
                await asyncio.sleep(0)  # another run's turn
            except (*LOST, ValueError):
                await asyncio.sleep(_RETRY_S)
            finally:
                if held:
                    self._slots.release()

    def _start(self, token: str, taking: _Taking, message: Msg) -> None:
        name = message.subject.rpartition(".")[2]
        task = asyncio.create_task(self._handle(token, taking, message))

        def done(_: object) -> None:
            taking.running.pop(name, None)
            self._last = asyncio.get_running_loop().time()
            self._slots.release()

        taking.running[name] = task
        task.add_done_callback(done)

    async def _handle(self, token: str, taking: _Taking, message: Msg) -> None:
        """Run one job, and give its episode to the server."""
        try:
            where = subject("episode", token, message.subject.rpartition(".")[2])
            if message.metadata.num_delivered > 1 and await self._link.has(EPISODES, where):
                # The run has not acknowledged it yet, as while it is not running.
                await message.nak(taking.announcement.lost_after_s)
                return
            async with self._signs_of_life(message, taking.announcement.lost_after_s):
                job = decode(await self._link.unpack(message), Job)
                self._tell(token, job, "queued", message.metadata.num_delivered)
                episode = await self._episode(token, taking, job, message)
                await self._give(where, token, episode, message.reply)
                self.finished += 1
        except asyncio.CancelledError:
            if self._giving_back and not message.is_acked:
                with suppress(*LOST):
                    await message.nak()
            raise
        except (*LOST, msgspec.MsgspecError) as error:
            # It was taken out of the queue, or comes again.
            self._report(f"could not take the job {message.subject}: {error!r}")

    async def _episode(self, token: str, taking: _Taking, job: Job, message: Msg) -> Episode:
        before = message.metadata.num_delivered - 1
        if before >= taking.announcement.deliveries:
            reason = f"workers took it {before} times and were lost (executor.deliveries)"
            return broken(job, "WorkerLostError", reason)
        return await taking.worker.run(job, lambda job, stage: self._tell(token, job, stage))

    async def _give(self, where: str, token: str, episode: Episode, acknowledge: str) -> None:
        data = encode(episode)
        given = False
        while not given:
            try:
                body, headers = await self._link.pack(f"episode.{token}", data)
                await self._link.stream.publish(where, body, headers={**headers, ACK: acknowledge})
                given = True
            except LOST:
                await asyncio.sleep(_RETRY_S)

    @asynccontextmanager
    async def _signs_of_life(self, message: Msg, lost_after_s: float) -> AsyncIterator[None]:
        async def beat() -> None:
            while True:
                await asyncio.sleep(lost_after_s / _BEATS)
                with suppress(*LOST):
                    await message.in_progress()

        beating = asyncio.create_task(beat())
        try:
            yield
        finally:
            beating.cancel()

    def _tell(self, token: str, job: Job, stage: str, delivery: int = 1) -> None:
        progress = Progress(stage=stage, worker=self._options.name, delivery=delivery)
        where = subject("stage", token, job_token(job.id))
        self._begin(self._publish(where, encoded(progress)))

    async def _publish(self, where: str, data: bytes) -> None:
        with suppress(*LOST):
            await self._link.client.publish(where, data)

    def _begin(self, call: Any) -> None:
        task = asyncio.create_task(call)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@asynccontextmanager
async def worker_process(
    server: ServerOptions,
    options: WorkerOptions,
    report: Callable[[str], None],
    environ: Mapping[str, str],
) -> AsyncIterator[WorkerProcess]:
    """A worker that is connected to its server.

    Raises (on entry):
        AleError: the server can't be reached.
    """

    async def lost() -> None:
        report("the connection to the server is lost; trying again")

    async def back() -> None:
        report("the connection to the server is back")

    name = f"ale workers run {options.name}"
    async with connected(server, environ, name=name, on_lost=lost, on_back=back) as link:
        labels = sorted(options.labels)
        with announced("worker", name=options.name, slots=options.slots, labels=labels):
            yield WorkerProcess(link, options, report, environ)
