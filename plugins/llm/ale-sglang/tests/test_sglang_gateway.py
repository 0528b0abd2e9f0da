"""The kits against a fake that speaks SGLang's API. No real SGLang was ever run."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ale.errors import LLMError
from ale.plugin import BuildContext
from ale.protocols import LLM
from ale.testing.llm import LLMContract
from ale.testing.waiting import until
from ale_servers.gateway import Model
from ale_servers.hosted import HostedLLM
from ale_servers.protocol import NotSampledError
from ale_servers.testing.adapters import AdapterContract
from ale_servers.testing.contract import ask
from ale_servers.testing.gateways import GatewayContract, GatewayLab, OfGateway, hosted
from ale_sglang import server as module
from ale_sglang.options import SGLangServerOptions
from ale_sglang.server import arguments, build


@pytest.fixture
def lab(tmp_path: Path, fake: Any) -> GatewayLab:
    return GatewayLab(tmp_path, fake)


@pytest_asyncio.fixture
async def llm(lab: GatewayLab, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostedLLM]:
    """The component; its SGLang is the fake."""
    monkeypatch.setattr(module, "python", lambda: Path("/no/python"))
    options = SGLangServerOptions(model=lab.model, max_batch=64)
    async with hosted(build(options, BuildContext()), lab.fake) as made:
        yield made


class TestServer(GatewayContract):
    updates = "/update_weights_from_disk"


class TestAdapters(OfGateway, AdapterContract): ...


class TestLLM(LLMContract):
    @pytest.fixture
    def llm(self, llm: LLM) -> LLM:
        return llm


async def test_scoring_that_is_interrupted_is_asked_for_again(
    llm: HostedLLM, lab: GatewayLab
) -> None:
    await llm.server.status()
    request = ask(lab, 1, forced_ids=lab.prompt * 20)
    scoring = asyncio.create_task(llm.server.sample(request))
    await until(lambda: lab.fake.sampler._jobs, pause_s=0.001)
    await llm.server.pause("abort", 60)
    with pytest.raises(NotSampledError, match="interrupted while it scored"):
        await scoring


async def test_top_p_is_refused_as_its_log_probabilities_would_be_wrong(
    llm: HostedLLM, lab: GatewayLab
) -> None:
    with pytest.raises(LLMError, match="before top-p"):
        await llm.server.sample(ask(lab, 4, top_p=0.9))


def test_the_command_line(lab: GatewayLab) -> None:
    options = SGLangServerOptions(model=lab.model, adapters=3, arguments=("--tp-size=2",))
    model = Model(
        folder=lab.model, name="m", context=99, vocabulary=32, max_running=4, start_s=1, adapters=3
    )
    given = arguments(options, model, "http://127.0.0.1:4")
    wanted = ("--port=4", "--context-length=100", "--max-loras-per-batch=6", "--tp-size=2")
    assert {*wanted} <= {*given}
