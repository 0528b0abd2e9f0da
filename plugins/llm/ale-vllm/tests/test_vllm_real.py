"""The kits of inference servers against a real vLLM on this machine: on its CPU, or its GPU where
$ALE_VLLM_BUILD is cuda.

Torch and the tiny model are imported in fixtures: the package's other tests do without.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from ale.plugin import BuildContext
from ale_servers.address import Address
from ale_servers.channel import WeightFolder
from ale_servers.client import Connections, HTTPServer
from ale_servers.protocol import InferenceServer
from ale_servers.records import Entry, Weights
from ale_servers.testing.adapters import AdapterContract
from ale_servers.testing.contract import (
    ServerContract,
    ServerLab,
    ask,
    check_exact,
    wrong_in_memory,
)
from ale_servers.testing.serving import serving
from ale_vllm.options import VLLMServerOptions
from ale_vllm.server import build

pytestmark = pytest.mark.long
START_S = 1800
"""On a busy machine."""
HALF_PRECISION = 0.2
"""Greatest error of a log-probability in bfloat16; another version's are off by more."""
SERVER: dict[str, Any] = {
    "build": os.environ.get("ALE_VLLM_BUILD", "cpu"),
    # Log-probabilities are compared with those of a full forward.
    "dtype": "float32",
    "start_s": START_S,
}
ON_GPU = SERVER["build"] == "cuda"
if ON_GPU:
    # With this size given, vLLM does not measure how much memory is free, which others may change.
    SERVER |= {"gpu_memory": 0.1, "arguments": ("--kv-cache-memory-bytes=2147483648",)}
else:
    # Two workers, each with a part of every matrix; the runs in test_vllm_run.py have one.
    SERVER |= {"arguments": ("--tensor-parallel-size=2",)}


def tiny(seed: int) -> Any:
    """A tiny policy with tied embeddings; vLLM on a CPU crashes with heads of 16."""
    from ale_llm_policy.pretrained import TinyShape
    from ale_llm_policy.testing import new_policy

    shape = TinyShape(
        layers=2, width=64, heads=2, kv_heads=1, head_dim=32, mlp=96, vocabulary=330, context=1024
    )
    return new_policy(seed=seed, shape=shape)


def adapted(name: str, version: int) -> Any:
    """The policy of version 0 with an adapter that is not zero."""
    import torch
    from peft import LoraConfig, inject_adapter_in_model

    policy = tiny(0)
    torch.manual_seed(sum(name.encode()) + version)
    inject_adapter_in_model(
        LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"), policy.model
    )
    with torch.no_grad():
        for part, weight in policy.model.named_parameters():
            if "lora_B" in part:
                weight.normal_(std=0.2)
    return policy


def logprobs(policy: Any, ids: tuple[int, ...]) -> list[float]:
    import torch

    from ale_llm_policy.testing import forward_logits

    logp = forward_logits(policy, ids[:1], ids[1:]).log_softmax(-1)
    found: list[float] = logp.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
    return found


class Lab:
    """Each version differs in every tensor, the embeddings included."""

    stop_id = 7
    prompt = tuple(range(20, 60))
    tolerance = 1e-4

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def publish(self, version: int) -> Weights:
        from ale_llm_policy.pretrained import weights

        tensors = dict(tiny(version).model.named_parameters())

        def write(folder: Path) -> str:
            weights.write(folder, tensors)
            return str(weights.digest(tensors))

        return WeightFolder(self._folder, keep=16).publish(version, write)

    def logprobs(self, version: int, ids: tuple[int, ...]) -> list[float]:
        return logprobs(tiny(version), ids)

    def publish_adapter(self, name: str, version: int) -> Weights:
        from ale_llm_policy import adapters

        model = adapted(name, version).model
        channel = WeightFolder(self._folder / name, keep=16)
        made = channel.publish(version, lambda folder: adapters.write(folder, model))
        return msgspec.structs.replace(made, adapter=name, run="the run")

    def adapter_logprobs(self, name: str, version: int, ids: tuple[int, ...]) -> list[float]:
        return logprobs(adapted(name, version), ids)


