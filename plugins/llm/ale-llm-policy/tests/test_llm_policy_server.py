"""The kit of inference servers, for both decoders."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
import torch
from peft import LoraConfig, inject_adapter_in_model

from ale_llm_policy import adapters
from ale_llm_policy.build import wrap_policy
from ale_llm_policy.model import PolicyLLM
from ale_llm_policy.options import PolicyOptions
from ale_llm_policy.pretrained import TorchPolicy, weights
from ale_llm_policy.testing import forward_logits, new_policy
from ale_servers.channel import WeightFolder
from ale_servers.protocol import InferenceServer
from ale_servers.records import Weights
from ale_servers.testing.adapters import AdapterContract
from ale_servers.testing.contract import ServerContract, ServerLab


class Lab:
    """Weights of a tiny policy: each version is of another seed, in every tensor."""

    stop_id = 7
    prompt = tuple(range(20, 60))
    tolerance = 1e-4

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

    def adapted(self, name: str, version: int) -> TorchPolicy:
        policy = new_policy(seed=0)
        torch.manual_seed(sum(name.encode()) + version)
        config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear")
        inject_adapter_in_model(config, policy.model)
        with torch.no_grad():
            for part, weight in policy.model.named_parameters():
                if "lora_B" in part:
                    weight.normal_(std=0.2)
        return policy

    def publish_adapter(self, name: str, version: int) -> Weights:
        model = self.adapted(name, version).model
        channel = WeightFolder(self._folder.root / name, keep=8)
        made = channel.publish(version, lambda folder: adapters.write(folder, model))
        return msgspec.structs.replace(made, adapter=name, run="the run")

    def adapter_logprobs(self, name: str, version: int, ids: tuple[int, ...]) -> list[float]:
        return self._logprobs(self.adapted(name, version), ids)

    def logprobs(self, version: int, ids: tuple[int, ...]) -> list[float]:
        return self._logprobs(self.policy(version), ids)

    def _logprobs(self, policy: TorchPolicy, ids: tuple[int, ...]) -> list[float]:
        logp = forward_logits(policy, ids[:1], ids[1:]).log_softmax(-1)
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


class TestAdapters(AdapterContract):
    lab, llm, bare = TestPacked.lab, TestPacked.llm, TestPacked.bare
    decoder = "packed"


class TestModules(TestPacked):
    decoder = "modules"
