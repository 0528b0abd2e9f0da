"""A tiny model that vLLM can serve, and one vLLM for all tests that need it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from ale_llm_policy.pretrained import TinyShape, TorchPolicy, weights
from ale_llm_policy.testing import forward_logits, new_policy

from ale.plugin import BuildContext
from ale_servers.channel import WeightFolder
from ale_servers.records import Weights
from ale_servers.testing.serving import serving
from ale_vllm.options import VLLMServerOptions
from ale_vllm.server import VLLMServer

SHAPE = TinyShape(
    layers=2, width=64, heads=2, kv_heads=1, head_dim=32, mlp=96, vocabulary=330, context=1024
)
"""vLLM on a CPU crashes with heads of 16."""


class Lab:
    """Weights of a tiny policy with tied embeddings: each version differs in every tensor."""

    stop_id = 7
    prompt = tuple(range(20, 60))

    def __init__(self, folder: Path) -> None:
        self._folder = WeightFolder(folder, keep=16)
        self._policies: dict[int, TorchPolicy] = {}

    def policy(self, version: int) -> TorchPolicy:
        if version not in self._policies:
            self._policies[version] = new_policy(seed=version, shape=SHAPE)
        return self._policies[version]

    def publish(self, version: int) -> Weights:
        tensors = dict(self.policy(version).model.named_parameters())

        def write(folder: Path) -> str:
            weights.write(folder, tensors)
            return weights.digest(tensors)

        return self._folder.publish(version, write)

    def logprobs(self, version: int, ids: tuple[int, ...]) -> list[float]:
        return self.logprobs_of(self.policy(version), ids)

    def logprobs_of(self, policy: TorchPolicy, ids: tuple[int, ...]) -> list[float]:
        logp = forward_logits(policy, ids[:1], ids[1:]).log_softmax(-1)
        found: list[float] = logp.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
        return found


@contextmanager
def served(make: Callable[[], VLLMServer]) -> Iterator[tuple[str, VLLMServer]]:
    """A server behind HTTP, in an event loop of its own that outlives those of the tests."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def call(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(timeout=600)

    try:
        llm = make()
        try:
            call(llm.server.started())
            http = serving(llm.server)
            url = call(http.__aenter__())
            yield url, llm
            call(http.__aexit__(None, None, None))
        finally:
            call(llm.aclose())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real vLLM behind the protocol."""
    folder = tmp_path_factory.mktemp("vllm")
    new_policy(seed=0, shape=SHAPE).save(folder / "model")
    options = VLLMServerOptions(
        model=folder / "model", build="cpu", adapters=2, log=folder / "vllm.log"
    )
    try:
        with served(lambda: VLLMServer(options, BuildContext())) as (url, _):
            yield url
    except BaseException:
        print((folder / "vllm.log").read_text()[-6000:])
        raise
