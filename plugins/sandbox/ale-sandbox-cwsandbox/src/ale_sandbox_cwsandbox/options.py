"""Options of the sandbox ``cwsandbox``."""

from typing import Literal

from attrs import field, frozen

from ale.plugin import doc, ge, gt, optional
from ale_sandboxing.remote.options import RemoteOptions


@frozen(kw_only=True)
class CwSandboxOptions(RemoteOptions):
    """One sandbox of CoreWeave per task."""

    image: str = field(
        default="python:3.11", metadata=doc("Image to start when the task names none.")
    )
    user: str | None = field(
        default=None,
        metadata=doc("User, or user:group, as numbers. Default: the image's own."),
    )
    cpus: float | None = field(
        default=None,
        validator=optional(gt(0)),
        metadata=doc("Processors to request, and the limit. Default: the service's."),
    )
    memory_mb: int | None = field(
        default=None,
        validator=optional(ge(16)),
        metadata=doc("Memory to request, and the limit, MiB. Default: the service's."),
    )
    gpus: int = field(default=0, validator=ge(0), metadata=doc("GPUs of each sandbox."))
    gpu_type: str | None = field(
        default=None, metadata=doc("Type of the GPUs, by the service's name for it.")
    )
    tags: tuple[str, ...] = field(
        default=("art-rollout",), metadata=doc("Tags of every sandbox, besides those of the run.")
    )
    placement: Literal["serverless", "cks"] | None = field(
        default=None,
        metadata=doc(
            "Where the sandbox runs: in the service's pool, or in a cluster of your own ('cks')."
        ),
    )
    runtime_class: str | None = field(
        default=None,
        metadata=doc(
            "Runtime that runs the container, by the service's name for it, such as gvisor."
        ),
    )
    data_plane: Literal["auto", "direct", "gateway"] = field(
        default="auto",
        metadata=doc(
            "How commands and files travel: directly to the sandbox, or through the gateway."
        ),
    )
    base_url: str | None = field(
        default=None,
        metadata=doc("Address of the service. Default: CWSANDBOX_BASE_URL, else the SDK's own."),
    )
    auth: Literal["api-key", "wandb"] | None = field(
        default=None,
        metadata=doc("Kind of key. Default: api-key if there is one, else wandb."),
    )
    api_key_env: str = field(
        default="CWSANDBOX_API_KEY", metadata=doc("Environment variable with the API key.")
    )
    wandb_entity: str | None = field(
        default=None, metadata=doc("Entity of Weights & Biases. Default: WANDB_ENTITY.")
    )
    wandb_project: str | None = field(
        default=None, metadata=doc("Project of Weights & Biases. Default: WANDB_PROJECT.")
    )
