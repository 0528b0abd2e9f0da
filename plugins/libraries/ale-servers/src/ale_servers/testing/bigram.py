"""A server that samples from a table of bigrams: exact log-probabilities, and no dependencies."""

import asyncio
import functools
import hashlib
import math
import os
import time
from itertools import pairwise
from pathlib import Path
from random import Random

import msgspec
from attrs import define, field

from ale.errors import ContextLengthError
from ale_servers.channel import WeightFolder, files_of
from ale_servers.protocol import NotSampledError, WeightsError, check_ids
from ale_servers.records import (
    Held,
    Interruption,
    Sampled,
    SampleReason,
    SampleRequest,
    ServerStatus,
    Weights,
)

VOCABULARY = 32
CONTEXT = 2048
FINGERPRINT = "bigrams"
FIRST = "table 0"
"""The weights that a server starts with: a seed of tables."""


def write_table(text: str, folder: Path) -> str:
    """Write weights; returns their digest."""
    (folder / "table.txt").write_text(text)
    return digest_of(text)


def digest_of(text: str) -> str:
    """As `Weights.digest`."""
    return hashlib.sha256(text.encode()).hexdigest()


@functools.lru_cache(maxsize=4096)
def row(table: str, last: int) -> tuple[float, ...]:
    """Log-probabilities of the token after `last`."""
    random = Random(f"{table}/{last}")  # noqa: S311
    logits = [2 * random.gauss(0, 1) for _ in range(VOCABULARY)]
    total = math.log(sum(map(math.exp, logits)))
    return tuple(each - total for each in logits)


@define(eq=False)
class _Job:
    request: SampleRequest
    aborted: bool = False
    ids: list[int] = field(factory=list)
    logprobs: list[float] = field(factory=list)
    versions: list[int] = field(factory=list)
    digests: dict[int, str] = field(factory=dict)


