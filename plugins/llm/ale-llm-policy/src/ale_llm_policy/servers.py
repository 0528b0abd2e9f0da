"""The model component that samples from inference servers, to which it gives the weights."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from attrs import define, field, frozen
from torch import Tensor

from ale.errors import AleError, InputError, LLMError
from ale.plugin import BuildContext
from ale.runs import Registry, build_choice
from ale.strict import from_plain
from ale.types import HAND_OVERS, HandOver, LLMCapabilities, PolicySnapshot
from ale_llm_policy.channels import Channel, FolderWeights
from ale_llm_policy.options import Following
from ale_llm_policy.pretrained import TorchPolicy, weights
from ale_servers.client import Connections, HTTPServer
from ale_servers.hosted import HostedLLM
from ale_servers.origin import WeightOrigin
from ale_servers.pool import PoolOptions, ServerPool
from ale_servers.protocol import InferenceServer
from ale_servers.records import Entry, Sampled, SampleRequest, Weights
from ale_servers.registry import Addresses, FolderRegistry
from ale_servers.registry import Registry as ServerRegistry
from ale_servers.supervisor import Command, last_lines, serve_command, supervised
from ale_training.chat.model import TokenLLM
from ale_training.lora import full_weights

log = logging.getLogger(__name__)

_START_S = 1.0
"""Seconds between looks at whether an own server has been started."""
_FAILURES = 5
"""A run gives up a server of its own that ends so many times in a row, soon after its start."""


@frozen(kw_only=True)
class OwnServers:
    """Servers that a run starts on this machine and ends.

    Attributes:
        n: number of servers.
        folder: for their model, their logs and their registry.
        section: the config's section for `ale serve`, without the model.
        environ: their environment.
        gpus: of each server, as in CUDA_VISIBLE_DEVICES; empty: those that the environment names.
    """

    n: int
    folder: Path
    section: Mapping[str, Any]
    environ: Mapping[str, str]
    gpus: Sequence[str] = ()

    @property
    def registry(self) -> FolderRegistry:
        """Where the servers are found."""
        return FolderRegistry(self.folder / "registry")

    def obstacle(self) -> str | None:
        """Why they can't be started on this machine, such as a program that is not installed.

        What they serve is built as `ale serve` will build it, but for the model, which is not
        written yet.
        """
        if self.section["type"] == "policy":
            return None  # as here
        section = from_plain({**self.section, "model": str(self.folder / "not written yet")})
        try:
            build_choice(section, "llm", Registry.installed(), BuildContext(environ=self.environ))
        except InputError as error:
            found = [each for each in error.problems if each.path != "llm.model"]
            said = "; ".join(text for each in found for text in (each.message, each.hint) if text)
            return f"the run's own servers can't be started: {said}" if said else None
        return None

    @property
    def logs(self) -> list[Path]:
        """Their outputs."""
        return [self.folder / f"own-{number}.log" for number in range(self.n)]

    def programs(self) -> list[HostedLLM]:
        """The servers as programs that this process asks itself; empty if `ale serve` has to.

        Their model has been written. A policy would compute in this process.
        """
        if self.section["type"] == "policy":
            return []
        made = []
        for log_file, environ in zip(self.logs, self._environments(), strict=True):
            context = BuildContext(environ=environ)
            _, llm = build_choice(from_plain(self._served()), "llm", Registry.installed(), context)
            if not isinstance(llm, HostedLLM):
                return []
            llm.own(log_file, failures=_FAILURES)
            made.append(llm)
        return made

    def write(self, policy: TorchPolicy, named: Mapping[str, Tensor]) -> None:
        """Write the model into the folder.

        Args:
            policy: model, tokenizer and template.
            named: its weights by the names of the plain model; adapters may have been added to it.
        """
        policy.save(self.folder / "model", named)

    def commands(self) -> list[Command]:
        """The commands of `ale serve`, for servers that other processes ask too."""
        config = self.folder / "serve.yaml"
        register = ("--register", str(self.registry.folder))
        config.write_text(json.dumps({"llm": self._served()}))
        return [
            Command(
                argv=serve_command(("--config", str(config)), register, log_file.stem),
                log=log_file,
                environ=environ,
            )
            for log_file, environ in zip(self.logs, self._environments(), strict=True)
        ]

    def _served(self) -> dict[str, Any]:
        return {**self.section, "model": str((self.folder / "model").absolute())}

    def _environments(self) -> list[dict[str, str]]:
        gpus = [{"CUDA_VISIBLE_DEVICES": each} for each in self.gpus] or [{}] * self.n
        return [{**self.environ, **visible} for visible in gpus]


@define(eq=False, repr=False, slots=False)
class ServersLLM(TokenLLM):
    """Samples from servers. A `TrainablePolicy`: each `load_policy` gives them the weights.

    Its own policy renders prompts, reads answers, and is what a trainer trains.
    """

    policy: TorchPolicy
    """Model, tokenizer and template."""
    _registry: ServerRegistry
    """Where the servers are found."""
    _channel: Channel
    """Hands the weights over."""
    _origin: WeightOrigin | None = field(kw_only=True)
    """Hands out the folder of the channel, if servers may be unable to read it."""
    training_device: str = field(kw_only=True)
    """As `TrainablePolicy.training_device`; the weights are in the processor's memory."""
    _run: str = field(kw_only=True)
    """Id of the run."""
    _following: Following | None = field(kw_only=True)
    """The weights that the run has given its servers, if this is one of its workers."""
    _options: PoolOptions = field(kw_only=True)
    _key: str | None = field(kw_only=True)
    """Sent to the servers as a bearer token."""
    _own: OwnServers | None = field(kw_only=True)
    """Servers to start; the registry then contains these."""
    _client: Mapping[str, Any] = field(kw_only=True)
    """Options with which another process samples from the same servers."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._connections = Connections(self._key)
        # Adapters, which a trainer may add later, change names and, by rounding, values.
        self._first = dict(self.policy.base.named_parameters())
        self._names = list(self._first)
        adapter, following = self._options.adapter, self._following
        self._present: Weights | None = None
        self._initial = Weights(version=self.policy.version, digest="", folder="")
        if following is None or adapter:
            digest = weights.digest(self._first)
            self._initial = msgspec.structs.replace(self._initial, digest=digest)
        if following is not None:
            version, digest = following.version, following.digest
            self._present = Weights(version=version, digest=digest, folder="", adapter=adapter)
            if not adapter:
                self._initial = self._present
            elif digest == self._initial.digest:
                self._present = None
        self._opening = asyncio.Lock()
        self._pool: ServerPool | None = None
        self._running = contextlib.AsyncExitStack()
        self._supervised: list[asyncio.Task[None]] = []
        self._programs: dict[str, HostedLLM] = {}
        """Own servers that this process asks itself, by URL."""
        self._written = False
        self._attached = False

    def attached(self) -> None:
        """Hold the servers from the start."""
        self._attached = True

    @property
    def capabilities(self) -> LLMCapabilities:
        """The capabilities that every server has; only some servers are deterministic."""
        return LLMCapabilities(tools=True, token_ids=True, logprobs=True)

    @property
    def same_engine(self) -> bool | None:
        """As `TrainablePolicy.same_engine`; None if the servers were started by somebody else."""
        return None if self._own is None else self._own.section["type"] == "policy"

    @property
    def hand_overs(self) -> frozenset[HandOver]:
        """All, but adapters alone come from the model of this process."""
        return frozenset(("in-place",)) if self._options.adapter else HAND_OVERS

    def obstacle(self) -> str | None:
        """Why this can't work on this machine, as far as it is known without asking a server."""
        own = self._own.obstacle() if self._own is not None else None
        return self._channel.obstacle(self._first) or own

    async def check(self) -> None:
        """Ask every server whether it has this model and these weights.

        Own servers start with the first request; what they need must be installed.

        Raises:
            LLMError: no server is there, or one has other weights; or there is an `obstacle`.
        """
        if obstacle := self.obstacle():
            raise LLMError(obstacle)
        if self._own is not None:
            return
        pool = await self._opened()
        await pool.refresh()
        states = {each.state for each in pool.members}
        if "refused" in states or not states & {"ready", "behind"}:
            raise LLMError("; ".join(pool.unusable()) or f"there is no server in {self._registry}")

    async def client_options(self) -> Mapping[str, Any]:
        """Options with which the workers of an executor sample from the same servers.

        Raises:
            LLMError: own servers can't be started.
        """
        pool = await self._opened(shared=True)
        if self._options.take_over:
            await self._publish(pool)
        await pool.start()
        given = {"version": pool.weights.version, "digest": pool.weights.digest}
        return {**self._client, "follow": given}

    async def _sample(self, asked: SampleRequest, session: str) -> Sampled:
        pool = await self._opened()
        if self._options.take_over:
            await self._publish(pool)
        if self._own is None:
            return await pool.sample(asked, session)
        try:
            return await self._answered(pool.sample(asked, session))
        except LLMError as error:
            ends = "\n".join(f"{log}:\n{last_lines(log)}" for log in self._own.logs)
            raise type(error)(f"{error}\n{ends}") from error

    async def _answered(self, answer: Coroutine[Any, Any, Sampled]) -> Sampled:
        """An answer of own servers, without waiting for them once all have ended for good."""
        asking = asyncio.ensure_future(answer)
        try:
            while not asking.done():
                kept = [*self._supervised, *(each.supervising for each in self._programs.values())]
                running = [each for each in kept if each is None or not each.done()]
                if not running:
                    raise LLMError("the run's own servers have ended, and are not started again")
                tasks = {asking, *filter(None, running)}
                timeout = _START_S if None in running else None
                await asyncio.wait(tasks, timeout=timeout, return_when="FIRST_COMPLETED")
            return asking.result()
        finally:
            asking.cancel()

    async def load_policy(self, snapshot: PolicySnapshot) -> None:
        """Give all servers these weights, and sample from them.

        After tensors, the model's own weights, now outdated, are dropped.

        Raises:
            InputError: the weights do not fit this model.
            AleError: a server refuses the weights, or none has taken them, and all still have the
                old ones; or this component follows another one.
        """
        if self._options.follow:
            raise AleError("llm.follow: the servers' weights are another process's to change")
        pool = await self._opened()
        published = await self._published(snapshot)
        if published.digest == pool.weights.digest and published.version == pool.weights.version:
            pool.written(published)
        else:
            await pool.update(published)
        self.policy.version = snapshot.version
        if snapshot.hand_over == "tensors":
            with self.policy.lock:
                weights.drop(self.policy.base)
            self._first = {}

    async def aclose(self) -> None:
        """End own servers and close connections; others continue. Idempotent."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()
        await self._connections.aclose()
        await self._running.aclose()
        if self._origin is not None:
            await self._origin.aclose()
        if self._written:
            self._channel.remove()

    async def _opened(self, *, shared: bool = False) -> ServerPool:
        """The pool; own servers are started before.

        Args:
            shared: other processes will ask own servers too.
        """
        async with self._opening:
            if self._pool is None:
                if self._origin is not None:
                    await self._origin.started()  # now, when a wrong address loses no work
                await self._start_own(shared=shared)
                pool = ServerPool(
                    Addresses([*self._programs]) if self._programs else self._registry,
                    self._connected,
                    fingerprint=self.policy.fingerprint,
                    initial=self._initial,
                    run=self._run,
                    present=self._present,
                    options=self._options,
                    holds=self._attached,
                )
                self._pool = pool
            elif shared and self._programs:
                raise AleError("the run's own servers were started for this process alone")
        return self._pool

    def _connected(self, entry: Entry) -> InferenceServer:
        program = self._programs.get(entry.url)
        return HTTPServer(entry, self._connections) if program is None else program.server

    async def _start_own(self, *, shared: bool) -> None:
        if self._own is None:
            return
        await asyncio.to_thread(self._own.write, self.policy, self._first)
        if not shared:
            for each in await asyncio.to_thread(self._own.programs):
                self._programs[each.asked.url] = each
                self._running.push_async_callback(each.aclose)
                each.server.begin()
        if self._programs:
            return
        for command in await asyncio.to_thread(self._own.commands):
            report = partial(log.warning, "%s: %s", command.log.stem)
            kept = supervised(command, report, failures=_FAILURES)
            self._supervised.append(await self._running.enter_async_context(kept))

    async def _publish(self, pool: ServerPool) -> None:
        """Write the initial weights, for servers that have others."""
        async with self._opening:
            if not pool.weights.stored:
                snapshot = PolicySnapshot(version=self.policy.version)
                pool.written(await self._published(snapshot))

    async def _published(self, snapshot: PolicySnapshot) -> Weights:
        """Write the weights, and hand them out."""
        published = await asyncio.to_thread(self._write, snapshot)
        sent = published.broadcast
        if self._programs and sent is not None and not sent.host:  # they are on this machine
            sent = msgspec.structs.replace(sent, host="127.0.0.1")
            published = msgspec.structs.replace(published, broadcast=sent)
        origin = None if self._origin is None else await self._origin.started()
        return msgspec.structs.replace(published, run=self._run, origin=origin)

    def _write(self, snapshot: PolicySnapshot) -> Weights:
        self._written = True
        if not self._options.adapter:
            return self._channel.publish(snapshot.version, self._tensors(snapshot))
        if snapshot.hand_over != "in-place":
            raise AleError("llm.adapter: only adapters of this process's model can be given alone")
        assert isinstance(self._channel, FolderWeights)
        published = self._channel.publish_adapter(snapshot.version, self.policy)
        return msgspec.structs.replace(published, adapter=self._options.adapter)

    def _tensors(self, snapshot: PolicySnapshot) -> dict[str, Tensor]:
        """The weights by the names of the plain model: tied ones once, adapters merged."""
        given: Mapping[str, Tensor]
        if snapshot.path is not None:
            given = weights.read(Path(snapshot.path))
        elif snapshot.weights is not None:
            given = snapshot.weights
        else:
            if not self._first:
                raise AleError("the model's own weights were dropped when others were handed over")
            with self.policy.lock:
                return self._plain(full_weights(self.policy.base))
        weights.check(self.policy.base, given)
        return self._plain(given)

    def _plain(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: given[name] for name in self._names}
