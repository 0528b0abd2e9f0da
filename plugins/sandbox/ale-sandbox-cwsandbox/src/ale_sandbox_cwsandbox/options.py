"""Options of the sandbox ``cwsandbox``."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from attrs import field, frozen

from ale.plugin import doc, ge, gt, optional
from ale.strict import Former
from ale_sandboxing.remote.options import RemoteOptions


@frozen(kw_only=True)
class CwSandboxOptions(RemoteOptions):
    """One sandbox of CoreWeave per task."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "placement": Former(None, "arguments: {placement_mode: ...}"),
        "runtime_class": Former(None, "arguments: {runtime_class: ...}"),
        "data_plane": Former("auto", "arguments: {data_plane_mode: ...}"),
        "wandb_entity": Former(None, "it into the environment variable WANDB_ENTITY"),
        "wandb_project": Former(None, "it into the environment variable WANDB_PROJECT"),
    }

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
    base_url: str | None = field(
        default=None,
        metadata=doc("Address of the service. Default: CWSANDBOX_BASE_URL, else the SDK's own."),
    )
    arguments: Mapping[str, Any] = field(
        factory=dict,
        metadata=doc("Further arguments of cwsandbox.Sandbox, such as {runtime_class: gvisor}."),
    )
    auth: Literal["api-key", "wandb"] | None = field(
        default=None,
        metadata=doc("Kind of key. Default: api-key if there is one, else wandb."),
    )
    api_key_env: str = field(
        default="CWSANDBOX_API_KEY", metadata=doc("Environment variable with the API key.")
    )
