"""The kits against a fake that speaks vLLM's API; `test_vllm_real.py` has the real one."""

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
from ale_servers.protocol import InferenceServer
from ale_servers.testing.adapters import AdapterContract
from ale_servers.testing.contract import ServerContract, ask, check_exact
from ale_servers.testing.serving import serving_app
from ale_servers.testing.tables import TableLab, write_model
from ale_vllm import server as module
from ale_vllm.options import VLLMServerOptions
from ale_vllm.server import arguments, build, variables


class Lab(TableLab):
    """A fake vLLM, and the component in front of it."""

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
    """The component; its vLLM is the fake, in this process."""
    monkeypatch.setattr(module, "python_of", lambda build: Path("/no/python"))
    async with serving_app(lab.fake.app) as url:
        options = VLLMServerOptions(model=lab.model, build="cpu", max_batch=64)
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


async def test_a_vllm_that_fails_an_update_is_started_again(llm: HostedLLM, lab: Lab) -> None:
    gateway: Gateway = llm.server
    before = await gateway.status()
    lab.fake.refuses = "/finish_weight_update"
    with pytest.raises(LLMError, match="was started again"):
        await gateway.update(lab.publish(1))
    await gateway.started()
    after = await gateway.status()
    assert after.instance != before.instance
    assert (after.version, after.digest, after.paused) == (0, before.digest, False)
    request = ask(lab, 4)
    check_exact(lab, request, await gateway.sample(request))


async def test_an_answer_says_nothing_of_weights_that_were_changed_under_its_adapter(
    llm: HostedLLM, lab: Lab
) -> None:
    await llm.server.update(lab.publish_adapter("one", 1))
    answer = asyncio.ensure_future(llm.server.sample(ask(lab, 300, adapter="one")))
    while not lab.fake.sampler._jobs:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    llm.server._now = (await llm.server.status()).adapters["one"]
    with pytest.raises(LLMError, match="under the adapter were changed"):
        await answer


def test_the_command_line_asks_for_the_log_probabilities_of_the_sampler(lab: Lab) -> None:
    options = VLLMServerOptions(model=lab.model, adapters=3, arguments=("--seed=1",))
    model = Model(folder=lab.model, name="m", context=99, max_running=4, start_s=1, adapters=3)
    given = arguments(options, model, "cpu", "http://127.0.0.1:4")
    wanted = (
        "--logprobs-mode=processed_logprobs",
        "--generation-config=vllm",
        "--enable-scale-out",
    )
    assert {*wanted, "--port=4", "--dtype=float32", "--max-loras=6", "--seed=1"} <= {*given}
    assert "--block-size=32" not in arguments(options, model, "cuda", "http://127.0.0.1:4")


def test_variables_of_this_environment_do_not_reach_vllm(lab: Lab) -> None:
    options = VLLMServerOptions(model=lab.model)
    given = variables(options, "cpu", {"PYTHONPATH": "/here", "A": "b"})
    assert "PYTHONPATH" not in given
    assert (given["A"], given["VLLM_SERVER_DEV_MODE"]) == ("b", "1")
