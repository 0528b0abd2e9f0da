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
from ale_servers.protocol import InferenceServer, WeightsError
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

    @pytest.mark.parametrize("adapter", [False, True])
    async def test_weights_that_are_not_those_that_were_published_are_refused(
        self, lab: Lab, bare: InferenceServer, adapter: bool
    ) -> None:
        published = lab.publish_adapter("one", 1) if adapter else lab.publish(1)
        another = msgspec.structs.replace(published, digest="0" * len(published.digest))
        with pytest.raises(WeightsError, match="expected version 1 with digest 0000"):
            await bare.prepare(another)
        (file,) = Path(published.folder).glob("*.safetensors")
        content = bytearray(file.read_bytes())
        content[-2] ^= 1  # a bit of the last number
        file.write_bytes(content)
        with pytest.raises(WeightsError, match="has the digest"):
            await bare.prepare(published)

    async def test_an_adapter_is_scaled_by_alpha_and_rank(self, tmp_path: Path) -> None:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(5, 3, bias=False))
        plain = model[0].weight.detach().clone()
        inject_adapter_in_model(LoraConfig(r=2, lora_alpha=6, target_modules=["0"]), model)
        down, up = torch.randn(2, 5), torch.randn(3, 2)
        model[0].lora_A["default"].weight.data.copy_(down)
        model[0].lora_B["default"].weight.data.copy_(up)
        adapters.write(tmp_path, model)
        found, _ = adapters.merged({"0.weight": plain}, tmp_path)
        assert torch.allclose(found["0.weight"], plain + 3.0 * (up @ down), atol=1e-5)
