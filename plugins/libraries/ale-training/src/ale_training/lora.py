"""LoRA adapters: options, PEFT's config of them, and weights with adapters merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from ale.plugin import doc, ge, gt, lt

if TYPE_CHECKING:
    from torch import Tensor


@frozen(kw_only=True)
class LoraOptions:
    """Low-rank adapters (arXiv:2106.09685), made by PEFT, in place of all weights."""

    r: int = field(default=16, validator=ge(1), metadata=doc("Rank."))
    alpha: float = field(
        default=32.0, validator=gt(0.0), metadata=doc("The update is scaled by alpha / r.")
    )
    dropout: float = field(
        default=0.0, validator=[ge(0.0), lt(1.0)], metadata=doc("On the adapters' input.")
    )
    target: tuple[str, ...] | None = field(
        default=None,
        metadata=doc("Names of the linear layers; all but the output layer if null."),
    )


def lora_config(options: LoraOptions | None) -> Any:
    """PEFT's config of the adapters; None without any."""
    if options is None:
        return None
    from peft import LoraConfig  # late: most runs need none

    return LoraConfig(
        r=options.r,
        lora_alpha=options.alpha,  # type: ignore[arg-type]  # it only divides by r
        lora_dropout=options.dropout,
        target_modules="all-linear" if options.target is None else list(options.target),
        task_type="CAUSAL_LM",
    )


def full_weights(model: Any) -> dict[str, Tensor]:
    """A copy of all weights under the names of the plain model, adapters merged into them.

    Args:
        model: of transformers, not PEFT's model around it; may be sharded.
    """
    import torch

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
            merged = tensor.clone() if delta is None else tensor + whole(delta)
            found[plain] = merged.to(tensor.dtype)
    return found


def whole(tensor: Tensor) -> Tensor:
    """The full tensor, gathered from all processes if it is sharded (a collective call)."""
    full = getattr(tensor, "full_tensor", None)
    found: Tensor = tensor if full is None else full()
    return found
