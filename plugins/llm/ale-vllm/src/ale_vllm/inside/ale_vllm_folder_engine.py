"""The weight-transfer backend ``ale_folder``: weights from a folder of safetensors."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """Nothing has to be agreed on."""


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """The ``update_info`` of `POST /update_weights`."""

    folder: str
    """Its ``*.safetensors`` use the same names as the model's own files."""


def tensors(folder: Path) -> Iterator[tuple[str, Any]]:
    """Names and tensors of all files, one at a time."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder} has no *.safetensors")
    for file in files:
        with safe_open(str(file), framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - not a dict
                yield name, opened.get_tensor(name)


class FolderEngine(WeightTransferEngine[InitInfo, UpdateInfo]):  # type: ignore[misc]
    """Each worker reads the folder by itself, layer by layer."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """There is no connection to make."""

    def start_weight_update(self) -> None:
        """Prepare each layer to load its weights anew: those in use may be packed."""
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Skip the base class's wait for an accelerator, as the machine may not have one."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Load the files, as the model loads a checkpoint."""
        self.model.load_weights(tensors(Path(update_info.folder)))

    def finish_weight_update(self) -> None:
        """Process the layers that are complete."""
        finalize_layerwise_reload(self.model, self.model_config)
        # On a CPU, an output layer that is tied to the embeddings has a packed copy of them, which
        # the reload does not change: without this, the old copy would silently stay in use.
        for module in self.model.modules():
            if isinstance(module, VocabParallelEmbedding):
                module.quant_method.process_weights_after_loading(module)

    def shutdown(self) -> None:
        """Nothing is held."""
