"""The weight-transfer backend ``ale_weights``: weights from a folder of safetensors, from memory
that the trainer shares, or sent by the trainer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from ale_broadcast import Reader
from ale_shared_memory import check_digest, opened, views
from safetensors import safe_open
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)


@dataclass
class InitInfo(WeightTransferInitInfo):  # type: ignore[misc]  # vLLM is not installed here
    """The ``init_info`` of `POST /init_weight_transfer_engine`: weights that will come, if any."""

    memory: dict[str, Any] | None = None
    """The fields of ale_servers' `records.Memory`."""
    broadcast: dict[str, Any] | None = None
    """The fields of `records.Broadcast`."""
    digest: str = ""


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """The ``update_info`` of `POST /update_weights`: a folder, or another place and a digest."""

    folder: str = ""
    """Its ``*.safetensors`` use the same names as the model's own files."""
    memory: dict[str, Any] | None = None
    broadcast: dict[str, Any] | None = None
    digest: str = ""


def tensors(folder: Path) -> Iterator[tuple[str, Any]]:
    """Names and tensors of all files, one at a time."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder} has no *.safetensors")
    for file in files:
        with safe_open(str(file), framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - not a dict
                yield name, opened.get_tensor(name)


class WeightsEngine(WeightTransferEngine[InitInfo, UpdateInfo]):  # type: ignore[misc]
    """Each worker reads the weights by itself, layer by layer."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    _shared: tuple[torch.Tensor, str] | None = None
    """Memory of which this update has loaded views, and the digest that it must still have."""
    _reader: Reader | None = None

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Try whether the memory can be opened, or tell the trainer that this worker will read."""
        if init_info.memory is not None:
            check_digest(opened(init_info.memory), init_info.digest)
        if init_info.broadcast is not None:
            self._reader_of(init_info.broadcast).ask("prepare", init_info.digest)

    def _reader_of(self, place: dict[str, Any]) -> Reader:
        """The connection to the trainer, which is kept from one update to the next."""
        if self._reader is None or not self._reader.serves(place):
            self.shutdown()
            self._reader = Reader(place)
        return self._reader

    def start_weight_update(self) -> None:
        """Prepare each layer to load its weights anew: those in use may be packed."""
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Skip the base class's wait for an accelerator, as the machine may not have one."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Load the weights, as the model loads a checkpoint."""
        if update_info.broadcast is not None:
            reader = self._reader_of(update_info.broadcast)
            parts = update_info.broadcast["parts"]
            self.model.load_weights(reader.read(update_info.digest, parts))
            return
        if update_info.memory is None:
            self.model.load_weights(tensors(Path(update_info.folder)))
            return
        buffer = opened(update_info.memory)
        check_digest(buffer, update_info.digest)
        self._shared = (buffer, update_info.digest)
        self.model.load_weights(views(buffer, update_info.memory["parts"]))

    def finish_weight_update(self) -> None:
        """Process the layers that are complete."""
        finalize_layerwise_reload(self.model, self.model_config)
        # On a CPU, an output layer that is tied to the embeddings has a packed copy of them, which
        # the reload does not change: without this, the old copy would silently stay in use.
        for module in self.model.modules():
            if isinstance(module, VocabParallelEmbedding):
                module.quant_method.process_weights_after_loading(module)
        shared, self._shared = self._shared, None
        if shared is not None:
            check_digest(*shared)  # now that every view has been read

    def shutdown(self) -> None:
        """End the connection to the trainer."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
