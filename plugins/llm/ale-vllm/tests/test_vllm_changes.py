"""What a gateway says while weights, adapters and the program itself change, against a fake."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ale.errors import LLMError
from ale.plugin import BuildContext
from ale.testing.waiting import until
from ale_servers.gateway import Gateway
from ale_servers.hosted import HostedLLM
from ale_servers.protocol import NotSampledError
from ale_servers.testing.contract import ask
from ale_servers.testing.serving import serving_app
from ale_servers.testing.tables import TableLab, write_model
from ale_vllm import server as module
from ale_vllm.options import VLLMServerOptions
from ale_vllm.server import build


class Lab(TableLab):
    """A fake vLLM, its process, and the gateway in front of it."""

    def __init__(self, folder: Path, fake: Any) -> None:
        super().__init__(folder)
        self.fake = fake
        self.model = folder / "model"
        write_model(self.model)
        self.living = self.most_living = self.starts = 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.on_start: Callable[[], None] = lambda: None

    @asynccontextmanager
    async def run(self, on_start: Callable[[], None]) -> AsyncIterator[None]:
        self.living += 1
        self.starts += 1
        self.most_living = max(self.most_living, self.living)
        self.on_start = on_start
        self.crash()
        yield
        await self.may_end.wait()
        self.living -= 1

    def crash(self) -> None:
        """It has nothing of what it had, as after a crash and another start."""
        self.fake.__init__()
        self.on_start()


@pytest.fixture
def lab(tmp_path: Path, fake: Any) -> Lab:
    return Lab(tmp_path, fake)


@pytest_asyncio.fixture
async def llm(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostedLLM]:
    monkeypatch.setattr(module, "python_of", lambda build: Path("/no/python"))
    async with serving_app(lab.fake.app) as url:
        options = VLLMServerOptions(model=lab.model, build="cpu", max_batch=64)
        made = build(options, BuildContext())
        made.asked.url = url
        made.server._run = lab.run
        yield made
        await made.aclose()


@pytest.fixture
def gateway(llm: HostedLLM) -> Gateway:
    return llm.server


async def test_nobody_is_answered_until_a_program_with_half_of_some_weights_has_ended(
    gateway: Gateway, lab: Lab
) -> None:
    await gateway.status()
    lab.fake.refuses = "/finish_weight_update"
    lab.may_end.clear()
    updating = asyncio.create_task(gateway.update(lab.publish(1)))
    await until(lambda: gateway._running is None, pause_s=0.001)
    with pytest.raises(NotSampledError, match="is starting"):
        await gateway.sample(ask(lab, 4))
    others = [asyncio.create_task(gateway.started()) for _ in range(3)]
    await asyncio.sleep(0.05)
    lab.may_end.set()
    with pytest.raises(LLMError, match="was started again"):
        await updating
    await asyncio.gather(*others)
    assert (lab.starts, lab.most_living) == (2, 1)


async def test_scores_of_weights_that_change_meanwhile_are_asked_for_again(
    gateway: Gateway, lab: Lab
) -> None:
    await gateway.status()
    request = ask(lab, 1, forced_ids=lab.prompt * 20)
    scoring = asyncio.create_task(gateway.sample(request))
    await until(lambda: lab.fake.sampler._jobs, pause_s=0.001)
    await gateway.update(lab.publish(1))
    with pytest.raises(NotSampledError, match="changed while it scored"):
        await scoring


async def test_scoring_that_is_interrupted_is_asked_for_again(gateway: Gateway, lab: Lab) -> None:
    await gateway.status()
    scoring = asyncio.create_task(gateway.sample(ask(lab, 1, forced_ids=lab.prompt * 20)))
    await until(lambda: lab.fake.sampler._jobs, pause_s=0.001)
    await gateway.pause("abort", 60)
    with pytest.raises(NotSampledError, match="interrupted while it scored"):
        await scoring


async def test_a_program_that_ends_while_it_starts_is_an_error_for_those_who_wait(
    gateway: Gateway, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_ready() -> bool:
        return False

    monkeypatch.setattr(gateway._program, "is_ready", is_ready)
    waiting = asyncio.create_task(gateway.started())
    await until(lambda: gateway._ready is not None, pause_s=0.001)
    deadline = gateway._deadline
    await asyncio.sleep(0.02)  # it waits for the program
    lab.crash()
    with pytest.raises(LLMError, match="ended while it started") as caught:
        await waiting
    assert caught.value.transient
    assert gateway._deadline == deadline, "each try would have all the time"
    cancelled = asyncio.create_task(gateway.started())
    await asyncio.sleep(0.02)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def test_an_adapter_that_was_prepared_before_a_crash_is_loaded_again(
    gateway: Gateway, lab: Lab
) -> None:
    weights = lab.publish_adapter("one", 1)
    await gateway.prepare(weights)
    lab.crash()
    await gateway.update(weights)
    answer = await gateway.sample(ask(lab, 4, adapter="one"))
    assert {*answer.versions} == {1}


async def test_weights_are_taken_though_the_program_has_lost_an_adapter(
    gateway: Gateway, lab: Lab
) -> None:
    await gateway.update(lab.publish_adapter("one", 1))
    lab.fake.sampler.adapters.clear()
    await gateway.update(lab.publish(1))
    answer = await gateway.sample(ask(lab, 4))
    assert {*answer.versions} == {1}
    assert lab.starts == 1


async def test_a_third_version_of_an_adapter_waits_for_answers_of_the_first(
    gateway: Gateway, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM would give up one of three that it has room for two of, and read its folder again."""
    had: list[int] = []
    load = gateway._program.load_adapter

    async def load_adapter(name: str, folder: Path) -> None:
        had.append(len(lab.fake.sampler.adapters))
        await load(name, folder)

    monkeypatch.setattr(gateway._program, "load_adapter", load_adapter)
    await gateway.update(lab.publish_adapter("one", 1))
    answering = asyncio.create_task(gateway.sample(ask(lab, 1500, adapter="one")))
    await until(lambda: lab.fake.sampler._jobs, pause_s=0.001)
    await gateway.update(lab.publish_adapter("one", 2))
    await gateway.update(lab.publish_adapter("one", 3))
    assert had == [0, 1, 1]
    assert len((await answering).ids) == 1500
