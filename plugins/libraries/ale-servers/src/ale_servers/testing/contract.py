# ruff: noqa: D102, ASYNC110 - a name says what a test does
"""The tests that every inference server, and every client of one, must pass."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
import pytest_asyncio

from ale.errors import AleError, ContextLengthError
from ale_servers.protocol import InferenceServer, NotSampledError, WeightsError
from ale_servers.records import Interruption, Sampled, SampleRequest, Weights

LONG = 300
"""Tokens of an answer to interrupt; use more if a server samples thousands per second."""
_numbers = itertools.count()
_TRIES = 20


class ServerLab(Protocol):
    """What the kit knows about a server's model."""

    prompt: tuple[int, ...]
    """At least 32 valid ids."""
    stop_id: int
    """A valid id that is sampled now and then."""
    tolerance: float
    """Greatest error of a log-probability; 1e-4 where both sides compute in float32."""

    def publish(self, version: int) -> Weights:
        """Write the weights of this version into a folder. Version 0 is the server's first; each
        version differs in every tensor, the embeddings included.
        """
        ...

    def logprobs(self, version: int, ids: tuple[int, ...]) -> list[float]:
        """Natural log-probabilities of all ids but the first, by one forward pass of the weights
        of this version.
        """
        ...


def ask(lab: ServerLab, n: int, **fields: Any) -> SampleRequest:
    """A request that no token ends."""
    number = next(_numbers)
    return SampleRequest(
        **{
            "id": f"r{number}",
            "prompt_ids": lab.prompt,
            "max_tokens": n,
            "seed": str(number),
            **fields,
        }
    )


def check_exact(lab: ServerLab, request: SampleRequest, sampled: Sampled) -> None:
    """Every token has the log-probability of a full forward pass of its version's weights."""
    before = (*request.prompt_ids, *request.answer_ids)
    ids = (*before, *sampled.ids)
    n = len(sampled.ids)
    assert n == len(sampled.logprobs) == len(sampled.versions)
    meant = {v: lab.logprobs(v, ids)[len(before) - 1 :] for v in {*sampled.versions}}
    errors = [
        abs(found - meant[version][at])
        for at, (found, version) in enumerate(zip(sampled.logprobs, sampled.versions, strict=True))
    ]
    assert max(errors, default=0.0) < lab.tolerance, (
        f"token {errors.index(max(errors))} of {n}, sampled by version "
        f"{sampled.versions[errors.index(max(errors))]}, is off by {max(errors):.3g}"
    )


def in_memory(weights: Weights, **fields: Any) -> Weights:
    """Weights in memory, with other `records.Memory` fields."""
    assert weights.memory is not None
    memory = msgspec.structs.replace(weights.memory, **fields)
    return msgspec.structs.replace(weights, memory=memory)


def wrong_in_memory(good: Weights, replaced: Weights) -> list[Weights]:
    """Weights in memory that no server can take.

    Args:
        good: of which the others are made.
        replaced: in whose memory there are other weights by now.
    """
    assert good.memory is not None
    place = {"handle": "0" * 128} if good.memory.handle else {"file": "/nowhere/weights"}
    return [
        in_memory(good, machine="another"),
        in_memory(good, **place),
        msgspec.structs.replace(good, digest="0" * 64),
        replaced,
    ]


def _files(weights: Weights) -> list[Path]:
    """Those with values of weights in a folder."""
    return [file for file in Path(weights.folder).iterdir() if file.suffix != ".json"]


class Kit:
    """The fixtures that a kit has to be given."""

    @pytest.fixture
    def lab(self, tmp_path: Path) -> ServerLab:
        """The lab of the server's model."""
        raise NotImplementedError("give the kit its fixture 'lab'")

    @pytest.fixture
    def bare(self) -> InferenceServer:
        """The server, or a client of it."""
        raise NotImplementedError("give the kit its fixture 'bare'")


