"""LoRA adapters of a checkpoint: add to a model, merge into it, or write in PEFT's format."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers.utils import logging

from ale.errors import StoreError
from ale_training.lora import LoraOptions, lora_config
from ale_training.quantised import is_quantised

_NAME = "default"


def add(model: Any, options: LoraOptions, weights: Mapping[str, Tensor]) -> Any:
    """Add adapters to a plain model, as the trainer does, with a checkpoint's weights.

    Args:
        model: a transformers model; changed in place.
        weights: tensors by name, as the trainer stores them.

    Returns:
        PEFT's tuner around it, for `write`.

    Raises:
        StoreError: the names are not those of these adapters.
    """
    from peft import LoraModel

    tuner = LoraModel(model, lora_config(options), _NAME)
    own = {name: weight for name, weight in model.named_parameters() if "lora_" in name}
    if own.keys() != weights.keys():
        differing = ", ".join(sorted(own.keys() ^ weights.keys())[:3])
        raise StoreError(f"the checkpoint's adapters are not those of the run: {differing}")
    with torch.no_grad():
        for name, weight in own.items():
            weight.copy_(weights[name])
    return tuner


def merge(model: Any, options: LoraOptions, weights: Mapping[str, Tensor]) -> None:
    """Merge a checkpoint's adapters into a plain model's weights, in place.

    Quantised weights are dequantised first: merging into 4 bits would lose most of an adapter.

    Raises:
        StoreError: as for `add`.
    """
    if is_quantised(model):
        with _silent():
            model.dequantize()
    add(model, options, weights).merge_and_unload()


@contextmanager
def _silent() -> Iterator[None]:
    """Suppress the warning that dequantising takes memory."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(before)


def write(tuner: Any, base: str, directory: Path) -> None:
    """Write ``adapter_config.json`` and ``adapter_model.safetensors``.

    Args:
        base: folder of the model under the adapters, or its name on the hub.
    """
    from peft import get_peft_model_state_dict

    config = tuner.peft_config[_NAME]
    config.base_model_name_or_path = str(Path(base).resolve()) if Path(base).is_dir() else base
    config.inference_mode = True
    config.save_pretrained(directory)
    found = get_peft_model_state_dict(tuner, adapter_name=_NAME, save_embedding_layers=False)
    # PEFT counts names from its own model, which holds the tuner as `base_model`.
    tensors = {f"base_model.{name}": tensor.contiguous().cpu() for name, tensor in found.items()}
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
