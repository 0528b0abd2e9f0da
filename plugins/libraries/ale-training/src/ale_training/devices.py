"""The device and the number format of a model, from options."""

from typing import Literal

import torch

from ale.errors import InputError

Dtype = Literal["auto", "float32", "bfloat16"]
Device = Literal["auto", "cpu", "cuda"]


def resolve_device(device: Device, *, path: str) -> torch.device:
    """The torch device of an option; auto is a GPU where there is one.

    Args:
        path: of the option, for the error.

    Raises:
        InputError: torch finds no GPU.
    """
    found = torch.cuda.is_available()
    if device == "cuda" and not found:
        built = torch.version.cuda
        for_what = "the CPU alone" if built is None else f"CUDA {built}"
        raise InputError.of(
            f"torch {torch.__version__}, which is built for {for_what}, finds no GPU here",
            path=path,
            expected="a GPU, and a torch that is built for it",
            hint=f"{path.rpartition('.')[2]}: auto uses the CPU",
        )
    return torch.device(("cuda" if found else "cpu") if device == "auto" else device)


def resolve_dtype(dtype: Dtype, device: torch.device) -> torch.dtype:
    """The torch dtype of an option; auto is bfloat16 on a GPU and float32 on a CPU."""
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]
