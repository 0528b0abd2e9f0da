"""Several servers as one: routing, back-pressure, interrupted requests, and updates of weights."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from attrs import define, field, frozen

from ale.errors import AleError, LLMError, LLMLostError
from ale_servers.leases import EXPIRY_S, Claims, described
from ale_servers.protocol import HeldError, InferenceServer, NotSampledError, WeightsError
from ale_servers.records import (
    Entry,
    Held,
    Interruption,
    Lease,
    Sampled,
    SampleRequest,
    ServerStatus,
    Weights,
)
from ale_servers.registry import Registry
from ale_servers.routing import Member, Router, State

log = logging.getLogger(__name__)

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0
_MOST_LOSSES = 2
"""An answer is sampled again so often, because one that ends its server would end every other."""


@frozen(kw_only=True)
class PoolOptions:
    """How a pool asks its servers."""

    timeout_s: float = 600.0
    """Seconds for a whole answer, waiting and interruptions included."""
    interruption: Interruption = "keep"
    """What an update does to requests in progress."""
    refresh_s: float = 2.0
    """Seconds between looks at the registry and at each server."""
    take_over: bool = False
    """Give this run's weights to servers that have somebody else's, if they fit; take them, at the
    first look only, from runs that hold them."""
    follow: bool = False
    """Sample from the newest weights of the run that a server has; another process gives them."""
    adapter: str = ""
    """Name of the adapter that this pool updates, over the initial weights."""
    pause_s: float = 120.0
    """Seconds after which servers resume by themselves, should this process be killed."""


@define(eq=False, slots=False)
class ServerPool:
    """The servers of a registry, as one that samples."""

    _registry: Registry
    _connect: Callable[[Entry], InferenceServer]
    """Makes the client of a server."""
    _fingerprint: str = field(kw_only=True)
    """The model's; a server of another model is refused."""
    base: Weights = field(kw_only=True, alias="initial")
    """The weights under the adapter, or those that are sampled from if there is none. Before the
    first update they need not be stored."""
    _run: str = field(default="", kw_only=True)
    """Id of the run, by which it recognises what it has published before."""
    _present: Weights | None = field(default=None, kw_only=True)
    """An adapter over the initial weights that the servers have."""
    _options: PoolOptions = field(factory=PoolOptions, kw_only=True)
    _holds: bool = field(default=False, kw_only=True)
    """Hold the servers from the first look on, because a trainer will give them weights."""

    def __attrs_post_init__(self) -> None:
        self._claims = Claims(
            run=self._run,
            adapter=self._options.adapter,
            host=socket.gethostname(),
            pid=os.getpid(),
            seconds=max(EXPIRY_S, 3 * self._options.refresh_s),
            active=self._holds or self._options.take_over,
            take=self._options.take_over,
        )
        self.weights = self._present or self.base
        """The weights that are sampled from."""
        self._digests = {each.version: each.digest for each in (self.base, self.weights)}
        self._router = Router()
        self._members = self._router.members
        self._looking = asyncio.Lock()
        self._changing = asyncio.Lock()
        self._switches = 0
        """Odd while servers have different weights."""
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def members(self) -> Sequence[Member]:
        """The servers that the registry has, or had when it was last read."""
        return tuple(self._members.values())

    async def sample(self, request: SampleRequest, session: str) -> Sampled:
        """One answer, from one server or, after interruptions, from several.

        Args:
            request: its id is used for the first part; later parts get other ids.
            session: requests of one session are sent to one server, for its prefix cache.

        Raises:
            ContextLengthError: the ids fill the context.
            LLMLostError: there was no server, no answer in time, or the answer was lost again and
                again.
            LLMError: other runs have taken all servers, or one refuses the request.
        """
        self._keep_fresh()
        parts: list[Sampled] = []
        losses: list[LLMError] = []
        try:
            async with asyncio.timeout(self._options.timeout_s):
                while not parts or parts[-1].reason == "abort":
                    parts.append(await self._part(request, parts, losses, session))
        except TimeoutError:
            raise LLMLostError(self._too_late()) from None
        return _joined(parts)

    async def _part(
        self,
        request: SampleRequest,
        parts: Sequence[Sampled],
        losses: list[LLMError],
        session: str,
    ) -> Sampled:
        """The next part of an answer.

        The request is sent again while nothing was sampled, and after what was sampled has been
        lost with its server: to another one, if there is one.
        """
        wait = _FIRST_WAIT_S
        while True:
            self._check_taken()
            member = await self._router.acquire(session)
            asked = self._asked(request, parts, len(losses))
            member.asked.add(asked.id)
            try:
                part = await member.server.sample(asked)
            except LLMError as error:
                self._note(member, session, error, losses)
            else:
                if await self._is_ours(member, part):
                    return part
            finally:
                member.asked.discard(asked.id)
                self._router.release(member)
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT_S)

    def _asked(
        self, request: SampleRequest, parts: Sequence[Sampled], n_losses: int
    ) -> SampleRequest:
        """A request for what is missing of an answer, under the present weights."""
        done = [token for part in parts for token in part.ids]
        number = len(parts) + n_losses  # what was lost may still be in progress
        return msgspec.structs.replace(
            request,
            id=f"{request.id}.{number}" if number else request.id,
            answer_ids=(*request.answer_ids, *done),
            max_tokens=request.max_tokens - len(done),
            least_version=self.weights.version,
            adapter=self.weights.adapter,
        )

    def _note(self, member: Member, session: str, error: LLMError, losses: list[LLMError]) -> None:
        """A request has failed: raise its error, unless it can be sent again."""
        if not error.transient:
            raise error
        if member.state == "ready" and isinstance(error, NotSampledError | LLMLostError):
            self._set(member, "down", str(error))
        if isinstance(error, NotSampledError):
            return
        self._router.forget(session)
        losses.append(error)
        if len(losses) > _MOST_LOSSES:
            raise LLMLostError(f"the answer was lost {len(losses)} times: {error}") from error

    def _check_taken(self) -> None:
        if error := self._taken():
            raise error

    def _taken(self) -> LLMError | None:
        """The error where other runs have taken all servers from this one."""
        taken = [each.taken for each in self._members.values()]
        if not taken or not all(taken):
            return None
        return LLMError(f"this run has no server any more: {'; '.join(taken)}")

    async def _is_ours(self, member: Member, part: Sampled) -> bool:
        """Refuse tokens sampled from weights that this run has not published.

        Raises:
            LLMError: no other server is left.
        """
        if self._options.follow and not self._digests.keys() >= {*part.versions}:
            await self._look_at(member)  # the run may have updated it
        for version in {*part.versions}:
            if part.digests.get(version) != self._digests.get(version, ""):
                reason = f"it sampled from weights that are not version {version} of this run"
                self._set(member, "refused", reason)
                await self._look_at(member)  # says who has taken it, if that is known
                self._check_taken()
                if all(each.state == "refused" for each in self._members.values()):
                    url = member.entry.url
                    raise LLMError(f"{url} is refused: {reason}; is another run using it?")
                return False
        return True

    def _set(self, member: Member, state: State, reason: str = "") -> None:
        if (member.state, member.reason) != (state, reason) and reason:
            log.warning("the server %s is %s: %s", member.entry.url, state, reason)
        member.state, member.reason = state, reason

    def _too_late(self) -> str:
        ready = sum(each.state == "ready" for each in self._members.values())
        text = f"no answer within {self._options.timeout_s:g} s; {ready} of {len(self._members)}"
        return "; ".join([f"{text} servers are ready", *self.unusable()])

    def unusable(self) -> list[str]:
        """For each server that is not sampled from, the reason."""
        return [
            f"{each.entry.url} is {each.state}: {each.reason}"
            for each in self._members.values()
            if each.state != "ready"
        ]

    def written(self, weights: Weights) -> None:
        """From now on the present weights are stored, for servers that have others."""
        self.weights = weights
        if not weights.adapter:
            self.base = weights

    async def start(self) -> None:
        """Look at the servers now and from time to time; the first request starts this too."""
        await self.refresh()
        self._keep_fresh()

    def _keep_fresh(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh_always())

    async def _refresh_always(self) -> None:
        while True:
            try:
                await self._look()
            except Exception:
                log.exception("the servers could not be looked at")
            await asyncio.sleep(self._options.refresh_s)

    async def refresh(self) -> None:
        """Read the registry, ask every server, and update those that missed an update."""
        await self._look()
        catching_up = [each.catching_up for each in self._members.values()]
        await asyncio.gather(*filter(None, catching_up))

    async def _look(self) -> None:
        """As `refresh`, without waiting for the servers that are being updated."""
        async with self._looking:
            try:
                found = {each.url: each for each in await asyncio.to_thread(self._registry.entries)}
            except OSError as error:
                raise LLMError(f"the servers can't be listed: {error}", transient=True) from error
            for url in self._members.keys() - found.keys():
                self._set(self._members.pop(url), "down", "it has left the registry")
            for url, entry in found.items():
                if url not in self._members:
                    self._members[url] = Member(entry, self._connect(entry))
            await asyncio.gather(*(self._look_at(each) for each in self._members.values()))
            if any(each.status is not None for each in self._members.values()):
                self._claims.take = False  # later, this run would only fight another one
        if lost := self._taken():
            self._router.refuse(lost)
        self._router.hand_out()

    async def _look_at(self, member: Member) -> None:
        if member.taken:
            return
        switches = self._switches
        try:
            status = await member.server.status()
            other = await self._claims.other(member.server, status)
        except LLMError as error:
            self._set(member, "down", str(error))
            return
        if other is not None:
            self._hand_over(member, other)
            return
        member.held, member.status = self._claims.active, status
        member.others = max(0, status.running + status.waiting - member.in_flight)
        updating = member.catching_up is not None and not member.catching_up.done()
        if switches != self._switches or switches % 2 or updating:
            return  # its answer may be about the weights before or after a switch
        state, reason = self._judged(member, status)
        self._set(member, state, reason)
        member.settled = member.settled or state == "ready"
        if state == "behind" and self.weights.stored:
            # In a task of its own, as a server may hang in the middle of it.
            member.catching_up = asyncio.create_task(self._catch_up(member, self.weights))

    def _hand_over(self, member: Member, lease: Lease) -> None:
        """Another run holds a server: it is not sampled from, nor given weights."""
        if member.held:
            self._lose(member, f"{member.entry.url}: {described(lease)}")
        else:
            hint = "; wait until it has ended, or 'take_over: true' takes it from that run"
            self._set(member, "refused", described(lease) + hint)

    def _lose(self, member: Member, holder: str) -> None:
        """This run had held the server, and does not take it back."""
        member.taken = f"another run has taken a server over: {holder}"
        self._set(member, "refused", member.taken)

    def _judged(self, member: Member, status: ServerStatus) -> tuple[State, str]:
        if status.fingerprint not in ("", self._fingerprint):
            return "refused", f"it has another model, {status.model}, or another vocabulary"
        self._follow(status)
        if (status.version, status.digest) == (self.base.version, self.base.digest):
            return self._judged_adapter(member, status) if self.weights.adapter else ("ready", "")
        what = f"version {status.version} with digest {status.digest[:12]}"
        if self._may_give(member, status.run) or status.digest in self._digests.values():
            return "behind", f"it has {what}"
        return "refused", (
            f"it has {what}, which are not weights of this run: it has version "
            f"{self.base.version} with digest {self.base.digest[:12]}; 'take_over: true' gives it "
            "those"
        )

    def _may_give(self, member: Member, giver: str) -> bool:
        """May this run replace weights that the run `giver` has given?

        Not those that another one gave after this run had begun to use the server, even if nothing
        says that it was taken over: servers of other programs may keep no leases.
        """
        if self._run and giver == self._run:
            return True
        return self._options.take_over and not (member.settled and giver)

    def _judged_adapter(self, member: Member, status: ServerStatus) -> tuple[State, str]:
        name = self.weights.adapter
        held = status.adapters.get(name)
        if held is None:
            return "behind", f"it does not have the adapter '{name}'"
        if (held.version, held.digest) == (self.weights.version, self.weights.digest):
            return "ready", ""
        what = f"it has version {held.version} of the adapter '{name}'"
        if held.run == self._run or self._may_give(member, held.run):
            return "behind", what
        return "refused", f"{what}, which another run has given it"

    def _follow(self, status: ServerStatus) -> None:
        """Take newer weights of the run as the present ones. A server with older weights has missed
        an update, or has restarted.
        """
        adapter = self._options.adapter
        held: ServerStatus | Held | None = status.adapters.get(adapter) if adapter else status
        if not self._options.follow or held is None or not self._run or held.run != self._run:
            return
        if held.version <= self.weights.version:
            return
        self.weights = Weights(version=held.version, digest=held.digest, folder="", adapter=adapter)
        self._digests[held.version] = held.digest
        if not adapter:
            self.base = self.weights

    async def _catch_up(self, member: Member, weights: Weights) -> None:
        try:
            held = member.status
            assert held is not None
            if (held.version, held.digest) != (self.base.version, self.base.digest):
                await self._give(member.server, self.base)
            if weights.adapter:
                await self._give(member.server, weights)
        except AleError as error:
            self._set(member, "behind", f"it could not be updated: {error}")
            return
        if weights is self.weights:
            self._set(member, "ready")
            self._router.hand_out()
        else:
            self._set(member, "behind", "it missed an update")

    async def _give(self, server: InferenceServer, weights: Weights) -> None:
        await server.prepare(weights)
        if not weights.adapter:
            await server.pause("abort", self._options.pause_s)
        await server.update(weights)
        if not weights.adapter:
            await server.resume()

    async def update(self, weights: Weights) -> None:
        """Sample from these weights: prepare all servers, pause all, update all, resume all.

        An adapter needs no pause: answers in progress end under the version with which they began,
        or come back if the interruption is ``abort``. A server that is still catching up with an
        earlier update is not waited for.

        A server that can't be reached, or fails to take the weights that it has prepared, is not
        sampled from until it has been updated; a warning names it. If all fail, those that a second
        look finds ready are asked once more; if it finds none, all are updated when they are back.

        Raises:
            AleError: a server refuses the weights, or none of those that are ready has taken them.
                All servers then still have the old ones.
        """
        if not self._members or not self._claims.active:
            self._claims.active = True
            await self._look()
        async with self._changing:
            self._check_taken()
            try:
                members = await self._given(weights)
            except _NotTakenError as error:
                if not error.transient:
                    raise
                await self._look()
                members = await self._given(weights)
            self._digests[weights.version] = weights.digest
            self.written(weights)
            for member in self._members.values():
                if member.state == "ready" and member not in members:
                    self._set(member, "behind", "it missed an update")
        self._router.hand_out()

    async def _given(self, weights: Weights) -> Sequence[Member]:
        """Update the servers that are ready, if any; returns those that have prepared."""
        members = [each for each in self._members.values() if each.state == "ready"]
        prepared = await self._each(members, lambda server: server.prepare(weights))
        for member in members:
            if isinstance(error := prepared[member.entry.url], HeldError):
                self._lose(member, str(error))
        members = [each for each in members if not each.taken]
        self._check_taken()
        prepared = {each.entry.url: prepared[each.entry.url] for each in members}
        refused = [error for error in prepared.values() if isinstance(error, WeightsError)]
        if refused:
            raise _NotTakenError(weights, refused[:1])
        asked, members = members, self._without_lost(members, prepared)
        if asked and not members:
            raise _NotTakenError(weights, prepared.values())
        if members:
            self._switches += 1
            try:
                await self._switch(members, weights)
            finally:
                self._switches += 1
        return members

    async def _switch(self, members: Sequence[Member], weights: Weights) -> None:
        mode, pause_s = self._options.interruption, self._options.pause_s
        # Record it before any server has the weights: a kept request samples from them at once.
        self._digests[weights.version] = weights.digest
        paused: Mapping[str, AleError | None] = {each.entry.url: None for each in members}
        if not weights.adapter:
            paused = await self._each(members, lambda server: server.pause(mode, pause_s))
        reached = self._without_lost(members, paused)
        updated = await self._each(reached, lambda server: server.update(weights))
        taken = [each for each in reached if updated[each.entry.url] is None]
        if not taken:
            await self._each(reached, lambda server: server.resume())
            del self._digests[weights.version]
            raise _NotTakenError(weights, (*paused.values(), *updated.values()))
        for member in reached:
            if member not in taken:
                # It stays paused until it has been updated.
                self._set(member, "behind", f"it failed to update: {updated[member.entry.url]}")
        if not weights.adapter:
            self._without_lost(taken, await self._each(taken, lambda server: server.resume()))
        elif mode == "abort":
            await asyncio.gather(*(each.server.abort(tuple(each.asked)) for each in taken))

    async def _each(
        self, members: Sequence[Member], do: "Callable[[InferenceServer], object]"
    ) -> Mapping[str, AleError | None]:
        """Do something with all servers at once; returns the error of each by URL."""

        async def one(member: Member) -> AleError | None:
            try:
                await do(member.server)  # type: ignore[misc]
            except AleError as error:
                return error
            return None

        errors = await asyncio.gather(*(one(each) for each in members))
        return {each.entry.url: error for each, error in zip(members, errors, strict=True)}

    def _without_lost(
        self, members: Sequence[Member], errors: Mapping[str, AleError | None]
    ) -> list[Member]:
        for member in members:
            if (error := errors[member.entry.url]) is not None:
                self._set(member, "down", str(error))
        return [each for each in members if errors[each.entry.url] is None]

    async def aclose(self) -> None:
        """Stop looking at the servers, which continue. Idempotent."""
        task, self._refreshing = self._refreshing, None
        for each in (task, *(member.catching_up for member in self._members.values())):
            if each is not None:
                each.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await each
        held = {url: each.server for url, each in self._members.items() if each.held}
        await self._claims.release(held)


class _NotTakenError(AleError):
    """Weights were taken by no server."""

    def __init__(self, weights: Weights, errors: Iterable[AleError | None]) -> None:
        found = [error for error in errors if error is not None]
        self.transient = all(isinstance(each, LLMError) and each.transient for each in found)
        reasons = "; ".join(map(str, found))
        super().__init__(f"version {weights.version} was taken by no server: {reasons}")


def _joined(parts: Sequence[Sampled]) -> Sampled:
    if len(parts) == 1:
        return parts[0]
    return Sampled(
        ids=tuple(token for part in parts for token in part.ids),
        logprobs=tuple(value for part in parts for value in part.logprobs),
        versions=tuple(version for part in parts for version in part.versions),
        reason=parts[-1].reason,
        digests={version: digest for part in parts for version, digest in part.digests.items()},
    )
