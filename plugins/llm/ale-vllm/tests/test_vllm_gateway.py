"""The kits against a fake that speaks vLLM's API; `test_vllm_real.py` has the real one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ale.errors import InputError, LLMError
from ale.plugin import BuildContext
from ale.protocols import LLM
from ale.testing.llm import LLMContract
from ale.testing.waiting import until
from ale_servers.gateway import Model
from ale_servers.hosted import HostedLLM
from ale_servers.testing.adapters import AdapterContract
from ale_servers.testing.contract import ask
from ale_servers.testing.gateways import GatewayContract, GatewayLab, OfGateway, hosted
from ale_vllm import server as module
from ale_vllm.options import VLLMServerOptions
from ale_vllm.server import arguments, build, variables


@pytest.fixture
def lab(tmp_path: Path, fake: Any) -> GatewayLab:
    return GatewayLab(tmp_path, fake)


@pytest_asyncio.fixture
async def llm(lab: GatewayLab, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostedLLM]:
    """The component; its VLLM is the fake."""
    monkeypatch.setattr(module, "python_of", lambda build: Path("/no/python"))
    options = VLLMServerOptions(model=lab.model, build="cpu", max_batch=64)
    async with hosted(build(options, BuildContext()), lab.fake) as made:
        yield made


class TestServer(GatewayContract):
    updates = "/finish_weight_update"


class TestAdapters(OfGateway, AdapterContract): ...


class TestLLM(LLMContract):
    @pytest.fixture
    def llm(self, llm: LLM) -> LLM:
        return llm


async def test_an_answer_says_nothing_of_weights_that_were_changed_under_its_adapter(
    llm: HostedLLM, lab: GatewayLab
) -> None:
    await llm.server.update(lab.publish_adapter("one", 1))
    answer = asyncio.ensure_future(llm.server.sample(ask(lab, 300, adapter="one")))
    await until(lambda: lab.fake.sampler._jobs, pause_s=0.001)
    llm.server._now = (await llm.server.status()).adapters["one"]
    with pytest.raises(LLMError, match="under the adapter were changed"):
        await answer


def test_the_command_line_asks_for_the_log_probabilities_of_the_sampler(lab: GatewayLab) -> None:
    options = VLLMServerOptions(model=lab.model, adapters=3, arguments=("--seed=1",))
    model = Model(
        folder=lab.model, name="m", context=99, vocabulary=32, max_running=4, start_s=1, adapters=3
    )
    given = arguments(options, model, "cpu", "http://127.0.0.1:4")
    wanted = (
        "--logprobs-mode=processed_logprobs",
        "--generation-config=vllm",
        "--enable-scale-out",
    )
    assert {*wanted, "--port=4", "--dtype=float32", "--max-loras=6", "--seed=1"} <= {*given}
    assert "--block-size=32" not in arguments(options, model, "cuda", "http://127.0.0.1:4")


def test_a_share_of_the_gpu_is_left_to_others(lab: GatewayLab) -> None:
    options = VLLMServerOptions(model=lab.model, gpu_memory=0.4)
    model = Model(folder=lab.model, name="m", context=99, vocabulary=32, max_running=4, start_s=1)
    for build_, said in (("cuda", True), ("cpu", False)):
        given = arguments(options, model, build_, "http://127.0.0.1:4")  # type: ignore[arg-type]
        assert ("--gpu-memory-utilization=0.4" in given) is said


def test_variables_of_this_environment_do_not_reach_vllm(lab: GatewayLab) -> None:
    options = VLLMServerOptions(model=lab.model)
    given = variables(options, "cpu", {"PYTHONPATH": "/here", "A": "b"})
    assert "PYTHONPATH" not in given
    assert (given["A"], given["VLLM_SERVER_DEV_MODE"]) == ("b", "1")


def test_on_a_gpu_float32_is_computed_exactly(lab: GatewayLab) -> None:
    options = VLLMServerOptions(model=lab.model, dtype="float32")
    assert variables(options, "cuda", {})["TRITON_F32_DEFAULT"] == "ieee"
    assert "TRITON_F32_DEFAULT" not in variables(VLLMServerOptions(model=lab.model), "cuda", {})


def test_adapters_in_float32_are_refused_on_a_gpu(lab: GatewayLab) -> None:
    options = VLLMServerOptions(model=lab.model, build="cuda", dtype="float32", adapters=1)
    with pytest.raises(InputError, match=r"llm\.dtype: vLLM samples adapters on a GPU"):
        build(options, BuildContext())
