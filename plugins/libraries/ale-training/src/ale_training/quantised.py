"""Models whose weights are quantised, as QLoRA's are (arXiv:2305.14314)."""

from typing import Any


def is_quantised(model: Any) -> bool:
    """Are a model's weights quantised, so that only adapters over them can be trained?"""
    return bool(getattr(model, "is_quantized", False))


def keep_format(model: Any) -> None:
    """Make bitsandbytes leave a loaded model's weights as they are.

    On a CPU with AVX-512 it otherwise rewrites them in the first forward pass outside training, for
    a kernel that computes in bfloat16, has no gradient and refuses some widths: the model that
    samples would differ from the one that is trained.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
