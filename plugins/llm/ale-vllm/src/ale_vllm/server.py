"""The component: vLLM as a process, and the protocol in front of it."""

import json
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from ale.errors import ContextLengthError, InputError, Problem
from ale.plugin import BuildContext
from ale.types import Completion, CompletionRequest, LLMCapabilities
from ale_openai_wire import completion, messages, read_answer, sampling_fields, turn_seed
from ale_servers.client import Connections
from ale_servers.gateway import Gateway, Model, OnStart
from ale_servers.program import Asked, Launch, RefusedError, free_port, started, without
from ale_vllm.options import VLLMServerOptions
from ale_vllm.program import VLLM
from ale_vllm.recipes import Build, build_here, python_of

log = logging.getLogger(__name__)
_NAME = "policy"


class VLLMServer:
    """An `LLM` that answers by vLLM's chat API; `server` samples for training.

    vLLM starts with the first request.

    Args:
        options: of the component.
        context: its variables.

    Raises:
        InputError: vLLM is not installed, or the folder has no model.
    """

    def __init__(self, options: VLLMServerOptions, context: BuildContext) -> None:
        build = build_here() if options.build == "auto" else options.build
        model = _model(options)
        url = f"http://127.0.0.1:{free_port()}"
        self._launch = Launch(
            argv=(str(python_of(build)), *arguments(options, model, build, url)),
            log=options.log or Path("/dev/stderr"),
            environ=variables(options, build, context.environ),
        )
        self._connections = Connections()
        self._asked = Asked(url, self._connections)
        self.server = Gateway(model, VLLM(self._asked), self._run)
        """For clients that have ids."""

    def _run(self, on_start: OnStart) -> AbstractAsyncContextManager[None]:
        return started(self._launch, log.warning, on_start)

    @property
    def capabilities(self) -> LLMCapabilities:
        """Of the chat API: text. Clients with ids use `server`."""
        return LLMCapabilities(tools=False)

    async def complete(self, request: CompletionRequest) -> Completion:
        """One answer by the model's own chat template.

        Raises:
            ContextLengthError: the conversation is too long.
            LLMError: vLLM failed, or has not started.
        """
        await self.server.started()
        body = {
            "model": _NAME,
            "messages": messages(request.messages),
            "seed": turn_seed(request.conversation, request.turn),
            **sampling_fields(request.sampling),
        }
        try:
            answer = await self._asked.post("/v1/chat/completions", body, timeout_s=None)
        except RefusedError as error:
            if "maximum model length" in str(error) or "context length" in str(error):
                raise ContextLengthError(str(error)) from error
            raise
        return completion(read_answer(json.dumps(answer).encode()), turn=request.turn, model=_NAME)

    async def aclose(self) -> None:
        """End vLLM. Idempotent."""
        await self.server.aclose()
        await self._connections.aclose()


def _model(options: VLLMServerOptions) -> Model:
    folder = options.model.absolute()
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        message = f"{folder} holds no model of transformers: {error}"
        raise InputError([Problem(message=message, path="llm.model")]) from error
    own = config.get("max_position_embeddings") or config["text_config"]["max_position_embeddings"]
    return Model(
        folder=folder,
        name=options.model.name,
        # One place is for the token that vLLM samples when it is asked for scores alone.
        context=min(own, options.context or own) - 1,
        max_running=options.max_batch,
        start_s=options.start_s,
        adapters=options.adapters,
    )


def arguments(options: VLLMServerOptions, model: Model, build: Build, url: str) -> list[str]:
    """Of the interpreter of vLLM's environment."""
    given: dict[str, Any] = {
        "model": model.folder,
        "served-model-name": _NAME,
        "host": "127.0.0.1",
        "port": url.rpartition(":")[2],
        "max-model-len": model.context + 1,
        "max-num-seqs": model.max_running,
        "dtype": options.dtype,
        # Log-probabilities of the sampler, after temperature and top-p.
        "logprobs-mode": "processed_logprobs",
        # Not the sampling that a model's folder suggests, such as its top-k.
        "generation-config": "vllm",
        "weight-transfer-config": '{"backend":"ale_folder"}',
    }
    flags = ["--enable-scale-out"]
    if options.dtype == "auto":
        given["dtype"] = "float32" if build == "cpu" else "bfloat16"
    if build == "cpu":
        given["block-size"] = 32
        flags += ["--enforce-eager"]
    if options.adapters:
        # The present version of each, and the next one.
        given |= {"max-loras": 2 * options.adapters, "max-lora-rank": options.adapter_rank}
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
    return {**without(environ, "PYTHONPATH", "VIRTUAL_ENV"), **own}
