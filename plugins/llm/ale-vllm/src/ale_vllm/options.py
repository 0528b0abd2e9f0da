"""Options of the model ``vllm-server``."""

from typing import Literal

from attrs import field, frozen

from ale.plugin import doc, ge, gt, le, optional
from ale_servers.options import HostedOptions


@frozen(kw_only=True)
class VLLMServerOptions(HostedOptions):
    """vLLM on this machine, started in an environment of its own: `ale engines install vllm`."""

    build: Literal["auto", "cpu", "cuda"] = field(
        default="auto", metadata=doc("auto: cuda if there is an NVIDIA GPU.")
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = field(
        default="auto",
        metadata=doc("auto: float32 on a CPU, so that log-probabilities are exact; else bfloat16."),
    )
    kv_cache_gb: int = field(
        default=1, validator=ge(1), metadata=doc("Size of the key-value cache on a CPU, GiB.")
    )
    gpu_memory: float | None = field(
        default=None,
        validator=optional([gt(0), le(1)]),
        metadata=doc(
            "Share of a GPU's memory that vLLM takes for weights, keys and values; default: "
            "vLLM's own, 0.92, which leaves none to a trainer on the same GPU."
        ),
    )
    arguments: tuple[str, ...] = field(
        default=(), metadata=doc("Further arguments of vLLM, such as --tensor-parallel-size=2.")
    )
