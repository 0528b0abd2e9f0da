"""The protocol in front of another server program."""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from attrs import define, frozen

from ale.errors import ContextLengthError, LLMError
from ale_servers.channel import check_broadcast, check_memory, files_of
from ale_servers.program import Answered, Program, RefusedError, until_ready
from ale_servers.protocol import NotSampledError, WeightsError, check_ids
from ale_servers.records import (
    Held,
    Interruption,
    Sampled,
    SampleRequest,
    ServerStatus,
    Weights,
)
from ale_servers.tensors import digest_of, shapes_of, stored_in

_ABORT_S = 0.1
"""Seconds between two tries to end a request that may not have reached the program yet."""
OnStart = Callable[[], None]


@frozen(kw_only=True)
class Model:
    """What a program serves.

    Attributes:
        folder: the model's, in the format of transformers.
        name: for records.
        context: most tokens of prompt and answer.
        vocabulary: number of token ids.
        max_running: most answers sampled at once.
        start_s: seconds within which a starting program must answer.
        adapters: most adapters; 0 for none.
    """

    folder: Path
    name: str
    context: int
    vocabulary: int
    max_running: int
    start_s: float
    adapters: int = 0


@define(eq=False)
class _Job:
    """A request in progress."""

    program: str | None
    """Name of the job's adapter in the program."""


