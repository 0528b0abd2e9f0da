"""The component: how vLLM is started."""

import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ale.errors import InputError
from ale.plugin import BuildContext
from ale_servers.gateway import Model
from ale_servers.hosted import NAME, HostedLLM, model_in
from ale_servers.options import ADAPTER_RANK
from ale_servers.program import free_port, without
from ale_servers.supervisor import Command
from ale_vllm.options import VLLMServerOptions
from ale_vllm.program import VLLM
from ale_vllm.recipes import Build, build_here, python_of


def build(options: VLLMServerOptions, context: BuildContext) -> HostedLLM:
    """The component; vLLM starts with the first request.

    Raises:
        InputError: vLLM is not installed, the folder has no model, or the options don't fit.
    """
    wanted = build_here() if options.build == "auto" else options.build
    if wanted == "cuda" and options.dtype == "float32" and options.adapters:
        raise InputError.of(
            "vLLM samples adapters on a GPU in bfloat16 and float16 only",
            path="llm.dtype",
            expected="auto, bfloat16 or float16, or 'adapters: 0'",
        )
    python = python_of(wanted)  # first: a run checks this before it has written its model
    model = model_in(options)
    url = f"http://127.0.0.1:{free_port()}"
    key = secrets.token_urlsafe(32)
    command = Command(
        argv=(str(python), *arguments(options, model, wanted, url)),
        log=options.log or Path("/dev/stderr"),
        environ={**variables(options, wanted, context.environ), "VLLM_API_KEY": key},
    )
    return HostedLLM(model, command, url, partial(VLLM, seeded=wanted == "cuda"), key=key)


def arguments(options: VLLMServerOptions, model: Model, build: Build, url: str) -> list[str]:
    """Arguments for the interpreter of vLLM's environment."""
    given: dict[str, Any] = {
        "model": model.folder,
        "served-model-name": NAME,
        "host": "127.0.0.1",
        "port": url.rpartition(":")[2],
        "max-model-len": model.context + 1,
        "max-num-seqs": model.max_running,
        "dtype": options.dtype,
        # Log-probabilities of the sampler, after temperature and top-p.
        "logprobs-mode": "processed_logprobs",
        # Ignore the sampling defaults that a model's folder suggests, such as its top-k.
        "generation-config": "vllm",
        "middleware": "ale_vllm_key.OnlyWithKey",
        "weight-transfer-config": '{"backend":"ale_weights"}',
    }
    flags = ["--enable-scale-out"]
    if options.dtype == "auto":
        given["dtype"] = "float32" if build == "cpu" else "bfloat16"
    if build == "cpu":
        given["block-size"] = 32
        flags += ["--enforce-eager"]
    elif options.gpu_memory is not None:
        given["gpu-memory-utilization"] = options.gpu_memory
    if options.adapters:
        # Room for the present version of each adapter, and the next one.
        given |= {"max-loras": 2 * options.adapters, "max-lora-rank": ADAPTER_RANK}
        flags += ["--enable-lora"]
    module = ("-m", "vllm.entrypoints.openai.api_server")
    named = [f"--{name}={value}" for name, value in given.items()]
    return [*module, *named, *flags, *options.arguments]


def variables(
    options: VLLMServerOptions, build: Build, environ: Mapping[str, str]
) -> dict[str, str]:
    """The environment of the process."""
    own = {
        "VLLM_SERVER_DEV_MODE": "1",  # the routes for weights
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if build == "cpu":
        own |= {
            "VLLM_CPU_KVCACHE_SPACE": str(options.kv_cache_gb),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        }
    if build == "cuda" and options.dtype == "float32":
        # Triton's attention would compute in tf32: exact to three digits only.
        own["TRITON_F32_DEFAULT"] = "ieee"
    return {**without(environ, "PYTHONPATH", "VIRTUAL_ENV"), **own}
