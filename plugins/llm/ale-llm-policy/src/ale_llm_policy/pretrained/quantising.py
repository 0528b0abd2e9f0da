"""Loads a model's linear layers in 4 bits, for QLoRA (arXiv:2305.14314), by bitsandbytes."""

import logging
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from transformers import BitsAndBytesConfig

from ale.errors import InputError

_NEEDED = ("accelerate", "bitsandbytes")


def nf4(place: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Arguments of `from_pretrained` for NF4 weights with quantised scales.

    Args:
        place: the device where the weights are quantised and stay.
        dtype: dtype of the matrix products.

    Raises:
        InputError: a package that it needs is not installed.
    """
    if lacking := [name for name in _NEEDED if find_spec(name) is None]:
        raise InputError.of(
            f"weights in 4 bits need {' and '.join(lacking)}, not installed here",
            path="llm.quantise",
            hint="pip install 'ale-llm-policy[qlora]'; in a clone: pip install -e '.[train,qlora]'",
        )
    _import_without_advice()
    config = BitsAndBytesConfig(  # type: ignore[no-untyped-call]
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    return {"quantization_config": config, "device_map": {"": str(place)}}


def _import_without_advice() -> None:
    """Import it without its advice to install a kernel that `keep_format` does not need."""
    logger = logging.getLogger("bitsandbytes.backends.cpu.ops")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        import_module("bitsandbytes")
    finally:
        logger.setLevel(before)
