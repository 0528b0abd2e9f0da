"""Options of model components that start a server program on this machine."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from attrs import field, frozen

from ale.plugin import doc, ge, gt, optional
from ale.strict import Former

ADAPTER_RANK = 16
"""Largest rank of an adapter, unless `arguments` give another."""


@frozen(kw_only=True)
class HostedOptions:
    """Options of every such component."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "adapter_rank": Former(16, "arguments: [--max-lora-rank=RANK]"),
    }

    model: Path = field(metadata=doc("Folder of a causal model, in the format of transformers."))
    context: int | None = field(
        default=None,
        validator=optional(ge(16)),
        metadata=doc("Maximum tokens of prompt and answer; default: the model's own limit."),
    )
    max_batch: int = field(
        default=64, validator=ge(1), metadata=doc("Answers sampled in parallel.")
    )
    adapters: int = field(
        default=0,
        validator=ge(0),
        metadata=doc("Maximum number of LoRA adapters for the model; 0 for none."),
    )
    start_s: float = field(
        default=600.0, validator=gt(0), metadata=doc("Maximum seconds until the server answers.")
    )
    log: Path | None = field(
        default=None, metadata=doc("File for the server's output; default: this process's output.")
    )