@pytest.mark.asyncio
class ServerContract(Kit):
    """Override `bare` and `lab`; and `kept`, if the server can't keep interrupted requests."""

    keeps = True
    """The server supports the interruption ``keep``."""
    long = LONG
    """Tokens of an answer that takes at least a fifth of a second."""

    @pytest_asyncio.fixture
    async def server(self, bare: InferenceServer, lab: ServerLab) -> AsyncIterator[InferenceServer]:
        """The server with the weights of version 0, not paused."""
        first = lab.publish(0)
        if (await bare.status()).digest != first.digest or (await bare.status()).version:
            await bare.update(first)
        await bare.resume()
        yield bare
        await bare.abort()

    @pytest.fixture
    def wrong(self, lab: ServerLab, tmp_path: Path) -> Sequence[Weights]:
        """Weights that the server can't take. Override it where weights are not in folders."""
        good, broken, changed = lab.publish(1), lab.publish(2), lab.publish(4)
        for file in _files(broken):
            file.write_bytes(file.read_bytes()[:-7])
        for file in _files(changed):
            content = file.read_bytes()
            file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        return [
            msgspec.structs.replace(good, folder=str(tmp_path / "nowhere")),
            msgspec.structs.replace(good, digest="0" * 64),
            msgspec.structs.replace(good, version=3),
            broken,
            changed,
        ]

    async def _interrupted(
        self, server: InferenceServer, lab: ServerLab, mode: Interruption
    ) -> tuple[SampleRequest, "asyncio.Task[Sampled]"]:
        """A request that has sampled some tokens when the server is paused.

        If it ended before the pause, or had not begun, another request is sent.
        """
        for _ in range(_TRIES):
            request = ask(lab, self.long)
            task = _begin(server.sample(request))
            async with asyncio.timeout(60):
                while not (task.done() or (await server.status()).running):
                    await asyncio.sleep(0.002)
            await asyncio.sleep(0.05)
            await server.pause(mode, 60)
            if mode == "keep":
                inside = bool((await server.status()).running)
            else:
                sampled = await asyncio.wait_for(task, 60)
                inside = sampled.reason != "length" and bool(sampled.ids)
            if inside:
                return request, task
            await server.resume()
            await task
        raise AssertionError(f"no pause came within one of {_TRIES} answers of {self.long} tokens")

    async def test_sampled_ids_have_the_logprobs_of_a_forward_pass(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        request = ask(lab, 24)
        sampled = await server.sample(request)
        assert sampled.reason == "length"
        assert len(sampled.ids) == 24
        assert {*sampled.versions} == {0}
        assert sampled.digests == {0: lab.publish(0).digest}
        check_exact(lab, request, sampled)

    async def test_many_at_once_do_not_mix(self, server: InferenceServer, lab: ServerLab) -> None:
        prompts = [lab.prompt[n % 16 :] for n in range(40)]
        requests = [ask(lab, 4 + n % 5, prompt_ids=each) for n, each in enumerate(prompts)]
        answers = await asyncio.gather(*map(server.sample, requests))
        for request, sampled in zip(requests, answers, strict=True):
            assert len(sampled.ids) == request.max_tokens
            check_exact(lab, request, sampled)

    async def test_an_id_outside_the_vocabulary_is_refused_and_the_others_continue(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        request = ask(lab, 24)
        sampling = _begin(server.sample(request))
        with pytest.raises(AleError):
            await server.sample(ask(lab, 4, prompt_ids=(*lab.prompt, 2**31 - 1)))
        check_exact(lab, request, await sampling)

    async def test_the_next_turn_extends_the_ids_of_the_last(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        ids = lab.prompt
        for _ in range(3):
            request = ask(lab, 20, prompt_ids=ids)
            sampled = await server.sample(request)
            check_exact(lab, request, sampled)
            ids = (*ids, *sampled.ids, *lab.prompt[:3])

    async def test_a_stop_id_ends_the_answer_and_is_part_of_it(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        # The likeliest tokens, which are the same each time on any server.
        free = await server.sample(ask(lab, 64, temperature=0.0))
        stop = free.ids[len(free.ids) // 2]
        stopped = await server.sample(ask(lab, 64, temperature=0.0, stop_ids=(stop,)))
        assert stopped.reason == "stop"
        assert stopped.ids == free.ids[: free.ids.index(stop) + 1]

    async def test_greedy_tokens_are_the_likeliest(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        greedy = await server.sample(ask(lab, 4, temperature=0.0))
        again = await server.sample(ask(lab, 4, temperature=0.0))
        assert greedy.ids == again.ids
        ids = (*lab.prompt, *greedy.ids)
        sampled = await server.sample(ask(lab, 4))
        others = (*lab.prompt, sampled.ids[0])
        first = len(lab.prompt) - 1
        assert lab.logprobs(0, ids)[first] >= lab.logprobs(0, others)[first]

    async def test_forced_ids_are_scored_at_temperature_1(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        request = ask(lab, 1, forced_ids=lab.prompt[:9], temperature=0.5)
        scored = await server.sample(request)
        assert scored.ids == lab.prompt[:9]
        assert scored.reason == "forced"
        check_exact(lab, request, scored)

    async def test_an_answer_is_continued_where_it_was_interrupted(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        whole = await server.sample(ask(lab, 20, seed="whole"))
        request = ask(lab, 8, seed="whole", answer_ids=whole.ids[:12])
        rest = await server.sample(request)
        assert len(rest.ids) == 8
        check_exact(lab, request, rest)
        if (await server.status()).deterministic:
            assert rest.ids == whole.ids[12:]

    async def test_the_same_seed_gives_the_same_answer_where_that_is_promised(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        answers = [await server.sample(ask(lab, 12, seed="same")) for _ in range(2)]
        if (await server.status()).deterministic:
            assert answers[0] == answers[1]

    async def test_ids_that_fill_the_context_are_named(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        context = (await server.status()).context
        repeated = (lab.prompt * (context // len(lab.prompt) + 1))[: context + 1]
        with pytest.raises(ContextLengthError):
            await server.sample(ask(lab, 4, prompt_ids=repeated))

    async def test_aborted_requests_come_back_with_their_beginning(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        others = [ask(lab, self.long + n) for n in range(4)]
        tasks = [_begin(server.sample(each)) for each in others]
        request, task = await self._interrupted(server, lab, "abort")
        for each, ended in zip((*others, request), (*tasks, task), strict=True):
            partial = await asyncio.wait_for(ended, 10)
            check_exact(lab, each, partial)
            # Others may have ended before, or not have begun.
            assert partial.reason == "abort" or (each is not request and partial.reason == "length")
            assert partial.ids or each is not request
            assert partial.reason == "length" or len(partial.ids) < each.max_tokens
        await server.update(lab.publish(1))
        await server.resume()
        rest_of = ask(lab, 8, answer_ids=partial.ids)
        rest = await server.sample(rest_of)
        assert {*rest.versions} == {1}
        check_exact(lab, rest_of, rest)

    async def test_kept_requests_continue_under_new_weights_with_nothing_stale(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        if not self.keeps:
            return
        request, task = await self._interrupted(server, lab, "keep")
        held = _begin(server.sample(ask(lab, 4)))
        await asyncio.sleep(0.1)
        assert not task.done()
        assert not held.done()
        await server.update(lab.publish(1))
        await server.resume()
        sampled = await asyncio.wait_for(task, 60)
        assert len(sampled.ids) == self.long
        assert [*sampled.versions] == sorted(sampled.versions)
        assert {*sampled.versions} == {0, 1}
        check_exact(lab, request, sampled)
        assert {*(await held).versions} == {1}

    async def test_a_prompt_that_was_cached_is_computed_anew_after_an_update(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        for version in (0, 1, 2, 1):
            await server.update(lab.publish(version))
            request = ask(lab, 6, prompt_ids=lab.prompt * 3)
            sampled = await server.sample(request)
            assert {*sampled.versions} == {version}
            check_exact(lab, request, sampled)

    async def test_nothing_is_sampled_while_it_is_paused(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        await server.pause("keep", 60)
        await server.pause("keep", 60)
        assert (await server.status()).paused
        held = _begin(server.sample(ask(lab, 2)))
        await asyncio.sleep(0.1)
        assert not held.done()
        await server.resume()
        await server.resume()
        assert len((await asyncio.wait_for(held, 30)).ids) == 2
        assert not (await server.status()).paused

    async def test_a_pause_that_nobody_ends_ends_by_itself(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        await server.pause("keep", 0.2)
        assert len((await asyncio.wait_for(server.sample(ask(lab, 2)), 30)).ids) == 2

    async def test_a_request_is_aborted_by_its_id(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        request, task = await self._interrupted(server, lab, "keep")
        other = _begin(server.sample(ask(lab, 3)))
        await asyncio.sleep(0.05)
        await server.abort((request.id, "unknown"))
        partial = await asyncio.wait_for(task, 10)
        assert partial.reason == "abort"
        check_exact(lab, request, partial)
        await server.resume()
        assert (await asyncio.wait_for(other, 30)).reason == "length"

    async def test_a_cancelled_request_is_no_longer_sampled(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        _, task = await self._interrupted(server, lab, "keep")
        task.cancel()
        await asyncio.wait([task])
        await server.resume()
        async with asyncio.timeout(10):
            while (await server.status()).running:
                await asyncio.sleep(0.01)

    async def test_weights_that_can_not_be_taken_leave_the_old_ones(
        self, server: InferenceServer, lab: ServerLab, wrong: Sequence[Weights]
    ) -> None:
        for each in wrong:
            with pytest.raises(WeightsError):
                await server.prepare(each)
            with pytest.raises(WeightsError):
                await server.update(each)
        status = await server.status()
        assert (status.version, status.digest) == (0, lab.publish(0).digest)
        request = ask(lab, 4)
        check_exact(lab, request, await server.sample(request))

    async def test_prepared_weights_are_not_sampled_from_before_the_update(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        one = lab.publish(1)
        await server.prepare(one)
        request = ask(lab, 3)
        before = await server.sample(request)
        assert {*before.versions} == {0}
        check_exact(lab, request, before)
        await server.update(one)
        request = ask(lab, 3)
        after = await server.sample(request)
        assert after.digests == {1: one.digest}
        check_exact(lab, request, after)

    async def test_a_server_that_missed_an_update_samples_nothing(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        with pytest.raises(NotSampledError):
            await server.sample(ask(lab, 3, least_version=1))

    async def test_the_status_is_that_of_the_server(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        first = await server.status()
        assert first.max_running >= 1
        assert first.context >= len(lab.prompt)
        await server.update(lab.publish(5))
        later = await server.status()
        assert (later.version, later.digest) == (5, lab.publish(5).digest)
        assert (later.instance, later.since) == (first.instance, first.since)


def _begin(work: Coroutine[Any, Any, Sampled]) -> "asyncio.Task[Sampled]":
    return asyncio.ensure_future(work)
