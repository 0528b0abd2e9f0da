"""Prepares the model to train: the sampler's own or a copy, with adapters if configured."""

import copy
import hashlib
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor

from ale.errors import InputError, Problem
from ale.protocols import LLM
from ale_trainer_policy.logit_slices import check_head
from ale_trainer_policy.options import LearnOptions, LoraOptions

PATH = "trainer.type"

_SAMPLED = 64
"""Values of each frozen tensor that a fingerprint looks at."""


class InProcess(Protocol):
    """The attribute `policy` of a model component that runs in this process."""

    model: Any
    """A causal model of transformers."""
    version: int
    fingerprint: str
    """Of architecture and vocabulary, not of weights."""
    lock: AbstractContextManager[Any]
    """Held while the model runs or its weights change."""


def policy_of(llm: LLM | None) -> InProcess:
    """The policy of a model component.

    Raises:
        InputError: it has none, or records no token ids.
    """
    if llm is None:
        raise _refused("this trainer needs section 'llm': it trains the model that samples")
    if not llm.capabilities.token_ids:
        raise _refused(
            f"the model {type(llm).__name__} gives no token ids, and nothing is tokenised again "
            "to replace them"
        )
    policy = getattr(llm, "policy", None)
    if policy is None or not hasattr(policy, "model"):
        raise _refused(f"the model {type(llm).__name__} does not run in this process")
    found: InProcess = policy
    return found


def _refused(message: str) -> InputError:
    return InputError(
        [
            Problem(
                path=PATH,
                message=message,
                expected="a model in this process that records token ids and log-probabilities",
                hint="llm: {type: policy, ...}, or trainer: {type: export}",
            )
        ]
    )


def prepare(policy: InProcess, options: LearnOptions) -> Any:
    """The model to train, with `requires_grad` set on the trained parameters.

    Raises:
        InputError: the model's attention can't be replaced, which `packing` needs; or its logits
            can't be sliced, which `logits_mb` needs.
    """
    model = policy.model if options.sync == "same" else copy.deepcopy(policy.model)
    if options.packing != "padded" and not getattr(model, "_supports_attention_backend", False):
        raise InputError(
            [
                Problem(
                    path="trainer.packing",
                    message=f"{type(model).__name__} has no replaceable attention",
                    expected="packing: padded, for this model",
                )
            ]
        )
    if options.logits_mb is not None:
        check_head(model)
    if options.activations == "recompute":
        # The first name is the newer one.
        enable = getattr(model, "activation_checkpointing_enable", None)
        (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})
    if options.lora is None:
        model.requires_grad_(True)
    else:
        _add_adapters(model, options.lora)
    return model


def _add_adapters(model: Any, options: LoraOptions) -> None:
    from peft import inject_adapter_in_model  # late: most runs need none

    model.requires_grad_(False)
    try:
        inject_adapter_in_model(lora_config(options), model)
    except ValueError as error:
        raise InputError([Problem(path="trainer.lora.target", message=str(error))]) from error
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)


def lora_config(options: LoraOptions) -> Any:
    """PEFT's config of the adapters."""
    from peft import LoraConfig

    return LoraConfig(
        r=options.r,
        lora_alpha=options.alpha,  # type: ignore[arg-type]  # it only divides by r
        lora_dropout=options.dropout,
        target_modules="all-linear" if options.target is None else list(options.target),
    )


def full_weights(model: Any) -> dict[str, Tensor]:
    """A copy of all weights under the names of the plain model, adapters merged into them."""
    deltas = {
        name: module.get_delta_weight("default")
        for name, module in model.named_modules()
        if hasattr(module, "get_delta_weight")
    }
    found: dict[str, Tensor] = {}
    with torch.no_grad():
        for name, part in model.state_dict().items():
            if "lora_" in name:
                continue
            tensor = whole(part)
            owner, _, leaf = name.rpartition(".base_layer.")
            plain = f"{owner}.{leaf}" if owner else name
            delta = deltas.get(owner) if leaf == "weight" else None
            found[plain] = tensor.clone() if delta is None else tensor + whole(delta)
    return found


def whole(tensor: Tensor) -> Tensor:
    """The full tensor, gathered from all processes if it is sharded (a collective call)."""
    full = getattr(tensor, "full_tensor", None)
    found: Tensor = tensor if full is None else full()
    return found


def fingerprint_of(policy: InProcess, options: LearnOptions) -> str:
    """Identifies the model and its trained parameters; a checkpoint is valid for the same only.

    With adapters it includes the frozen weights: they are not in the checkpoint, and may be all
    in which two models of one family differ.
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
