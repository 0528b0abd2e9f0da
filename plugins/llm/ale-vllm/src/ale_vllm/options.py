"""Options of the model ``vllm-server``."""

from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen, validators

from ale.plugin import doc, ge, gt

_at_least_16: Any = validators.optional(ge(16))


@frozen(kw_only=True)
class VLLMServerOptions:
    """vLLM on this machine, started in an environment of its own: `ale server install vllm`."""

    model: Path = field(metadata=doc("Folder of a causal model, in the format of transformers."))
    build: Literal["auto", "cpu", "cuda"] = field(
        default="auto", metadata=doc("auto: cuda if there is an NVIDIA GPU.")
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = field(
        default="auto",
        metadata=doc("auto: float32 on a CPU, so that log-probabilities are exact; else bfloat16."),
    )
    context: int | None = field(
        default=None,
        validator=_at_least_16,
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
    adapter_rank: int = field(
        default=16, validator=ge(1), metadata=doc("Maximum rank of an adapter.")
    )
    kv_cache_gb: int = field(
        default=1, validator=ge(1), metadata=doc("Size of the key-value cache on a CPU, GiB.")
    )
    start_s: float = field(
        default=600.0, validator=gt(0), metadata=doc("Maximum seconds until the server answers.")
    )
    log: Path | None = field(
        default=None, metadata=doc("File for the server's output; default: this process's output.")
    )
    arguments: tuple[str, ...] = field(
        default=(), metadata=doc("Further arguments of vLLM, such as --tensor-parallel-size=2.")
    )
