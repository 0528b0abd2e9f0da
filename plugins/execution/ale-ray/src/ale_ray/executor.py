"""The executor ``ray``: jobs to actors, episodes from their streams."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from attrs import define, field, frozen
from ray.exceptions import RayError

from ale.errors import AleError
from ale.protocols import RunningRun, Workers
from ale.types import Episode, Job, Stage
from ale.workers import broken, decode, encode
from ale_ray.actor import EPISODE, Message
from ale_ray.cluster import connected, end_actor, end_actors, nodes, start_actor
from ale_ray.options import RayOptions

_LOOK_S = 1.0
"""Seconds between two looks at the cluster's nodes."""
_LONGEST_PAUSE_S = 30.0


@frozen
class RayExecutor:
    """Hands jobs to one actor on each node of a Ray cluster."""

    options: RayOptions
    remote: bool = True

    @asynccontextmanager
    async def open(self, run: RunningRun) -> AsyncIterator[Workers]:
        """A session: actors are started, and ended on exit."""
        with connected(self.options):
            if left := await end_actors(run.spec.run_id):
                run.report(f"{left} actors of an earlier session of this run were ended")
            session = Session(run, self.options)
            session.begin()
            try:
                yield session
            finally:
                await session.close()


@define(eq=False)
class _Asked:
    """A job that the run waits for."""

    job: Job
    answer: "asyncio.Future[Episode | None]"
    node: "_Node | None" = None
    losses: int = 0


@define(eq=False)
class _Node:
    """A node whose actor is ready for jobs."""

    id: str
    actor: Any
    keys: set[int] = field(factory=set)


class Session:
    """One session of a run."""

    def __init__(self, run: RunningRun, options: RayOptions) -> None:
        self._run, self._options = run, options
        self._asked: dict[int, _Asked] = {}
        self._next_key = 0
        self._ready: dict[str, _Node] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._refused: dict[str, str] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._nobody_since = time.monotonic()
        self._error: AleError | None = None
        self._draining = False

    def begin(self) -> None:
        """Start to serve the cluster's nodes."""
        self._begin(self._watch())

    async def close(self) -> None:
        """End every actor."""
        tasks = [*self._tasks, *self._serving.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What the run calls

    async def run(self, job: Job) -> Episode | None:
        """As in the protocol."""
        if self._error is not None:
            raise self._error
        key, self._next_key = self._next_key, self._next_key + 1
        asked = _Asked(job, asyncio.get_running_loop().create_future())
        self._asked[key] = asked
        self._place(key)
        try:
            return await asked.answer
        except asyncio.CancelledError:
            if asked.node is not None:
                with suppress(RayError):
                    await asked.node.actor.cancel.remote(key)
            raise
        finally:
            del self._asked[key]
            if asked.node is not None:
                asked.node.keys.discard(key)

    async def stored(self, job: Job) -> None:
        """Nothing was kept."""

    def drain(self) -> None:
        """Withdraw what waits for a node."""
        self._draining = True
        for asked in self._asked.values():
            if asked.node is None and not asked.answer.done():
                asked.answer.set_result(None)

    # Jobs and nodes

    def _place(self, key: int) -> None:
        """Give a job to the node with the fewest; without one it waits."""
        asked = self._asked[key]
        if asked.answer.done():
            return
        if not self._ready:
            if self._draining:
                asked.answer.set_result(None)
            return
        node = min(self._ready.values(), key=lambda each: len(each.keys))
        asked.node = node
        node.keys.add(key)
        # A job that does not arrive is noticed by the end of the actor's stream.
        node.actor.submit.remote(key, encode(asked.job))

    def _take_back(self, node: _Node) -> None:
        """Give the jobs of a lost node to the others."""
        del self._ready[node.id]
        for key in sorted(node.keys):
            asked = self._asked[key]
            asked.node, asked.losses = None, asked.losses + 1
            if asked.losses < self._options.attempts:
                self._place(key)
            elif not asked.answer.done():
                message = f"{asked.losses} nodes were lost while they ran it"
                asked.answer.set_result(broken(asked.job, "WorkerLostError", message))

    async def _watch(self) -> None:
        """Serve every node that is there; give up where there is none for long."""
        while True:
            for id in nodes(self._options) - self._serving.keys():
                self._serving[id] = asyncio.create_task(self._serve(id))
            if self._ready:
                self._nobody_since = time.monotonic()
            elif time.monotonic() - self._nobody_since > self._options.give_up_s:
                self._fail()
            await asyncio.sleep(_LOOK_S)

    def _fail(self) -> None:
        where = "" if self._options.resource is None else f" with '{self._options.resource}'"
        reasons = "\n".join(dict.fromkeys(self._refused.values()))
        message = f"no node{where} of the Ray cluster has been able to run episodes for "
        message += f"{self._options.give_up_s:g} s"
        self._error = AleError(f"{message}:\n{reasons}" if reasons else message)
        for asked in self._asked.values():
            if not asked.answer.done():
                asked.answer.set_exception(self._error)

    async def _serve(self, id: str) -> None:
        """Keep an actor on a node as long as it is part of the cluster."""
        pause = _LOOK_S
        try:
            while id in nodes(self._options):
                started = time.monotonic()
                await self._one_actor(id)
                pause = _LOOK_S if time.monotonic() - started > pause else 2 * pause
                await asyncio.sleep(min(pause, _LONGEST_PAUSE_S))
        finally:
            del self._serving[id]

    async def _one_actor(self, id: str) -> None:
        """Start an actor, take its results until it is lost, and give its jobs to others."""
        actor = start_actor(self._run.spec.run_id, id, self._options)
        node = _Node(id, actor)
        try:
            if refused := await actor.build.remote(encode(self._run.spec)):
                self._refuse(id, refused)
            else:
                await self._take_results(node)
        except RayError as error:
            reason = str(error).partition("\n")[0]
            self._run.report(f"the actor on node {id[:8]} of the Ray cluster was lost: {reason}")
        finally:
            if self._ready.get(id) is node:
                self._take_back(node)
            for failed in await end_actor(actor):
                self._run.report(failed)

    async def _take_results(self, node: _Node) -> None:
        """Give it works until its stream ends."""
        stream = node.actor.results.options(num_returns="streaming").remote()
        self._ready[node.id] = node
        for key in [key for key, asked in self._asked.items() if asked.node is None]:
            self._place(key)
        async for batch in stream:
            for message in cast("list[Message]", await batch):
                self._receive(*message)

    def _refuse(self, id: str, reason: str) -> None:
        if self._refused.get(id) != reason:
            self._refused[id] = reason
            self._run.report(f"node {id[:8]} of the Ray cluster can't run episodes:\n{reason}")

    def _receive(self, key: int, what: str, data: bytes) -> None:
        asked = self._asked.get(key)
        if asked is None or asked.answer.done():
            return
        if what == EPISODE:
            asked.answer.set_result(decode(data, Episode))
        else:
            self._run.on_stage(asked.job, cast("Stage", what))

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
