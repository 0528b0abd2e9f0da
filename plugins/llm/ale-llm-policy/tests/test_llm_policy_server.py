"""The kit of inference servers, for both decoders."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch

from ale_llm_policy.build import wrap_policy
from ale_llm_policy.model import PolicyLLM
from ale_llm_policy.options import PolicyOptions
from ale_llm_policy.pretrained import TorchPolicy, weights
from ale_llm_policy.testing import forward_logits, new_policy
from ale_servers.channel import WeightFolder
from ale_servers.protocol import InferenceServer
from ale_servers.records import Weights
from ale_servers.testing.contract import ServerContract, ServerLab


class Lab:
    """Weights of a tiny policy: each version is of another seed, in every tensor."""

    stop_id = 7
    prompt = tuple(range(20, 60))

    def __init__(self, folder: Path) -> None:
        self._folder = WeightFolder(folder, keep=8)
        self._policies: dict[int, TorchPolicy] = {}

    def policy(self, version: int) -> TorchPolicy:
        if version not in self._policies:
            self._policies[version] = new_policy(seed=version)
        return self._policies[version]

    def publish(self, version: int) -> Weights:
        tensors = dict(self.policy(version).model.named_parameters())

        def write(folder: Path) -> str:
            weights.write(folder, tensors)
            return weights.digest(tensors)

        return self._folder.publish(version, write)

    def logprobs(self, version: int, ids: tuple[int, ...]) -> list[float]:
        logp = forward_logits(self.policy(version), ids[:1], ids[1:]).log_softmax(-1)
        found: list[float] = logp.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
        return found


class TestPacked(ServerContract):
    decoder = "packed"

    @pytest.fixture
    def lab(self, tmp_path: Path) -> ServerLab:
        return Lab(tmp_path / "weights")

    @pytest_asyncio.fixture
    async def llm(self) -> AsyncIterator[PolicyLLM]:
        llm = wrap_policy(new_policy(seed=0), PolicyOptions(decoder=self.decoder))  # type: ignore[arg-type]
        yield llm
        await llm.aclose()

    @pytest.fixture
    def bare(self, llm: PolicyLLM) -> InferenceServer:
        return llm.server


class TestModules(TestPacked):
    decoder = "modules"
