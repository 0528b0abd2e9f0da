"""LoRA adapters: options, PEFT's config of them, and weights with adapters merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from ale.errors import InputError, Problem, nearest
from ale.plugin import doc, ge, gt, le, lt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch
    from torch import Tensor

MAX_RANK = 1 << 14
"""The width of the widest models: a higher rank adds nothing, and is refused, since a mistyped one
asks for more memory than there is."""


@frozen(kw_only=True)
class LoraOptions:
    """Low-rank adapters (arXiv:2106.09685), made by PEFT, in place of all weights."""

    r: int = field(
        default=16,
        validator=[ge(1), le(MAX_RANK)],
        metadata=doc("Rank of the adapters."),
    )
    alpha: float = field(
        default=32.0, validator=gt(0.0), metadata=doc("The update is scaled by alpha / r.")
    )
    dropout: float = field(
        default=0.0, validator=[ge(0.0), lt(1.0)], metadata=doc("Dropout on the adapters' input.")
    )
    target: tuple[str, ...] | None = field(
        default=None,
        metadata=doc(
            "Names of the linear layers that get adapters; all but the output layer if null."
        ),
    )


def lora_config(options: LoraOptions | None) -> Any:
    """PEFT's config of the adapters; None without adapters."""
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


def check_without_adapters(model: Any, *, path: str) -> None:
    """Raise `InputError` for a model that was loaded with adapters, as from the folder of some.

    PEFT puts new adapters in their place, and what is stored later names the model below them.
    """
    if hasattr(model, "peft_config"):
        message = "the model has adapters already, which this training would lose"
        hint = "merge them: `merge: true` or `ale model --merge` writes a whole model"
        raise InputError.of(message, path=path, hint=hint)


def check_targets(model: Any, options: LoraOptions | None, *, path: str) -> None:
    """Check that each name of ``target`` is that of a layer; PEFT only checks that one of them is.

    Adapters of embeddings, and of a layer that shares its weight with them, are refused: merged
    into the one weight, those of one layer would act in the other too.

    Args:
        model: the transformers model, without adapters.
        path: of the option in the config, for the error.

    Raises:
        InputError: the model has no such layer, or the layer has no weight of its own.
    """
    from torch import nn

    if options is None or options.target is None:
        return
    if not options.target:
        raise InputError.of("it names no layer", path=path)
    modules = dict(model.named_modules())
    embeddings = {id(m.weight) for m in modules.values() if isinstance(m, nn.Embedding)}
    weights = {name: getattr(module, "weight", None) for name, module in modules.items()}
    matrices = {name: w for name, w in weights.items() if w is not None and w.dim() > 1}
    layers = [name for name, weight in matrices.items() if id(weight) not in embeddings]
    known = sorted({name.rpartition(".")[2] for name in layers})
    problems = [
        Problem(
            message=f"'{target}' is of embeddings, or shares its weight with them"
            if names_layer(target, matrices)
            else f"the model has no linear layer '{target}'",
            path=path,
            expected=f"some of {', '.join(known)}",
            hint=nearest(target, known),
        )
        for target in options.target
        if not names_layer(target, layers) or names_layer(target, matrices.keys() - {*layers})
    ]
    if problems:
        raise InputError(problems)


def names_layer(target: str, layers: Iterable[str]) -> bool:
    """Does PEFT take `target`, a name in ``lora.target``, for one of these layers?"""
    return any(f".{name}".endswith(f".{target}") for name in layers)


def full_weights(model: Any) -> dict[str, Tensor]:
    """A copy of all weights under the names of the plain model, adapters merged into them.

    Args:
        model: the transformers model, not PEFT's wrapper around it; may be sharded.
    """
    return dict(each_full_weight(model))


def each_full_weight(
    model: Any, *, dtype: torch.dtype | None = None
) -> Iterator[tuple[str, Tensor]]:
    """As `full_weights`, but one weight at a time. For a sharded model this is collective.

    Args:
        dtype: the dtype for floating-point weights; None: their own.
    """
    import torch

    adapted = {
        name: module
        for name, module in model.named_modules()
        if hasattr(module, "get_delta_weight")
    }
    for name, part in model.state_dict().items():
        if "lora_" in name:
            continue
        owner, _, leaf = name.rpartition(".base_layer.")
        with torch.no_grad():
            merged = tensor = whole(part)
            if owner in adapted and leaf == "weight":
                merged = tensor + whole(adapted[owner].get_delta_weight("default"))
            floating = dtype is not None and tensor.is_floating_point()
            # Copied, as the model's own weights change.
            merged = merged.to(dtype if floating else tensor.dtype, copy=True)
        yield (f"{owner}.{leaf}" if owner else name), merged


def whole(tensor: Tensor) -> Tensor:
    """The full tensor, gathered from all processes if it is sharded (a collective call)."""
    full = getattr(tensor, "full_tensor", None)
    found: Tensor = tensor if full is None else full()
    return found