class BigramServer:
    """An `InferenceServer`.

    Args:
        token_s: seconds for each token.
        table: the weights to start with.
    """

    def __init__(self, *, token_s: float = 0.0, table: str = FIRST, max_running: int = 64) -> None:
        self.table, self.version = table, 0
        self.run = ""
        self.n_sampled = 0
        self.fails: str | None = None
        """If set, every update fails with this text, even if the weights were prepared."""
        self.adapters: dict[str, tuple[str, Held]] = {}
        """Table and state of each adapter, by name."""
        self._token_s = token_s
        self._max_running = max_running
        self._jobs: dict[str, _Job] = {}
        self._paused = False
        self._changed = asyncio.Event()
        self._lease: asyncio.TimerHandle | None = None
        self._instance, self._since = os.urandom(6).hex(), time.time()

    async def sample(self, request: SampleRequest) -> Sampled:
        """As `InferenceServer.sample`."""
        ids = [*request.prompt_ids, *request.answer_ids]
        self._admit(request, len(ids))
        job = self._jobs[request.id] = _Job(request)
        random = Random(request.seed)  # noqa: S311
        for _ in request.answer_ids:
            random.random()
        try:
            while True:
                while self._paused and not job.aborted:
                    await self._changed.wait()
                if job.aborted:
                    return self._sampled(job, "abort")
                forced = request.forced_ids
                self._add(job, ids, random, forced[len(job.ids)] if forced else None)
                if reason := self._ended(job):
                    return self._sampled(job, reason)
                await asyncio.sleep(self._token_s)
        finally:
            del self._jobs[request.id]

    def _admit(self, request: SampleRequest, n: int) -> None:
        if n + len(request.forced_ids) >= CONTEXT:
            raise ContextLengthError(f"{n} tokens, and the context holds {CONTEXT}")
        if request.adapter and request.adapter not in self.adapters:
            raise NotSampledError(f"it has no adapter '{request.adapter}'")
        version = self._present(request)[1]
        if version < request.least_version:
            raise NotSampledError(f"it has version {version}")
        check_ids(request, VOCABULARY)

    def _present(self, request: SampleRequest) -> tuple[str, int, str]:
        """The table that a request is sampled from, with its version and digest."""
        if request.adapter:
            table, held = self.adapters[request.adapter]
            return table, held.version, held.digest
        return self.table, self.version, digest_of(self.table)

    def _add(self, job: _Job, ids: list[int], random: Random, forced: int | None) -> None:
        table, version, digest = self._present(job.request)
        logps = row(table, ids[-1])
        temperature = 1.0 if forced is not None else job.request.temperature
        if temperature == 0:
            best = max(range(VOCABULARY), key=lambda i: logps[i])
            logps = tuple(0.0 if i == best else -math.inf for i in range(VOCABULARY))
        elif temperature != 1:
            scaled = [each / temperature for each in logps]
            total = math.log(sum(map(math.exp, scaled)))
            logps = tuple(each - total for each in scaled)
        weights = [math.exp(each) for each in logps]
        token = random.choices(range(VOCABULARY), weights)[0] if forced is None else forced
        ids.append(token)
        job.ids.append(token)
        job.logprobs.append(logps[token])
        job.versions.append(version)
        job.digests[version] = digest
        self.n_sampled += forced is None

    def _ended(self, job: _Job) -> SampleReason | None:
        request = job.request
        if request.forced_ids:
            return "forced" if len(job.ids) == len(request.forced_ids) else None
        if job.ids[-1] in request.stop_ids:
            return "stop"
        return "length" if len(job.ids) >= request.max_tokens else None

    def _sampled(self, job: _Job, reason: SampleReason) -> Sampled:
        return Sampled(
            ids=tuple(job.ids),
            logprobs=tuple(job.logprobs),
            versions=tuple(job.versions),
            reason=reason,
            digests=job.digests,
        )

    async def abort(self, ids: tuple[str, ...] | None = None) -> None:
        """As `InferenceServer.abort`."""
        for name, job in self._jobs.items():
            job.aborted = job.aborted or ids is None or name in ids
        self._wake()

    async def pause(self, mode: Interruption, seconds: float) -> None:
        """As `InferenceServer.pause`."""
        self._paused = True
        self._cancel_lease()
        self._lease = asyncio.get_running_loop().call_later(seconds, self._resume)
        if mode == "abort":
            await self.abort()

    async def resume(self) -> None:
        """As `InferenceServer.resume`."""
        self._resume()

    def _resume(self) -> None:
        self._cancel_lease()
        self._paused = False
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _cancel_lease(self) -> None:
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None

    async def prepare(self, weights: Weights) -> None:
        """As `InferenceServer.prepare`."""
        file = files_of(weights)[0]
        if digest_of(file.read_text()) != weights.digest:
            raise WeightsError(f"{file} has another digest")

    async def update(self, weights: Weights) -> None:
        """As `InferenceServer.update`."""
        await self.prepare(weights)
        if self.fails is not None:
            raise WeightsError(self.fails)
        table = files_of(weights)[0].read_text()
        if weights.adapter:
            held = Held(version=weights.version, digest=weights.digest, run=weights.run)
            self.adapters[weights.adapter] = (table, held)
            return
        self.table, self.version, self.run = table, weights.version, weights.run
        self.adapters = {}

    async def status(self) -> ServerStatus:
        """As `InferenceServer.status`."""
        return ServerStatus(
            instance=self._instance,
            model="bigrams",
            fingerprint=FINGERPRINT,
            version=self.version,
            digest=digest_of(self.table),
            run=self.run,
            paused=self._paused,
            running=len(self._jobs),
            waiting=0,
            max_running=self._max_running,
            context=CONTEXT,
            deterministic=True,
            since=self._since,
            adapters={name: held for name, (_, held) in self.adapters.items()},
        )


class BigramLab:
    """Weights of bigram servers, and their log-probabilities; see `contract.ServerLab` and
    `adapters.AdapterLab`.
    """

    stop_id = 3
    prompt: tuple[int, ...] = tuple(range(VOCABULARY))
    tolerance = 1e-4

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def table(self, version: int, adapter: str = "") -> str:
        """The weights of a version, or of a version of an adapter."""
        return f"table {version}{adapter}"

    def write(self, table: str, folder: Path) -> str:
        """Write weights; returns their digest."""
        return write_table(table, folder)

    def write_adapter(self, table: str, folder: Path) -> str:
        """Write an adapter; returns its digest."""
        return self.write(table, folder)

    def publish(self, version: int) -> Weights:
        """As `contract.ServerLab.publish`."""
        folder, table = WeightFolder(self._folder, keep=8), self.table(version)
        return folder.publish(version, lambda to: self.write(table, to))

    def publish_adapter(self, name: str, version: int) -> Weights:
        """As `adapters.AdapterLab.publish_adapter`."""
        folder, table = WeightFolder(self._folder / name, keep=8), self.table(version, name)
        made = folder.publish(version, lambda to: self.write_adapter(table, to))
        return msgspec.structs.replace(made, adapter=name, run="the run")

    def logprobs(self, version: int, ids: tuple[int, ...]) -> list[float]:
        """As `contract.ServerLab.logprobs`."""
        return self.adapter_logprobs("", version, ids)

    def adapter_logprobs(self, name: str, version: int, ids: tuple[int, ...]) -> list[float]:
        """As `adapters.AdapterLab.adapter_logprobs`."""
        table = self.table(version, name)
        return [row(table, before)[token] for before, token in pairwise(ids)]
