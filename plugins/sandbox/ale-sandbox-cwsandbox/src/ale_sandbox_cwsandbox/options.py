"""Options of the sandbox ``cwsandbox``."""

from collections.abc import Mapping
from typing import Any, Literal

from attrs import field, frozen, validators

from ale.plugin import doc, ge, gt


def _absolute(_: Any, attribute: Any, value: str | None) -> None:
    if value is not None and not value.startswith("/"):
        raise ValueError(f"{attribute.name} must be an absolute path in the container")


@frozen(kw_only=True)
class CwSandboxOptions:
    """One sandbox of CoreWeave per task."""

    image: str = field(
        default="python:3.11", metadata=doc("Image to start when the task names none.")
    )
    workdir: str | None = field(
        default=None,
        validator=_absolute,
        metadata=doc("Workspace in the container. Default: the image's own, else /workspace."),
    )
    user: str | None = field(
        default=None,
        metadata=doc("User, or user:group, as numbers. Default: the image's own."),
    )
    network: bool | None = field(
        default=None,
        metadata=doc("Let the sandbox connect. Default: when the task asks. false: never."),
    )
    env: Mapping[str, str] = field(
        factory=dict,
        metadata=doc("Environment, under what the task sets. The service stores it: no secrets."),
    )
    cpus: float | None = field(
        default=None,
        validator=validators.optional(gt(0)),
        metadata=doc("Processors to request, and the limit. Default: the service's."),
    )
    memory_mb: int | None = field(
        default=None,
        validator=validators.optional(ge(16)),
        metadata=doc("Memory to request, and the limit, MiB. Default: the service's."),
    )
    gpus: int = field(default=0, validator=ge(0), metadata=doc("GPUs of each sandbox."))
    gpu_type: str | None = field(
        default=None, metadata=doc("Type of the GPUs, by the service's name for it.")
    )
    lifetime_s: int = field(
        default=7200,
        validator=ge(1),
        metadata=doc("Seconds after which the service ends a sandbox, whatever became of the run."),
    )
    tags: tuple[str, ...] = field(
        default=("art-rollout",), metadata=doc("Tags of every sandbox, besides those of the run.")
    )
    placement: Literal["serverless", "cks"] | None = field(
        default=None, metadata=doc("Where it runs: the service's pool, or a cluster of your own.")
    )
    runtime_class: str | None = field(
        default=None, metadata=doc("What runs the container, by the service's name: gvisor.")
    )
    data_plane: Literal["auto", "direct", "gateway"] = field(
        default="auto",
        metadata=doc("How commands and files travel: to the sandbox itself, or by the gateway."),
    )
    base_url: str | None = field(
        default=None,
        metadata=doc("Address of the service. Default: CWSANDBOX_BASE_URL, else the SDK's own."),
    )
    auth: Literal["api-key", "wandb"] | None = field(
        default=None,
        metadata=doc("Kind of key. Default: api-key where there is one, else wandb."),
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
    start_timeout_s: float = field(
        default=300.0,
        validator=gt(0),
        metadata=doc("Seconds for an accepted sandbox to run: its image may have to be fetched."),
    )
    retry_s: float = field(
        default=120.0,
        validator=gt(0),
        metadata=doc("Seconds for which a call is repeated while the service does not answer."),
    )