@contextmanager
def started(folder: Path, **options: Any) -> Iterator[str]:
    """The URL of a vLLM behind the protocol, in an event loop of its own."""
    tiny(0).save(folder / "model")
    log = folder / "vllm.log"
    given = VLLMServerOptions(model=folder / "model", log=log, **{**SERVER, **options})
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def call(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(timeout=START_S + 60)

    llm = build(given, BuildContext())
    try:
        call(llm.server.started())
        http = serving(llm.server)
        yield call(http.__aenter__())
        call(http.__aexit__(None, None, None))
    finally:
        print(log.read_text()[-6000:])
        call(llm.aclose())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One vLLM for all tests; on a GPU those with adapters have another one."""
    with started(tmp_path_factory.mktemp("vllm"), adapters=0 if ON_GPU else 2) as url:
        yield url


@pytest.fixture(scope="module")
def vllm_with_adapters(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """On a GPU, vLLM samples adapters in half precision only."""
    if not ON_GPU:
        yield request.getfixturevalue("vllm")
        return
    with started(tmp_path_factory.mktemp("vllm"), adapters=2, dtype="bfloat16") as url:
        yield url


class Real:
    """The server, and what the kits know of it."""

    @pytest.fixture
    def url(self, vllm: str) -> str:
        return vllm

    @pytest.fixture
    def lab(self, tmp_path: Path) -> Any:
        return Lab(tmp_path / "weights")

    @pytest_asyncio.fixture
    async def bare(self, url: str) -> AsyncIterator[InferenceServer]:
        connections = Connections()
        yield HTTPServer(Entry(url=url), connections)
        await connections.aclose()


class TestVLLM(Real, ServerContract):
    async def test_more_long_prompts_than_vllm_computes_at_once(
        self, server: InferenceServer, lab: ServerLab
    ) -> None:
        rows = [tuple(10 + (3 * i + row) % 300 for i in range(300)) for row in range(64)]
        asked = [ask(lab, 4, prompt_ids=ids, seed=str(row)) for row, ids in enumerate(rows)]
        answers = await asyncio.gather(*map(server.sample, asked))
        for request, sampled in zip(asked, answers, strict=True):
            check_exact(lab, request, sampled)


class ChannelLab(Lab):
    """Each version stays in a channel of its own."""

    def __init__(self, folder: Path, channel: Callable[[], Any]) -> None:
        super().__init__(folder)
        self._channel = channel
        self.channels: list[Any] = []

    def publish(self, version: int) -> Weights:
        self.channels.append(self._channel())
        return self.replace(version)

    def replace(self, version: int) -> Weights:
        """Publish a version in place of the last one."""
        tensors = dict(tiny(version).model.named_parameters())
        made: Weights = self.channels[-1].publish(version, tensors)
        return made


class OfChannel(Real):
    def channel(self) -> Any:
        raise NotImplementedError

    @pytest.fixture
    def lab(self, tmp_path: Path) -> Iterator[Any]:
        lab = ChannelLab(tmp_path / "weights", self.channel)
        yield lab
        for each in lab.channels:
            each.remove()

    @pytest.fixture
    def wrong(self, lab: ChannelLab) -> list[Weights]:
        good, replaced = lab.publish(1), lab.publish(2)
        lab.replace(3)
        return self.wrong_of(good, replaced)

    def wrong_of(self, good: Weights, replaced: Weights) -> list[Weights]:
        """Weights that no server can take, of some that are there and some that were replaced."""
        raise NotImplementedError


class InMemory(OfChannel):
    device: str | None = None

    def channel(self) -> Any:
        import torch

        from ale_llm_policy.shared import SharedWeights

        return SharedWeights(None if self.device is None else torch.device(self.device))

    def wrong_of(self, good: Weights, replaced: Weights) -> list[Weights]:
        return wrong_in_memory(good, replaced)


class TestSharedMemory(InMemory, ServerContract):
    pass


@pytest.mark.skipif(not ON_GPU, reason="not on a GPU: ALE_VLLM_BUILD=cuda")
class TestCudaIPC(InMemory, ServerContract):
    device = "cuda"


class TestGloo(OfChannel, ServerContract):
    """NCCL needs two GPUs."""

    def channel(self) -> Any:
        import torch

        from ale_llm_policy.broadcast import BroadcastWeights

        return BroadcastWeights("gloo", torch.device("cpu"), Address("127.0.0.1"))

    def wrong_of(self, good: Weights, replaced: Weights) -> list[Weights]:
        return [msgspec.structs.replace(good, digest="0" * 64), replaced]


class TestAdapters(Real, AdapterContract):
    @pytest.fixture
    def url(self, vllm_with_adapters: str) -> str:
        return vllm_with_adapters

    @pytest.fixture
    def lab(self, tmp_path: Path) -> Any:
        lab = Lab(tmp_path / "weights")
        if ON_GPU:
            lab.tolerance = HALF_PRECISION
        return lab
