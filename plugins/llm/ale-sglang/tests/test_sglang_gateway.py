"""The kits against a fake that speaks SGLang's API. No real SGLang was ever run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ale.errors import LLMError
from ale.plugin import BuildContext
from ale.protocols import LLM
from ale.testing.llm import LLMContract
from ale_servers.gateway import Gateway, Model
from ale_servers.hosted import HostedLLM
from ale_servers.protocol import InferenceServer, NotSampledError
from ale_servers.testing.adapters import AdapterContract
from ale_servers.testing.contract import ServerContract, ask, check_exact
from ale_servers.testing.serving import serving_app
from ale_servers.testing.tables import TableLab, write_model
from ale_sglang import server as module
from ale_sglang.options import SGLangServerOptions
from ale_sglang.server import arguments, build


class Lab(TableLab):
    """A fake SGLang, and the component in front of it."""

    def __init__(self, folder: Path, fake: Any) -> None:
        super().__init__(folder)
        self.fake = fake
        write_model(folder / "model")
        self.model = folder / "model"


@pytest.fixture
def lab(tmp_path: Path, fake: Any) -> Lab:
    return Lab(tmp_path, fake)


@pytest_asyncio.fixture
async def llm(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostedLLM]:
    """The component; its SGLang is the fake, in this process."""
    monkeypatch.setattr(module, "python", lambda: Path("/no/python"))
    async with serving_app(lab.fake.app) as url:
        options = SGLangServerOptions(model=lab.model, max_batch=64)
        made = build(options, BuildContext())
        made.asked.url = url

        @asynccontextmanager
        async def run(on_start: Any) -> AsyncIterator[None]:
            lab.fake.__init__()
            on_start()
            yield

        made.server._run = run
        yield made
        await made.aclose()


class Fake:
    @pytest.fixture
    def lab(self, tmp_path: Path, fake: Any) -> Lab:
        return Lab(tmp_path, fake)

    @pytest.fixture
    def bare(self, llm: HostedLLM) -> InferenceServer:
        return llm.server


class TestServer(Fake, ServerContract): ...


class TestAdapters(Fake, AdapterContract): ...


class TestLLM(LLMContract):
    @pytest.fixture
    def llm(self, llm: LLM) -> LLM:
        return llm


async def test_an_sglang_that_fails_an_update_is_started_again(llm: HostedLLM, lab: Lab) -> None:
    gateway: Gateway = llm.server
    before = await gateway.status()
    lab.fake.refuses = "/update_weights_from_disk"
    with pytest.raises(LLMError, match="was started again"):
        await gateway.update(lab.publish(1))
    await gateway.started()
    after = await gateway.status()
    assert after.instance != before.instance
    assert (after.version, after.digest, after.paused) == (0, before.digest, False)
    request = ask(lab, 4)
    check_exact(lab, request, await gateway.sample(request))


async def test_scoring_that_is_interrupted_is_asked_for_again(llm: HostedLLM, lab: Lab) -> None:
    await llm.server.status()
    request = ask(lab, 1, forced_ids=lab.prompt * 20)
    scoring = asyncio.create_task(llm.server.sample(request))
    async with asyncio.timeout(60):
        while not lab.fake.sampler._jobs:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await llm.server.pause("abort", 60)
    with pytest.raises(NotSampledError, match="interrupted while it scored"):
        await scoring


async def test_top_p_is_refused_as_its_log_probabilities_would_be_wrong(
    llm: HostedLLM, lab: Lab
) -> None:
    with pytest.raises(LLMError, match="before top-p"):
        await llm.server.sample(ask(lab, 4, top_p=0.9))


def test_the_command_line(lab: Lab) -> None:
    options = SGLangServerOptions(model=lab.model, adapters=3, arguments=("--tp-size=2",))
    model = Model(folder=lab.model, name="m", context=99, max_running=4, start_s=1, adapters=3)
    given = arguments(options, model, "http://127.0.0.1:4")
    wanted = ("--port=4", "--context-length=100", "--max-loras-per-batch=6", "--tp-size=2")
    assert {*wanted} <= {*given}
