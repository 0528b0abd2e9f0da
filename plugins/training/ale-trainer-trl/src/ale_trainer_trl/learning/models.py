"""The model that is trained: loaded, quantised where a GPU allows it, with adapters."""

from typing import Any

import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

from ale.errors import NotUsableError
from ale_trainer_trl.learning.errors import wrong
from ale_trainer_trl.learning.options import Device, Dtype, LoraOptions, Quantization, Training
from ale_trainer_trl.learning.packages import require_packages

EXPECTED = "a folder with config.json, weights and tokenizer.json, or a name on the hub"


def check(training: Training) -> None:
    """What can be said against model and machine before anything is loaded.

    Raises:
        InputError: options that exclude each other.
        NotUsableError: quantisation or a device that this machine doesn't have.
    """
    if training.device == "cuda" and not torch.cuda.is_available():
        raise wrong("cuda is not available here", path="device", hint="device: auto")
    if training.quantization is None:
        return
    if training.merge:
        raise wrong("an adapter can't be merged into quantised weights exactly", path="merge")
    if training.lora is None:
        raise wrong(
            f"weights in {training.quantization} can't be trained themselves",
            path="lora",
            expected="adapters, as in lora: {r: 16}",
            hint="or quantization: null",
        )
    if training.device == "cpu" or not torch.cuda.is_available():
        raise NotUsableError(
            f"quantization: {training.quantization} needs a CUDA GPU, and "
            + ("device says cpu" if training.device == "cpu" else "torch finds none here")
            + "; use quantization: null (dtype: bfloat16 halves the memory of the weights too)"
        )
    require_packages(("bitsandbytes",), remedy="pip install bitsandbytes")


def device_of(device: Device) -> torch.device:
    """The device that is meant."""
    wanted = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    return torch.device(wanted)


def dtype_of(dtype: Dtype, device: torch.device) -> torch.dtype:
    """The type of number that is meant."""
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype]


def load_tokenizer(name: str) -> Any:
    """The model's tokenizer, with a token to pad with.

    Raises:
        InputError: it can't be loaded, or knows no end of a text.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError) as error:
        raise _unloadable(name, error) from error
    if tokenizer.eos_token is None:
        raise wrong(f"the tokenizer of {name} has no end-of-text token", path="model_name_or_path")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(training: Training) -> Any:
    """The model's weights, where and as they are to be trained; without adapters.

    Raises:
        InputError: it can't be loaded.
    """
    place = device_of(training.device)
    dtype = dtype_of(training.dtype, place)
    more: dict[str, Any] = {}
    if training.quantization is not None:
        more = {
            "quantization_config": quantized(training.quantization, dtype),
            "device_map": {"": 0},
        }
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            training.model_name_or_path, dtype=dtype, **more
        )
    except (OSError, ValueError, KeyError) as error:
        raise _unloadable(training.model_name_or_path, error) from error
    return model if more else model.to(place)


def quantized(how: Quantization, dtype: torch.dtype) -> BitsAndBytesConfig:
    """QLoRA's NF4 with double quantisation (arXiv:2305.14314), or 8 bits (arXiv:2208.07339)."""
    make: Any = BitsAndBytesConfig
    made: BitsAndBytesConfig = (
        make(load_in_8bit=True)
        if how == "8bit"
        else make(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
    )
    return made


def adapters(options: LoraOptions | None) -> LoraConfig | None:
    """PEFT's configuration of the adapters."""
    if options is None:
        return None
    return LoraConfig(
        r=options.r,
        lora_alpha=options.alpha,  # type: ignore[arg-type]  # it only divides by r
        lora_dropout=options.dropout,
        target_modules="all-linear" if options.target is None else list(options.target),
        task_type="CAUSAL_LM",
    )


def _unloadable(name: str, error: Exception) -> Exception:
    said = str(error).strip().splitlines() or [type(error).__name__]
    return wrong(f"{name} can't be loaded: {said[0]}", path="model_name_or_path", expected=EXPECTED)