@define(eq=False, slots=False)
class Gateway:
    """An `InferenceServer` in front of a program."""

    _model: Model
    _program: Program
    """The API through which the program is asked."""
    _run: Callable[[OnStart], AbstractAsyncContextManager[object]]
    """Starts the program, and calls back after each start; called at the first request."""

    def __attrs_post_init__(self) -> None:
        self._running: AbstractAsyncContextManager[object] | None = None
        self._ready: asyncio.Task[None] | None = None
        self._jobs: dict[str, _Job] = {}
        self._first: Held | None = None
        self._now = Held(version=0, digest="")
        self._adapters: dict[str, Held] = {}
        self._paused = False
        self._lease: asyncio.TimerHandle | None = None
        self._changing = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._checked: Weights | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self._removals: dict[str, asyncio.Task[None]] = {}
        """Removals of adapters that requests still use, by the adapters' names in the program."""
        self._restarting = False
        self._beginning: asyncio.Task[None] | None = None
        self._deadline = 0.0
        """Deadline of the start, by the event loop's clock."""
        self._instance, self._since = "", time.time()

    def begin(self) -> None:
        """Start the program now. Until it answers, requests are refused instead of held."""
        self._beginning = self._begin_beside(self.started())

    async def started(self) -> None:
        """Wait until the program answers.

        Raises:
            LLMError: it does not answer in time.
            WeightsError: the model's folder can't be read.
        """
        async with self._opening:
            if self._running is None:
                if self._first is None:
                    digest = await asyncio.to_thread(self._digest_of_model)
                    self._first = Held(version=0, digest=digest)
                await self._start()
            ready = await self._begun()
        try:
            await asyncio.shield(ready)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not ready.cancelled() or (task is not None and task.cancelling()):
                raise
            message = "the server program ended while it started"
            raise LLMError(message, transient=True) from None

    async def _start(self) -> None:
        self._ready = None
        running = self._run(self._on_start)
        await running.__aenter__()
        self._running = running

    async def _begun(self) -> "asyncio.Task[None]":
        while self._ready is None:  # noqa: ASYNC110 - the first start comes in a moment
            await asyncio.sleep(0.01)
        return self._ready

    def _on_start(self) -> None:
        if self._ready is None or self._ready.done():
            self._deadline = asyncio.get_running_loop().time() + self._model.start_s
        else:  # it ended while it was starting: another try gets no extra time
            self._ready.cancel()
        self._instance, self._since = os.urandom(6).hex(), time.time()
        assert self._first is not None
        self._now, self._adapters, self._paused = self._first, {}, False
        self._checked = None
        for removal in self._removals.values():  # from the previous program
            removal.cancel()
        self._ready = asyncio.create_task(self._begin())
        self._ready.add_done_callback(_retrieved)

    async def _begin(self) -> None:
        try:
            async with asyncio.timeout_at(self._deadline):
                await until_ready(self._program)
                await self._program.begin(_label(self._now))
        except TimeoutError:
            seconds = self._model.start_s
            raise LLMError(f"the server program did not answer within {seconds:g} s") from None

    def _digest_of_model(self) -> str:
        return digest_of(stored_in(sorted(self._model.folder.glob("*.safetensors"))))

    async def _check_ready(self) -> None:
        """The first caller starts the program; others are refused while it starts again."""
        ready = self._ready
        starting = self._running is not None and ready is not None and not ready.done()
        begins = self._beginning is not None and not self._beginning.done()
        if self._restarting or starting or begins:
            raise NotSampledError("the server program is starting")
        await self.started()

    async def sample(self, request: SampleRequest) -> Sampled:
        """As `InferenceServer.sample`."""
        await self._check_ready()
        held = self._held(request)
        n = len(request.prompt_ids) + len(request.answer_ids)
        forced = request.forced_ids
        if n >= self._model.context or n + len(forced) > self._model.context:
            raise ContextLengthError(
                f"{n + len(forced)} tokens, and the context holds {self._model.context}"
            )
        check_ids(request, self._model.vocabulary)
        program = _program_name(request.adapter, held) if request.adapter else None
        job = self._jobs[request.id] = _Job(program)
        try:
            if forced:
                return self._scored(request, held, await self._program.score(request, program))
            return self._sampled(request, held, await self._program.sample(request, program))
        finally:
            if self._jobs.get(request.id) is job:
                del self._jobs[request.id]

    def _held(self, request: SampleRequest) -> Held:
        """The weights from which the request is sampled if it begins now."""
        held = self._adapters.get(request.adapter) if request.adapter else self._now
        if held is None:
            raise NotSampledError(f"it has no adapter '{request.adapter}'")
        if held.version < request.least_version:
            raise NotSampledError(
                f"it has version {held.version}, and the request needs "
                f"{request.least_version} or later"
            )
        return held

    def _sampled(self, request: SampleRequest, held: Held, answered: Answered) -> Sampled:
        made = [_read_label(each) for each in answered.labels]
        if request.adapter:
            if any(each != (self._now.version, self._now.digest) for each in made):
                raise LLMError("the weights under the adapter were changed", transient=True)
            made = [(held.version, held.digest)] * len(made)
        greedy = request.temperature == 0
        return Sampled(
            ids=answered.ids,
            logprobs=(0.0,) * len(answered.ids) if greedy else answered.logprobs,
            versions=tuple(version for version, _ in made),
            reason=answered.reason,
            digests=dict(made),
        )

    def _scored(self, request: SampleRequest, held: Held, logprobs: tuple[float, ...]) -> Sampled:
        if self._held(request) != held:
            # It is not known which weights have scored which id; scoring can be repeated.
            raise NotSampledError("the weights were changed while it scored")
        return Sampled(
            ids=request.forced_ids,
            logprobs=logprobs,
            versions=(held.version,) * len(logprobs),
            reason="forced",
            digests={held.version: held.digest},
        )

    async def abort(self, ids: tuple[str, ...] | None = None) -> None:
        """As `InferenceServer.abort`; returns when the requests have ended."""
        names = self._jobs.keys() if ids is None else self._jobs.keys() & {*ids}
        concerned = {name: self._jobs[name] for name in names}
        while left := [name for name, job in concerned.items() if self._jobs.get(name) is job]:
            await self._program.abort(left)
            await asyncio.sleep(_ABORT_S)

    async def pause(self, mode: Interruption, seconds: float) -> None:
        """As `InferenceServer.pause`."""
        await self.started()
        async with self._changing:
            self._paused = True
            self._end_lease()
            self._lease = asyncio.get_running_loop().call_later(
                seconds, lambda: self._begin_beside(self.resume())
            )
            await self._program.pause(mode)
        if mode == "abort":
            await self.abort()

    async def resume(self) -> None:
        """As `InferenceServer.resume`."""
        await self.started()
        self._end_lease()
        async with self._changing:
            await self._program.resume()
            self._paused = False

    def _begin_beside(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        task.add_done_callback(_retrieved)
        return task

    def _end_lease(self) -> None:
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None

    async def prepare(self, weights: Weights) -> None:
        """As `InferenceServer.prepare`. A program has room for two versions of an adapter: the new
        one is loaded beside the present one, once no request uses the one before that.
        """
        await self.started()
        if self._checked != weights:
            self._checked = None
            instance = self._instance
            await asyncio.to_thread(self._check, weights)
            if weights.adapter:
                await self._load_adapter(weights)
            else:
                await self._program.check(weights)
            self._check_same(instance)
            self._checked = weights

    def _check_same(self, instance: str) -> None:
        if self._instance != instance:
            message = "the server program was started again, without what it had prepared"
            raise LLMError(message, transient=True)

    def _check(self, weights: Weights) -> None:
        if weights.memory is not None:
            check_memory(weights, weights.memory)
        if weights.broadcast is not None:
            check_broadcast(weights, weights.broadcast)
        if weights.parts is not None:
            given = {each.name: each.shape for each in weights.parts}
        else:
            tensors = stored_in(files_of(weights))
            given = shapes_of(tensors)
            found = digest_of(tensors)
            if found != weights.digest:
                raise WeightsError(
                    f"{weights.folder} has the digest {found[:12]}; expected {weights.digest[:12]}"
                )
        if not weights.adapter:
            own = shapes_of(stored_in(sorted(self._model.folder.glob("*.safetensors"))))
            _check_shapes(self._model.folder, own, given)

    async def _load_adapter(self, weights: Weights) -> None:
        held = Held(version=weights.version, digest=weights.digest)
        name = _program_name(weights.adapter, held)
        present = self._adapters.get(weights.adapter)
        if present is not None and _program_name(weights.adapter, present) == name:
            return
        removals = self._removals.items()
        if earlier := [task for of, task in removals if of.rpartition("@")[0] == weights.adapter]:
            await asyncio.wait(earlier)
        try:
            with contextlib.suppress(RefusedError):  # left over from an unused preparation
                await self._program.unload_adapter(name)
            await self._program.load_adapter(name, Path(weights.folder))
        except RefusedError as error:
            raise WeightsError(f"the adapter can't be loaded: {error}") from error

    async def update(self, weights: Weights) -> None:
        """As `InferenceServer.update`.

        An answer in progress that is sampled from an adapter ends under the version with which it
        began; one that is sampled from the weights themselves continues under the new weights. New
        weights remove all adapters, since these were not made for them.
        """
        await self.prepare(weights)
        instance = self._instance
        async with self._changing:
            self._check_same(instance)
            held = Held(version=weights.version, digest=weights.digest, run=weights.run)
            if weights.adapter:
                self._take_adapter(weights.adapter, held)
            else:
                await self._take(weights, held)
        self._checked = None

    def _take_adapter(self, name: str, held: Held) -> None:
        old = self._adapters.get(name)
        self._adapters[name] = held
        if old is not None and _program_name(name, old) != _program_name(name, held):
            program = _program_name(name, old)
            removal = self._removals[program] = self._begin_beside(self._remove(program))
            removal.add_done_callback(lambda _: self._removals.pop(program, None))

    async def _remove(self, program: str) -> None:
        """Unload an adapter when the last request that began with it has ended."""
        while any(job.program == program for job in self._jobs.values()):  # noqa: ASYNC110
            await asyncio.sleep(_ABORT_S)
        await self._program.unload_adapter(program)

    async def _take(self, weights: Weights, held: Held) -> None:
        old, self._adapters = self._adapters, {}
        try:
            if not self._paused:
                await self._program.pause("keep")
            for name, adapter in old.items():
                with contextlib.suppress(RefusedError):  # it does not have it
                    await self._program.unload_adapter(_program_name(name, adapter))
            await self._program.load(weights, _label(held))
            self._now = held
            if not self._paused:
                await self._program.resume()
        except LLMError as error:
            await self._restart()
            raise LLMError(
                f"the server program could not take version {held.version} and was started again, "
                f"with the weights of its start: {error}",
                transient=True,
            ) from error

    async def _restart(self) -> None:
        """Restart with the initial weights: the program may have half of other weights, and answers
        nothing until it has ended.
        """
        self._restarting = True
        try:
            async with self._opening:
                if self._ready is not None:
                    self._ready.cancel()
                await self._stop()
                await self._start()
                await self._begun()
        finally:
            self._restarting = False

    async def _stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.__aexit__(None, None, None)

    async def status(self) -> ServerStatus:
        """As `InferenceServer.status`; the first one waits until the program has started."""
        await self._check_ready()
        if not await self._program.is_ready():
            raise NotSampledError("the server program does not answer")
        running = min(len(self._jobs), self._model.max_running)
        return ServerStatus(
            instance=self._instance,
            model=self._model.name,
            fingerprint="",
            version=self._now.version,
            digest=self._now.digest,
            run=self._now.run,
            paused=self._paused,
            running=running,
            waiting=len(self._jobs) - running,
            max_running=self._model.max_running,
            context=self._model.context,
            deterministic=False,
            since=self._since,
            adapters=dict(self._adapters),
        )

    async def aclose(self) -> None:
        """End the program. Idempotent."""
        self._end_lease()
        tasks = [*self._beside, *filter(None, [self._ready])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._stop()


def _label(held: Held) -> str:
    return f"{held.version}:{held.digest}"


def _read_label(label: str) -> tuple[int, str]:
    version, _, digest = label.partition(":")
    return int(version), digest


def _program_name(adapter: str, held: Held) -> str:
    """The name of an adapter's version in the program. The content of a name never changes, so a
    program's cache of keys and values by name can't be that of another version.
    """
    return f"{adapter}@{held.version}-{held.digest[:12]}"


def _check_shapes(
    folder: Path, own: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]]
) -> None:
    config = json.loads((folder / "config.json").read_text())
    tied = {"lm_head.weight"} if config.get("tie_word_embeddings") else set()
    for name in sorted((own.keys() - tied) | (given.keys() - tied)):
        if own.get(name) != given.get(name):
            raise WeightsError(
                f"'{name}' has the shape {given.get(name)}; the model in {folder} has "
                f"{own.get(name)} there: are these weights of another model?"
            )


def _retrieved(task: "asyncio.Task[None]") -> None:
    """Retrieve a task's exception, so that asyncio does not warn if nobody waits for the task."""
    if not task.cancelled():
        task.exception()
