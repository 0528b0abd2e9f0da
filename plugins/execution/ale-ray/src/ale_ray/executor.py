"""The executor ``ray``: jobs to actors, episodes from their streams."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from attrs import define, field, frozen
from ray.exceptions import RayError, RayTaskError

from ale.errors import AleError
from ale.protocols import RunningRun, Workers
from ale.types import Episode, Job, Stage
from ale.workers import broken, decode, encode
from ale_ray.actor import EPISODE, FAILED, Message
from ale_ray.cluster import connected, end_actor, end_actors, nodes, start_actor
from ale_ray.options import RayOptions

_LOOK_S = 1.0
"""Seconds between two looks at the cluster's nodes."""
_LONGEST_PAUSE_S = 30.0
_SUBMIT_S = 0.01
"""Seconds that a job waits for others to be sent with: episodes end together, as they come in one
message, and so the next ones are asked for together."""


@frozen
class RayExecutor:
    """Hands jobs to one actor on each node of a Ray cluster."""

    options: RayOptions
    remote: bool = True

    @asynccontextmanager
    async def open(self, run: RunningRun) -> AsyncIterator[Workers]:
        """A session: actors are started, and ended on exit."""
        with connected(self.options.address):
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
    unsent: dict[int, bytes] = field(factory=dict)


class Session:
    """One session of a run."""

    def __init__(self, run: RunningRun, options: RayOptions) -> None:
        self._run, self._options = run, options
        self._asked: dict[int, _Asked] = {}
        self._next_key = 0
        self._ready: dict[str, _Node] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._refused: dict[str, str] = {}
        self._alive: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._nobody_since = time.monotonic()
        self._error: BaseException | None = None
        self._draining = False

    def begin(self) -> None:
        """Start to serve the cluster's nodes."""
        self._begin(self._watch())

    async def close(self) -> None:
        """End every actor."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for found in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(found, Exception):
                self._run.report(f"an actor could not be ended: {_first_line(found)}")

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
            if asked.node is not None and asked.node.unsent.pop(key, None) is None:
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
        if not node.unsent:
            asyncio.get_running_loop().call_later(_SUBMIT_S, self._submit, node)
        node.unsent[key] = encode(asked.job)

    def _submit(self, node: _Node) -> None:
        """Send a node what it was given since the last time."""
        jobs, node.unsent = node.unsent, {}
        if jobs:
            # Jobs that do not arrive are noticed by the end of the actor's stream.
            node.actor.submit.remote(jobs)

    def _take_back(self, node: _Node) -> None:
        """Give the jobs of a lost node to the others."""
        del self._ready[node.id]
        node.unsent.clear()
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
            # While the cluster's head does not answer, the nodes are those of before.
            try:
                self._alive = nodes(self._options)
            except RayError as error:
                self._refuse("head", f"it does not list its nodes: {_first_line(error)}")
            for id in self._alive - self._serving.keys():
                self._serving[id] = self._begin(self._serve(id))
            if self._ready:
                self._nobody_since = time.monotonic()
            elif time.monotonic() - self._nobody_since > self._options.give_up_s:
                self._fail(self._nobody())
            await asyncio.sleep(_LOOK_S)

    def _nobody(self) -> AleError:
        where = "" if self._options.resource is None else f" with '{self._options.resource}'"
        reasons = "\n".join(dict.fromkeys(self._refused.values()))
        message = f"no node{where} of the Ray cluster has been able to run episodes for "
        message += f"{self._options.give_up_s:g} s"
        return AleError(f"{message}:\n{reasons}" if reasons else message)

    def _fail(self, error: BaseException) -> None:
        """End the run: no job can be run any more."""
        self._error = error
        for asked in self._asked.values():
            if not asked.answer.done():
                asked.answer.set_exception(error)

    async def _serve(self, id: str) -> None:
        """Keep an actor on a node as long as it is part of the cluster."""
        pause = _LOOK_S
        try:
            while id in self._alive:
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
            if refused := await self._build(actor):
                self._refuse(f"node {id[:8]}", f"it can't run episodes:\n{refused}")
            else:
                await self._take_results(node)
        except RayError as error:
            reason = _first_line(error)
            self._run.report(f"the actor on node {id[:8]} of the Ray cluster was lost: {reason}")
        finally:
            if self._ready.get(id) is node:
                self._take_back(node)
            for failed in await end_actor(actor):
                self._run.report(failed)

    async def _build(self, actor: Any) -> str:
        """Build the parts of the run; why that is not possible there, or nothing."""
        try:
            refused: str = await actor.build.remote(encode(self._run.spec))
        except RayTaskError as error:  # of the code there; a lost actor is another one
            return str(error)
        return refused

    async def _take_results(self, node: _Node) -> None:
        """Give it jobs until its stream ends."""
        stream = node.actor.results.options(num_returns="streaming").remote()
        self._ready[node.id] = node
        for key in [key for key, asked in self._asked.items() if asked.node is None]:
            self._place(key)
        async for batch in stream:
            for message in cast("list[Message]", await batch):
                self._receive(*message)

    def _refuse(self, what: str, reason: str) -> None:
        if self._refused.get(what) != reason:
            self._refused[what] = reason
            self._run.report(f"{what} of the Ray cluster: {reason}")

    def _receive(self, key: int, what: str, data: bytes) -> None:
        asked = self._asked.get(key)
        if asked is None or asked.answer.done():
            return
        if what == EPISODE:
            asked.answer.set_result(decode(data, Episode))
        elif what == FAILED:
            asked.answer.set_result(broken(asked.job, "WorkerError", data.decode()))
        else:
            self._run.on_stage(asked.job, cast("Stage", what))

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Nobody awaits these tasks: what one raises ends the run."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            known = isinstance(error, RayError)
            self._fail(AleError(f"the Ray cluster: {_first_line(error)}") if known else error)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
