# ruff: noqa: D102, ASYNC110, ASYNC240 - a name says what a test does
"""The tests that every inference server with adapters, and every client of one, must pass."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import msgspec
import pytest
import pytest_asyncio

from ale_servers.protocol import InferenceServer, NotSampledError, WeightsError
from ale_servers.records import Sampled, SampleRequest, Weights
from ale_servers.testing.contract import Kit, ServerLab, ask, check_exact


class AdapterLab(ServerLab, Protocol):
    """What the kit knows about adapters over the weights of version 0."""

    def publish_adapter(self, name: str, version: int) -> Weights:
        """Write an adapter of this version into a folder; each version differs."""
        ...

    def adapter_logprobs(self, name: str, version: int, ids: tuple[int, ...]) -> list[float]:
        """As `ServerLab.logprobs`, with an adapter."""
        ...


class _Of:
    """The lab of one adapter, for `check_exact`."""

    def __init__(self, lab: AdapterLab, name: str) -> None:
        self._lab, self._name = lab, name
        self.prompt, self.stop_id, self.publish = lab.prompt, lab.stop_id, lab.publish
        self.tolerance = lab.tolerance

    def logprobs(self, version: int, ids: tuple[int, ...]) -> list[float]:
        return self._lab.adapter_logprobs(self._name, version, ids)


def check_adapter(lab: AdapterLab, request: SampleRequest, sampled: Sampled) -> None:
    """Every token has the log-probability of a forward pass with its version of the adapter."""
    check_exact(_Of(lab, request.adapter), request, sampled)


@pytest.mark.asyncio
class AdapterContract(Kit):
    """Override `bare` and `lab`. The server has room for two adapters."""

    long = 300
    """Tokens of an answer during which an adapter is swapped."""

    @pytest_asyncio.fixture
    async def server(
        self, bare: InferenceServer, lab: AdapterLab
    ) -> AsyncIterator[InferenceServer]:
        """The server with the weights of version 0 and no adapter."""
        await bare.update(lab.publish(0))
        await bare.resume()
        yield bare
        await bare.abort()

    async def test_several_adapters_over_one_model_are_sampled_at_once(
        self, server: InferenceServer, lab: AdapterLab
    ) -> None:
        for name, version in (("one", 1), ("two", 4)):
            await server.update(lab.publish_adapter(name, version))
        names = ("one", "two", "") * 4
        asked = [ask(lab, 12, adapter=name) for name in names]
        answers = await asyncio.gather(*map(server.sample, asked))
        for request, sampled in zip(asked, answers, strict=True):
            if request.adapter:
                assert {*sampled.versions} == {1 if request.adapter == "one" else 4}
                check_adapter(lab, request, sampled)
            else:
                assert {*sampled.versions} == {0}
                check_exact(lab, request, sampled)
        held = (await server.status()).adapters
        assert {name: each.version for name, each in held.items()} == {"one": 1, "two": 4}
        assert held["one"].digest == lab.publish_adapter("one", 1).digest

    async def test_an_adapter_is_swapped_in_the_middle_of_answers(
        self, server: InferenceServer, lab: AdapterLab
    ) -> None:
        for name in ("one", "two"):
            await server.update(lab.publish_adapter(name, 1))
        asked = [ask(lab, self.long, adapter=name) for name in ("one", "two", "one", "two")]
        running = [asyncio.ensure_future(server.sample(each)) for each in asked]
        async with asyncio.timeout(60):
            while (await server.status()).running < len(asked) and not any(
                task.done() for task in running
            ):
                await asyncio.sleep(0.01)
        assert not all(task.done() for task in running)
        await server.update(lab.publish_adapter("one", 2))
        request = ask(lab, 8, adapter="one")
        after = await server.sample(request)
        assert {*after.versions} == {2}
        check_adapter(lab, request, after)
        for each, sampled in zip(asked, await asyncio.gather(*running), strict=True):
            assert {*sampled.versions} <= ({1, 2} if each.adapter == "one" else {1})
            assert len(sampled.ids) == self.long
            check_adapter(lab, each, sampled)

    async def test_forced_ids_are_scored_with_the_adapter(
        self, server: InferenceServer, lab: AdapterLab
    ) -> None:
        await server.update(lab.publish_adapter("one", 3))
        request = ask(lab, 1, forced_ids=lab.prompt[:9], adapter="one")
        scored = await server.sample(request)
        assert scored.versions == (3,) * 9
        check_adapter(lab, request, scored)

    async def test_an_adapter_that_can_not_be_taken_leaves_the_old_one(
        self, server: InferenceServer, lab: AdapterLab, tmp_path: Path
    ) -> None:
        await server.update(lab.publish_adapter("one", 1))
        broken = lab.publish_adapter("one", 2)
        for file in Path(broken.folder).iterdir():
            if file.suffix != ".json":
                file.write_bytes(file.read_bytes()[:-7])
        for wrong in (
            broken,
            msgspec.structs.replace(broken, folder=str(tmp_path / "nowhere")),
            msgspec.structs.replace(broken, digest="0" * 64),
        ):
            with pytest.raises(WeightsError):
                await server.update(wrong)
        request = ask(lab, 8, adapter="one")
        sampled = await server.sample(request)
        assert {*sampled.versions} == {1}
        check_adapter(lab, request, sampled)

    async def test_nothing_is_sampled_from_an_adapter_that_is_missing_or_old(
        self, server: InferenceServer, lab: AdapterLab
    ) -> None:
        with pytest.raises(NotSampledError):
            await server.sample(ask(lab, 4, adapter="one"))
        await server.update(lab.publish_adapter("one", 1))
        with pytest.raises(NotSampledError):
            await server.sample(ask(lab, 4, adapter="one", least_version=2))

    async def test_new_weights_remove_the_adapters_over_the_old_ones(
        self, server: InferenceServer, lab: AdapterLab
    ) -> None:
        await server.update(lab.publish_adapter("one", 1))
        await server.update(lab.publish(5))
        assert (await server.status()).adapters == {}
        with pytest.raises(NotSampledError):
            await server.sample(ask(lab, 4, adapter="one"))
