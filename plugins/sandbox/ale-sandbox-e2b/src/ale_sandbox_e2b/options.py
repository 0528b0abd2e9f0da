"""Options of the sandbox ``e2b``."""

from collections.abc import Mapping
from typing import ClassVar

from attrs import field, frozen

from ale.plugin import doc, ge
from ale.strict import Former
from ale_sandboxing.remote.options import RemoteOptions


@frozen(kw_only=True)
class E2bOptions(RemoteOptions):
    """One sandbox of E2B per task."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "domain": Former(None, "it into the environment variable E2B_DOMAIN"),
    }

    template: str = field(
        default="base", metadata=doc("Template to start where the task names no image.")
    )
    templates: Mapping[str, str] = field(
        factory=dict, metadata=doc("Template for each image that tasks name: {image: template}.")
    )
    user: str | None = field(
        default=None, metadata=doc("User of the commands. Default: the template's own.")
    )
    lifetime_s: int = field(
        default=3600,
        validator=ge(1),
        metadata=doc("Seconds after which the service ends a sandbox, whatever became of the run."),
    )
    metadata: Mapping[str, str] = field(
        factory=dict, metadata=doc("Metadata of every sandbox, besides that of the run.")
    )
    api_key_env: str = field(
        default="E2B_API_KEY", metadata=doc("Environment variable with the API key.")
    )
