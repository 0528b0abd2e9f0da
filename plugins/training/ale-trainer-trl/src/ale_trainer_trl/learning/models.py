"""Loads the model to train, quantised if asked for, and its adapters' config."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, BitsAndBytesConfig

from ale.errors import InputError, NotUsableError
from ale_trainer_trl.learning.options import Quantization, Training
from ale_trainer_trl.learning.packages import require_packages
from ale_training import tokens
from ale_training.devices import resolve_device, resolve_dtype
from ale_training.hub import only_local, unloadable
from ale_training.lora import LoraOptions, check_targets, check_without_adapters, names_layer
from ale_training.pretrained import LOAD_ERRORS, load_causal, why_not_loaded

_PATH = "model_name_or_path"


def check(training: Training) -> None:
    """Check options against the machine before anything is loaded.

    Raises:
        InputError: options exclude each other, a file is in the way of ``output_dir``, or the
            device is not available on this machine.
        NotUsableError: quantisation is not.
    """
    for place in (training.output_dir, *training.output_dir.parents):
        if place.exists() and not place.is_dir():
            raise InputError.of(f"{place} is a file", path="output_dir", expected="a folder")
    resolve_device(training.device, path="device")
    if training.quantization is None:
        return
    if training.merge:
        raise InputError.of(
            "an adapter can't be merged into quantised weights exactly", path="merge"
        )
    if training.lora is None:
        raise InputError.of(
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


def load_tokenizer(name: str) -> Any:
    """The model's tokenizer, with a padding token.

    Raises:
        InputError: it can't be loaded, or has no end-of-text token.
    """
    local = only_local(name, path=_PATH)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local)
    except LOAD_ERRORS as error:
        raise _unloadable(name, error) from error
    if tokenizer.eos_token is None:
        raise InputError.of(f"the tokenizer of {name} has no end-of-text token", path=_PATH)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def context_of(name: str) -> int:
    """Most tokens that a model was designed for, prompt and answer together.

    No limit where its config can't be loaded: `load_model` says why.
    """
    local = only_local(name, path=_PATH)
    try:
        return tokens.context_of(AutoConfig.from_pretrained(name, local_files_only=local))
    except LOAD_ERRORS:
        return sys.maxsize


def load_model(training: Training) -> Any:
    """The model on its device, in its dtype, without adapters.

    Raises:
        InputError: it can't be loaded, has adapters, or has not the layers that are to get some.
    """
    place = resolve_device(training.device, path="device")
    dtype = resolve_dtype(training.dtype, place)
    more: dict[str, Any] = {}
    if training.quantization is not None:
        more = {
            "quantization_config": quantized(training.quantization, dtype),
            "device_map": {"": 0},
        }
    name = training.model_name_or_path
    local = only_local(name, path=_PATH)
    try:
        model = load_causal(name, dtype=dtype, local_files_only=local, **more)
    except LOAD_ERRORS as error:
        raise _unloadable(name, error) from error
    check_without_adapters(model, path=_PATH)
    check_layers(model, training.lora, path="lora.target")
    return model if more else model.to(place)


def check_layers(model: Any, options: LoraOptions | None, *, path: str) -> None:
    """As `check_targets`, and the output layer has no adapters.

    TRL computes log-probabilities from its weight alone: adapters of it would not be trained.

    Raises:
        InputError: a layer does not exist, or can have no adapters.
    """
    check_targets(model, options, path=path)
    head = model.get_output_embeddings()
    names = [name for name, module in model.named_modules() if module is head]
    targets = () if options is None else options.target or ()
    for target in targets:
        if names_layer(target, names):
            message = f"'{target}' is the output layer, whose adapters TRL would not train"
            raise InputError.of(message, path=path, hint="ale run with trainer: {type: policy}")


@contextmanager
def refused_layers(path: str) -> Iterator[None]:
    """Turn PEFT's error for a layer of a kind that it can't adapt into an `InputError`."""
    try:
        yield
    except ValueError as error:
        frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
        if not any(frame.f_globals["__name__"].startswith("peft.") for frame in frames):
            raise
        raise InputError.of(str(error), path=path) from error


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


def _unloadable(name: str, error: Exception) -> Exception:
    reason, hint = why_not_loaded(name, error)
    return unloadable(name, reason, path=_PATH, hint=hint)


def use_absolute_base(model: Any) -> None:
    """Make the folder of an adapter's base model absolute, so that it loads from anywhere."""
    for config in getattr(model, "peft_config", {}).values():
        base = config.base_model_name_or_path
        if base and Path(base).is_dir():
            config.base_model_name_or_path = str(Path(base).resolve())
