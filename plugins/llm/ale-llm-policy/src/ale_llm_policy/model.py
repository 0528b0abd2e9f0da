"""The model component that samples in this process."""

import asyncio
from collections.abc import Callable
from typing import ClassVar

from attrs import define, field

from ale.types import HAND_OVERS, HandOver, PolicySnapshot
from ale_llm_policy.engine import Engine
from ale_llm_policy.pretrained import TorchPolicy
from ale_llm_policy.server import EngineServer
from ale_servers.records import Sampled, SampleRequest
from ale_training.chat.model import TokenLLM
from ale_training.quantised import is_quantised


@define(eq=False, repr=False, slots=False)
class PolicyLLM(TokenLLM):
    """Samples from a policy in this process. A `TrainablePolicy`."""

    same_engine: ClassVar[bool] = True

    policy: TorchPolicy
    """Model, tokenizer and template."""
    engine: Engine
    """Samples from it."""
    _copied: Callable[[], tuple[TorchPolicy, Engine]] = field(kw_only=True)
    """See `EngineServer`."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.server = EngineServer(
            self.policy, self.engine, context=self._context, copied=self._copied
        )
        """Gives the same engine to clients that have ids, such as those of `ale serve`."""

    @property
    def training_device(self) -> str:
        """That of the weights."""
        return str(self.policy.device)

    @property
    def hand_overs(self) -> frozenset[HandOver]:
        """All, unless the weights are quantised: these take none."""
        return frozenset(("in-place",)) if is_quantised(self.policy.base) else HAND_OVERS

    def attached(self) -> None:
        """Does nothing: the weights are nobody else's."""

    async def _sample(self, asked: SampleRequest, session: str) -> Sampled:
        return await self.server.run(asked)

    async def load_policy(self, snapshot: PolicySnapshot) -> None:
        """Sample from these weights, starting with the next decoding step.

        Tensors are copied in place.

        Raises:
            InputError: the weights do not fit this model.
        """

        def change() -> None:
            if snapshot.weights is not None:
                self.policy.load_weights(snapshot.weights)
            elif snapshot.path is not None:
                self.policy.load_weights(snapshot.path)
            self.policy.version = snapshot.version

        await self.server.reload(change)

    async def aclose(self) -> None:
        """End the threads. Idempotent."""
        await self.server.close_adapters()
        self.server.close_reader()
        await asyncio.to_thread(self.engine.close)
