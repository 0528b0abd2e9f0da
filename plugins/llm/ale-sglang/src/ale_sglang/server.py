"""The component: how SGLang is started."""

import secrets
from pathlib import Path
from typing import Any

from ale.plugin import BuildContext
from ale_servers.gateway import Model
from ale_servers.hosted import NAME, HostedLLM, model_in
from ale_servers.options import ADAPTER_RANK
from ale_servers.program import free_port, without
from ale_servers.supervisor import Command
from ale_sglang.options import SGLangServerOptions
from ale_sglang.program import SGLang
from ale_sglang.recipes import python


def build(options: SGLangServerOptions, context: BuildContext) -> HostedLLM:
    """The component; SGLang starts with the first request.

    Raises:
        InputError: SGLang is not installed, or the folder has no model.
    """
    interpreter = python()  # first: a run checks this before it has written its model
    model = model_in(options)
    url = f"http://127.0.0.1:{free_port()}"
    key = secrets.token_urlsafe(32)
    command = Command(
        argv=(str(interpreter), *arguments(options, model, url), f"--api-key={key}"),
        log=options.log or Path("/dev/stderr"),
        environ=without(context.environ, "PYTHONPATH", "VIRTUAL_ENV"),
    )
    return HostedLLM(model, command, url, SGLang, key=key)


def arguments(options: SGLangServerOptions, model: Model, url: str) -> list[str]:
    """Arguments for the interpreter of SGLang's environment."""
    given: dict[str, Any] = {
        "model-path": model.folder,
        "served-model-name": NAME,
        "host": "127.0.0.1",
        "port": url.rpartition(":")[2],
        "context-length": model.context + 1,
        "max-running-requests": model.max_running,
        "dtype": options.dtype,
        # Ignore the sampling defaults that a model's folder suggests, such as its top-k.
        "sampling-defaults": "openai",
    }
    flags = []
    if options.adapters:
        # Room for the present version of each adapter, and the next one.
        given |= {
            "max-loras-per-batch": 2 * options.adapters,
            "max-lora-rank": ADAPTER_RANK,
            "lora-target-modules": "all",
        }
        flags = ["--enable-lora"]
    named = [f"--{name}={value}" for name, value in given.items()]
    return ["-m", "sglang.launch_server", *named, *flags, *options.arguments]
