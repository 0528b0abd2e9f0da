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
import torch
from attrs import define, field, frozen
from torch import Tensor

from ale.errors import AleError, InputError, LLMError
from ale.plugin import BuildContext
from ale.runs import Registry, build_choice
from ale.strict import from_plain
from ale.types import LLMCapabilities, PolicySnapshot
from ale_llm_policy.channels import Channel, FolderWeights
from ale_llm_policy.model import TokenLLM
from ale_llm_policy.options import Following
from ale_llm_policy.pretrained import TorchPolicy, weights
from ale_servers.client import Connections, HTTPServer
from ale_servers.origin import WeightOrigin
from ale_servers.pool import PoolOptions, ServerPool
from ale_servers.records import Sampled, SampleRequest, Weights
from ale_servers.registry import FolderRegistry
from ale_servers.registry import Registry as ServerRegistry
from ale_servers.supervisor import Command, last_lines, serve_command, supervised
from ale_training.lora import full_weights

log = logging.getLogger(__name__)

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

    def commands(self, policy: TorchPolicy, named: Mapping[str, Tensor]) -> list[Command]:
        """The commands to run, after writing the model into the folder.

        Args:
            policy: model, tokenizer and template.
            named: its weights by the names of the plain model; adapters may have been added to it.
        """
        model = self.folder / "model"
        policy.save(model, named)
        config = self.folder / "serve.yaml"
        register = ("--register", str(self.registry.folder))
        gpus = [{"CUDA_VISIBLE_DEVICES": each} for each in self.gpus] or [{}] * self.n
        config.write_text(json.dumps({"llm": {**self.section, "model": str(model.absolute())}}))
        return [
            Command(
                argv=serve_command(("--config", str(config)), register, f"own-{number}"),
                log=self.folder / f"own-{number}.log",
                environ={**self.environ, **visible},
            )
            for number, visible in enumerate(gpus)
        ]


@define(eq=False, repr=False, slots=False)
class ServersLLM(TokenLLM):
    """Samples from servers. A `Policy`: each `load_policy` gives them the weights.

    Its own policy renders prompts, reads answers, and is the model that a trainer trains.
    """

    _registry: ServerRegistry
    """Where the servers are found."""
    _channel: Channel
    """Hands the weights over."""
    _origin: WeightOrigin | None = field(kw_only=True)
    """Hands out the folder of the channel, if servers may be unable to read it."""
    training_device: torch.device = field(kw_only=True)
    """Where a trainer computes with the model, whose weights stay in the processor's memory until
    then. Read by trainers."""
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
        self._written = False
        self._attached = False

    def attached(self) -> None:
        """A trainer of this process will change the weights: hold the servers from the start.

        Called by trainers.
        """
        self._attached = True

    @property
    def capabilities(self) -> LLMCapabilities:
        """The capabilities that every server has; only some servers are deterministic."""
        return LLMCapabilities(tools=True, token_ids=True, logprobs=True)

    @property
    def same_engine(self) -> bool | None:
        """Is each token's probability computed as a trainer of this policy does? Read by trainers.

        None if the servers were started by somebody else.
        """
        return None if self._own is None else self._own.section["type"] == "policy"

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
        pool = await self._opened()
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
            logs = [self._own.folder / f"own-{number}.log" for number in range(self._own.n)]
            ends = "\n".join(f"{log}:\n{last_lines(log)}" for log in logs)
            raise type(error)(f"{error}\n{ends}") from error

    async def _answered(self, answer: Coroutine[Any, Any, Sampled]) -> Sampled:
        """An answer of own servers, without waiting for them once all have ended for good."""
        asking = asyncio.ensure_future(answer)
        try:
            while not asking.done():
                running = [each for each in self._supervised if not each.done()]
                if not running:
                    raise LLMError("the run's own servers have ended, and are not started again")
                await asyncio.wait({asking, *running}, return_when="FIRST_COMPLETED")
            return asking.result()
        finally:
            asking.cancel()

    async def load_policy(self, snapshot: PolicySnapshot) -> None:
        """Give all servers these weights, and sample from them.

        `snapshot.weights` is this policy if its model has the weights, or a mapping of names to
        tensors. If it is None, `snapshot.path` is read; if that is None too, the model has the
        weights. After a mapping, the model's own weights, now outdated, are dropped.

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
        if snapshot.weights not in (None, self.policy):
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

    async def _opened(self) -> ServerPool:
        async with self._opening:
            if self._pool is None:
                if self._origin is not None:
                    await self._origin.started()  # now, when a wrong address loses no work
                pool = ServerPool(
                    self._registry,
                    lambda entry: HTTPServer(entry, self._connections),
                    fingerprint=self.policy.fingerprint,
                    initial=self._initial,
                    run=self._run,
                    present=self._present,
                    options=self._options,
                    holds=self._attached,
                )
                await self._start_own()
                self._pool = pool
        return self._pool

    async def _start_own(self) -> None:
        if self._own is None:
            return
        commands = self._own.commands
        for command in await asyncio.to_thread(commands, self.policy, self._first):
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
        origin = None if self._origin is None else await self._origin.started()
        return msgspec.structs.replace(published, run=self._run, origin=origin)

    def _write(self, snapshot: PolicySnapshot) -> Weights:
        self._written = True
        if not self._options.adapter:
            return self._channel.publish(snapshot.version, self._tensors(snapshot))
        if snapshot.weights not in (None, self.policy) or snapshot.path is not None:
            raise AleError("llm.adapter: only adapters of this process's model can be given alone")
        assert isinstance(self._channel, FolderWeights)
        published = self._channel.publish_adapter(snapshot.version, self.policy)
        return msgspec.structs.replace(published, adapter=self._options.adapter)

    def _tensors(self, snapshot: PolicySnapshot) -> dict[str, Tensor]:
        """The weights by the names of the plain model: tied ones once, adapters merged."""
        given = snapshot.weights
        if given is None and snapshot.path is not None:
            given = weights.read(Path(snapshot.path))
        if given is None or given is self.policy:
            if not self._first:
                raise AleError("the model's own weights were dropped when others were handed over")
            with self.policy.lock:
                given = full_weights(self.policy.base)
        else:
            weights.check(self.policy.base, given)
        return {name: given[name] for name in self._names}
