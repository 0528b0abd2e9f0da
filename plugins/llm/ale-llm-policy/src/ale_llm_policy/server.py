"""The engine as an inference server: ids in, ids out, and weights from folders."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
from attrs import define, field
from torch import Tensor

from ale.errors import AleError, ContextLengthError
from ale_llm_policy import shared
from ale_llm_policy.adapters import merged
from ale_llm_policy.engine import Engine
from ale_llm_policy.jobs import Job
from ale_llm_policy.pretrained import TorchPolicy, weights
from ale_servers.broadcast import Reader
from ale_servers.channel import check_memory, files_of, refusals
from ale_servers.protocol import NotSampledError, WeightsError, check_ids
from ale_servers.records import (
    Broadcast,
    Held,
    Interruption,
    Memory,
    Sampled,
    SampleReason,
    SampleRequest,
    ServerStatus,
    Weights,
)


@define(eq=False, slots=False)
class EngineServer:
    """An `InferenceServer` in this process."""

    _policy: TorchPolicy
    _engine: Engine
    """Samples from the policy."""
    _context: int = field(kw_only=True)
    """Most tokens of prompt and answer together."""
    _copied: Callable[[], tuple[TorchPolicy, Engine]] | None = field(default=None, kw_only=True)
    """Makes a copy of both for an adapter, which has merged weights and its own engine."""

    def __attrs_post_init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._digests: dict[int, str] = {}
        self._adapters: dict[str, EngineServer] = {}
        self._run = ""
        self._prepared: tuple[Weights, Mapping[str, Tensor] | None] | None = None
        """None for tensors that the trainer sends later."""
        self._reader: Reader | None = None
        self._lease: asyncio.TimerHandle | None = None
        self._instance, self._since = os.urandom(6).hex(), time.time()

    async def sample(self, request: SampleRequest) -> Sampled:
        """As `InferenceServer.sample`.

        Raises:
            ContextLengthError, NotSampledError, LLMError: see there.
        """
        if request.adapter:
            if request.adapter not in self._adapters:
                raise NotSampledError(f"it has no adapter '{request.adapter}'")
            plain = msgspec.structs.replace(request, adapter="")
            return await self._adapters[request.adapter].sample(plain)
        if self._policy.version < request.least_version:
            raise NotSampledError(
                f"it has version {self._policy.version}, and the request needs "
                f"{request.least_version} or later"
            )
        check_ids(request, int(self._policy.base.config.get_text_config().vocab_size))
        await self._digest()  # before the weights can change
        sampled = await self.run(request)
        digests = {version: self._digests[version] for version in {*sampled.versions}}
        return msgspec.structs.replace(sampled, digests=digests)

    async def run(self, request: SampleRequest) -> Sampled:
        """As `sample`, without digests, which take a moment to compute for each version."""
        n = len(request.prompt_ids) + len(request.answer_ids)
        forced = request.forced_ids
        if n >= self._context or n + len(forced) > self._context:
            message = f"{n + len(forced)} tokens, and the context holds {self._context}"
            raise ContextLengthError(message)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[SampleReason] = loop.create_future()

        def done(_: Job, reason: SampleReason | Exception) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is waiting
                loop.call_soon_threadsafe(_settle, ended, reason)

        most = min(request.max_tokens, self._context - n)
        job = Job(msgspec.structs.replace(request, max_tokens=most), done)
        self._jobs[request.id] = job
        try:
            self._engine.submit(job)
            reason = await ended
        except asyncio.CancelledError:
            job.cancelled = True
            raise
        finally:
            if self._jobs.get(request.id) is job:
                del self._jobs[request.id]
        aborted = reason == "abort" and forced
        return Sampled(
            ids=() if aborted else job.output,
            logprobs=tuple(job.logprobs),
            versions=tuple(job.versions),
            reason=reason,
            digests={},
        )

    async def reload(self, change: Callable[[], None]) -> None:
        """Change the weights between two steps; `change` sets the policy's version too."""

        def reload() -> None:
            self._engine.reload(change)
            self._digests.pop(self._policy.version, None)

        await self._call(reload)

    async def abort(self, ids: tuple[str, ...] | None = None) -> None:
        """As `InferenceServer.abort`."""
        jobs = self._jobs.values() if ids is None else [self._jobs.get(each) for each in ids]
        concerned = {id(job) for job in jobs if job is not None}
        await self._call(lambda: self._engine.interrupt(lambda job: id(job) in concerned))
        for adapter in [*self._adapters.values()]:
            await adapter.abort(ids)

    async def pause(self, mode: Interruption, seconds: float) -> None:
        """As `InferenceServer.pause`."""
        await self._call(self._engine.pause)
        self._end_lease()
        self._lease = asyncio.get_running_loop().call_later(seconds, self._engine.resume)
        for adapter in [*self._adapters.values()]:
            await adapter.pause(mode, seconds)
        if mode == "abort":
            await self.abort()

    async def resume(self) -> None:
        """As `InferenceServer.resume`."""
        self._end_lease()
        self._engine.resume()
        for adapter in [*self._adapters.values()]:
            await adapter.resume()

    def _end_lease(self) -> None:
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None

    async def prepare(self, weights: Weights) -> None:
        """As `InferenceServer.prepare`; holds a copy of the weights until they are taken."""
        if self._prepared is None or self._prepared[0] != weights:
            self._prepared = None
            self._prepared = (weights, await asyncio.to_thread(self._read, weights))

    def _read(self, published: Weights) -> Mapping[str, Tensor] | None:
        try:
            if published.broadcast is not None:
                self._prepare_broadcast(published, published.broadcast)
                return None
            if published.memory is not None:
                return self._read_memory(published, published.memory)
            files_of(published)
            folder = Path(published.folder)
            if published.adapter:
                own = dict(self._policy.base.named_parameters())
                tensors, found = merged(own, folder)
            else:
                tensors = weights.read(folder)
                weights.check(self._policy.base, tensors)
                found = weights.digest(tensors)
        except WeightsError:
            raise
        except AleError as error:
            raise WeightsError(str(error)) from error
        if found != published.digest:
            raise WeightsError(
                f"{published.folder} has the digest {found[:12]}; expected {published.digest[:12]}"
            )
        return tensors

    def _read_memory(self, published: Weights, memory: Memory) -> Mapping[str, Tensor]:
        check_memory(published, memory)
        try:
            tensors = shared.read(memory, published.digest)
        except OSError as error:
            raise WeightsError(str(error)) from error
        weights.check(self._policy.base, tensors)
        return tensors

    def _prepare_broadcast(self, published: Weights, broadcast: Broadcast) -> None:
        plain = msgspec.to_builtins(broadcast)
        empty = {
            each.name: torch.empty(
                each.shape, dtype=getattr(torch, each.dtype.removeprefix("torch.")), device="meta"
            )
            for each in broadcast.parts
        }
        weights.check(self._policy.base, empty)
        if self._reader is None or not self._reader.serves(plain):
            self.close_reader()
            self._reader = Reader(plain)
        with refusals():
            self._reader.ask("prepare", published.digest)

    def _receive(self, published: Weights) -> Mapping[str, Tensor]:
        assert published.broadcast is not None
        assert self._reader is not None
        parts = [msgspec.to_builtins(each) for each in published.broadcast.parts]
        with refusals():
            return dict(self._reader.read(published.digest, parts))

    def close_reader(self) -> None:
        """Leave the group of servers to which a trainer sends."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    async def update(self, weights: Weights) -> None:
        """As `InferenceServer.update`."""
        await self._digest()
        await self.prepare(weights)
        assert self._prepared is not None
        _, tensors = self._prepared
        if tensors is None:
            self._prepared = None
            tensors = await asyncio.to_thread(self._receive, weights)
        if weights.adapter:
            await self._take_adapter(weights, tensors)
        else:
            await self._take(weights, tensors)
            await self.close_adapters()
        self._prepared = None

    async def _take_adapter(self, weights: Weights, tensors: Mapping[str, Tensor]) -> None:
        present = self._adapters.get(weights.adapter)
        if present is not None:
            await present._take(weights, tensors)
            return
        if self._copied is None:
            raise WeightsError("this server takes no adapters")
        policy, engine = await asyncio.to_thread(self._copied)
        made = EngineServer(policy, engine, context=self._context)
        await made._take(weights, tensors)
        if self._engine.paused:
            engine.pause()
        self._adapters[weights.adapter] = made

    async def close_adapters(self) -> None:
        """End the adapters' engines."""
        adapters, self._adapters = self._adapters, {}
        for adapter in adapters.values():
            await asyncio.to_thread(adapter._engine.close)

    async def _take(self, weights: Weights, tensors: Mapping[str, Tensor]) -> None:
        def change() -> None:
            self._policy.load_weights(tensors)
            self._policy.version = weights.version
            self._run = weights.run
            self._digests[weights.version] = weights.digest

        await self._call(lambda: self._engine.reload(change))

    def _held(self) -> Held:
        version = self._policy.version
        return Held(version=version, digest=self._digests[version], run=self._run)

    async def status(self) -> ServerStatus:
        """As `InferenceServer.status`."""
        engines = [self._engine, *(each._engine for each in self._adapters.values())]
        return ServerStatus(
            instance=self._instance,
            model=self._policy.name,
            fingerprint=self._policy.fingerprint,
            version=self._policy.version,
            digest=await self._digest(),
            run=self._run,
            paused=self._engine.paused,
            running=sum(each.n_running for each in engines),
            waiting=sum(each.n_waiting for each in engines),
            max_running=self._engine.max_batch,
            context=self._context,
            deterministic=True,
            since=self._since,
            adapters={name: each._held() for name, each in self._adapters.items()},
        )

    async def _digest(self) -> str:
        """Digest of the present weights; computed if they did not come from a folder."""

        def computed() -> str:
            version = self._policy.version
            if version not in self._digests:
                tensors = dict(self._policy.base.named_parameters())
                self._digests[version] = weights.digest(tensors)
            return self._digests[version]

        known = self._digests.get(self._policy.version)
        return known or str(await self._call(computed))

    async def _call(self, work: Callable[[], Any]) -> Any:
        return await asyncio.wrap_future(self._engine.call(work))


def _settle(ended: "asyncio.Future[SampleReason]", reason: SampleReason | Exception) -> None:
    if ended.done():
        return
    if isinstance(reason, Exception):
        ended.set_exception(reason)
    else:
        ended.set_result(reason)
