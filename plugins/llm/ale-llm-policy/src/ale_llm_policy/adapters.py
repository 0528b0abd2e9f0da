"""LoRA adapters as files in PEFT's format: written from a model, and merged into weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ale.errors import AleError
from ale_llm_policy.pretrained import weights
from ale_servers.protocol import WeightsError
from ale_training.lora import whole

CONFIG, FILE = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_PLAIN: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "use_dora": (False, None),
    "use_rslora": (False, None),
    "fan_in_fan_out": (False, None),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "modules_to_save": ([], None),
}
"""Config values under which an adapter is alpha / r times the product of its two matrices."""


def write(folder: Path, model: Any) -> str:
    """Write the adapter ``default`` that PEFT has added to a model; returns its digest.

    Raises:
        AleError: the model has no adapter, or its layers' adapters differ in rank or scale.
    """
    layers = {name: part for name, part in model.named_modules() if hasattr(part, "lora_A")}
    shapes = {(part.r["default"], part.scaling["default"]) for part in layers.values()}
    if len(shapes) != 1:
        what = f"adapters of {len(shapes)} ranks or scales" if shapes else "no LoRA adapters"
        hint = "give the trainer 'lora', or leave 'llm.adapter' out"
        raise AleError(f"llm.adapter: the model has {what}; {hint}")
    ((r, scale),) = shapes
    tensors = {
        _PREFIX + name.replace(".default", ""): whole(part).detach().cpu().contiguous()
        for name, part in model.state_dict().items()
        if ".lora_A.default." in name or ".lora_B.default." in name
    }
    config = {name: values[0] for name, values in _PLAIN.items()}
    targets = sorted({name.rpartition(".")[2] for name in layers})
    config |= {"task_type": "CAUSAL_LM", "r": r, "lora_alpha": scale * r, "target_modules": targets}
    (folder / CONFIG).write_text(json.dumps(config))
    save_file(tensors, folder / FILE)
    return weights.digest(tensors)


def merged(base: Mapping[str, Tensor], folder: Path) -> tuple[dict[str, Tensor], str]:
    """The weights with the adapter in a folder merged into them, and the adapter's digest.

    Args:
        base: weights by the names of the plain model; not changed.

    Raises:
        WeightsError: the adapter can't be read, is of another kind, or does not fit.
        InputError: the adapter's tensors can't be read.
    """
    try:
        config = json.loads((folder / CONFIG).read_text())
        scale = config["lora_alpha"] / config["r"]
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise WeightsError(f"{folder / CONFIG} can't be read: {error!r}") from error
    for name, values in _PLAIN.items():
        if config.get(name, values[0]) not in values:
            raise WeightsError(f"{folder / CONFIG}: {name} is {config[name]!r}: not supported")
    tensors = weights.read(folder)
    found = dict(base)
    for name, down in tensors.items():
        layer, _, which = name.removeprefix(_PREFIX).partition(".lora_")
        if which == "B.weight":
            continue
        up, plain = tensors.get(name.replace(".lora_A.", ".lora_B.")), f"{layer}.weight"
        if which != "A.weight" or up is None or plain not in base:
            raise WeightsError(f"{folder}: '{name}' is of no layer of this model")
        old = base[plain]
        if (up.shape[0], down.shape[1]) != tuple(old.shape) or up.shape[1] != down.shape[0]:
            raise WeightsError(f"{folder}: '{name}' does not fit {tuple(old.shape)}")
        delta = up.to(old.device, torch.float32) @ down.to(old.device, torch.float32)
        found[plain] = (old.float() + scale * delta).to(old.dtype)
    return found, weights.digest(tensors)
