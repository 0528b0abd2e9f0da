"""Prepares the model to train: the sampler's own or a copy, with adapters if configured."""

import copy
import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ale.errors import InputError, Problem
from ale.protocols import PolicyModel
from ale_trainer_policy.logit_slices import check_head
from ale_trainer_policy.options import LearnOptions
from ale_trainer_policy.placement import view
from ale_training.lora import LoraOptions, check_targets, lora_config

_SAMPLED = 64
"""Number of values of each frozen tensor that a fingerprint includes."""


def prepare(policy: PolicyModel, options: LearnOptions) -> Any:
    """The model to train, with `requires_grad` set on the trained parameters.

    Raises:
        InputError: the model's attention can't be replaced, which `packing` needs; or its logits
            can't be sliced, which `logits_mb` needs.
    """
    model = policy.model if options.sync == "same" else copied(policy.model, options)
    _check_attention(model, options)
    if options.logits_mb is not None:
        check_head(model)
    set_trained(model, options)
    return model


def set_trained(model: Any, options: LearnOptions) -> None:
    """Set `requires_grad` on the parameters to train, adapters alone if the options say so."""
    if not options.is_sharded:
        recompute_activations(model, options)
    if options.lora is None:
        model.requires_grad_(True)
    else:
        add_adapters(model, options.lora)


def check_quantised(options: LearnOptions) -> None:
    """Check that, over quantised weights, only adapters are trained, in the model that samples.

    Raises:
        InputError: the options train something else.
    """
    problems = []
    if options.lora is None:
        message = "the model's weights are quantised, and can't be trained themselves"
        expected = "adapters over them, such as lora: {r: 16}"
        problems.append(Problem(path="trainer.lora", message=message, expected=expected))
    if options.sync == "copy":
        message = (
            "the model's weights are quantised: adapters merged into them would be rounded to 4 "
            "bits, and another policy would sample than the one that is trained"
        )
        expected = "sync: same, and so one process, offload: none and run.staleness: 0"
        problems.append(Problem(path="trainer.sync", message=message, expected=expected))
    if problems:
        raise InputError(problems)


def copied(model: Any, options: LearnOptions) -> Any:
    """A copy to train. If ranks take shards from it, it shares the model's own weights."""
    return view(model) if options.is_sharded else copy.deepcopy(model)


def recompute_activations(model: Any, options: LearnOptions) -> None:
    """Recompute each layer in the backward pass, if the options say so.

    For a sharded model this is done on each rank: afterwards it can't be sent to other ranks.
    """
    if options.activations == "keep":
        return
    # The first name is the newer one.
    enable = getattr(model, "activation_checkpointing_enable", None)
    (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})


def _check_attention(model: Any, options: LearnOptions) -> None:
    if options.packing == "padded" or getattr(model, "_supports_attention_backend", False):
        return
    message = f"{type(model).__name__} has no replaceable attention"
    expected = "packing: padded, for this model"
    raise InputError.of(message, path="trainer.packing", expected=expected)


def reference_model(policy: PolicyModel, folder: Path | None, options: LearnOptions) -> Any:
    """The KL's reference model, without gradients: the present policy, or a folder's model.

    Raises:
        InputError: the folder holds no model, or one of another vocabulary or attention.
    """
    if folder is None:
        return copy.deepcopy(policy.model).requires_grad_(False).eval()
    model = loaded_model(policy, folder, options, "trainer.objective.kl.model")
    if options.logits_mb is not None:
        check_head(model)
    return model.requires_grad_(False).eval()


def loaded_model(
    policy: PolicyModel, folder: Path, options: LearnOptions, path: str, *, head: bool = True
) -> Any:
    """A folder's model, on the policy's device and in its precision.

    Args:
        path: the path of the option that names the folder.
        head: its output layer is used.

    Raises:
        InputError: the folder holds no model, or one of another vocabulary or attention.
    """
    from ale_training.pretrained import LOAD_ERRORS, load_causal, why_not_loaded

    own = next(policy.model.parameters())
    try:
        model = load_causal(str(folder), head=head, local_files_only=True, dtype=own.dtype)
    except LOAD_ERRORS as error:
        reason, _ = why_not_loaded(str(folder), error, tokenizer=False)
        reason = reason if folder.exists() else "there is no such folder"
        raise _unusable(f"{folder} can't be loaded: {reason}", path) from error
    size, wanted = model.config.vocab_size, policy.model.config.vocab_size
    if size != wanted:
        message = f"{folder} has a vocabulary of {size} tokens, and the policy of {wanted}"
        raise _unusable(message, path)
    _check_attention(model, options)
    return model.to(own.device)


def _unusable(message: str, path: str) -> InputError:
    expected = "the folder of a model with the policy's vocabulary"
    return InputError.of(message, path=path, expected=expected)


def add_adapters(model: Any, options: LoraOptions) -> None:
    """Add adapters to a model in place; they alone are trained.

    Raises:
        InputError: a layer that the options name does not exist.
    """
    from peft import inject_adapter_in_model  # late: most runs need none

    model.requires_grad_(False)
    check_targets(model, options, path="trainer.lora.target")
    try:
        inject_adapter_in_model(lora_config(options), model)
    except ValueError as error:
        raise InputError.of(str(error), path="trainer.lora.target") from error
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)


def fingerprint_of(policy: PolicyModel, options: LearnOptions) -> str:
    """Identifies the model and its trained parameters; a checkpoint is valid only for these.

    With adapters it includes the frozen weights: they are not in the checkpoint, and may be the
    only difference between two models of one family.
    """
    if options.lora is None:
        return policy.fingerprint
    digest = hashlib.sha256(f"/{options.lora}".encode())
    for name, weight in policy.model.named_parameters():
        if "lora_" not in name:
            digest.update(_sampled(weight))
    return f"{policy.fingerprint}+lora-{digest.hexdigest()[:8]}"


def _sampled(weight: Tensor) -> bytes:
    """Evenly spaced values of a tensor; the same for bfloat16 and float32."""
    flat = weight.detach().reshape(-1)
    some = flat[:: max(1, flat.numel() // _SAMPLED)].to(torch.bfloat16)
    return some.float().cpu().numpy().tobytes()
