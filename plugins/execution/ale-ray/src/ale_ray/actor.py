"""What runs on a node: many episodes at once, whose results are streamed to the run."""

import asyncio
import os
import platform
import traceback
from collections.abc import AsyncIterator, Mapping
from functools import partial

from ale.errors import InputError
from ale.runs import Registry
from ale.types import Job, RunSpec, Stage
from ale.workers import Worker, decode, encode

Message = tuple[int, str, bytes]
"""Key of the job; ``episode``, ``failed`` or the stage that it has entered; the episode, or why
there is none."""
EPISODE, FAILED = "episode", "failed"
_PAUSE_S, _STAGE_S = 0.05, 0.2
"""Seconds between two deliveries, and those that a stage waits for one, as it is only shown to
people: each delivery costs Ray some milliseconds of CPU time."""


class Rollouts:
    """One per node and run. Everything in it can be lost: the run asks another one again."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._messages: list[Message] = []
        self._some = asyncio.Event()
        self._delivered = 0.0

    async def build(self, spec: bytes) -> str:
        """Build the parts of a run; why that is not possible here, or nothing."""
        try:
            name = f"{platform.node()}-{os.getpid()}"
            self._worker = Worker.build(decode(spec, RunSpec), Registry.installed(), name=name)
        except InputError as error:
            return str(error)
        await self._worker.prune()
        return ""

    async def submit(self, jobs: Mapping[int, bytes]) -> None:
        """Begin episodes, by the keys of their jobs."""
        for key, job in jobs.items():
            task = self._tasks[key] = asyncio.create_task(self._run(key, job))
            task.add_done_callback(partial(self._ended, key))

    def _ended(self, key: int, task: "asyncio.Task[None]") -> None:
        """Nobody awaits the task: what it raises has to be sent."""
        del self._tasks[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            reason = "".join(traceback.format_exception(error))
            self._send((key, FAILED, reason.encode()))

    async def _run(self, key: int, data: bytes) -> None:
        job = decode(data, Job)

        def on_stage(_: Job, stage: Stage) -> None:
            self._send((key, stage, b""), wait_s=_STAGE_S)

        assert self._worker is not None, "built before the first job"
        episode = await self._worker.run(job, on_stage)
        self._send((key, EPISODE, encode(episode)))

    def _send(self, message: Message, *, wait_s: float = 0.0) -> None:
        self._messages.append(message)
        loop = asyncio.get_running_loop()
        loop.call_at(max(loop.time() + wait_s, self._delivered + _PAUSE_S), self._some.set)

    async def results(self) -> AsyncIterator[list[Message]]:
        """All that happens, as it happens; ends with `close`."""
        while self._worker is not None:
            await self._some.wait()
            self._some.clear()
            messages, self._messages = self._messages, []
            if messages:
                self._delivered = asyncio.get_running_loop().time()
                yield messages

    async def cancel(self, key: int) -> None:
        """End an episode that nobody waits for, and wait for its end."""
        task = self._tasks.get(key)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> list[str]:
        """End all episodes, and close model and sandbox; what could not be closed."""
        await asyncio.gather(*(self.cancel(key) for key in list(self._tasks)))
        worker, self._worker = self._worker, None
        self._some.set()
        return [] if worker is None else list(await worker.aclose())
