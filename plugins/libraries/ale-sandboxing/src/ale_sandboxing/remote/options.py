"""Options that every remote sandbox has."""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from ale.plugin import doc, ge, gt


def _absolute(_: Any, attribute: Any, value: str | None) -> None:
    if value is not None and not value.startswith("/"):
        raise ValueError(f"{attribute.name} must be an absolute path in the sandbox")


@frozen(kw_only=True)
class RemoteOptions:
    """Base of the options of a remote sandbox."""

    workdir: str | None = field(
        default=None,
        validator=_absolute,
        metadata=doc("Workspace in the sandbox. Default: the image's own, else /workspace."),
    )
    network: bool | None = field(
        default=None,
        metadata=doc(
            "Connect the sandbox to the network. Default: if the task asks for it. false: never."
        ),
    )
    env: Mapping[str, str] = field(
        factory=dict,
        metadata=doc(
            "Environment variables; those of the task take precedence. The service stores them: no "
            "secrets."
        ),
    )
    lifetime_s: int = field(
        default=7200,
        validator=ge(1),
        metadata=doc("Seconds after which the service ends a sandbox, whatever became of the run."),
    )
    start_timeout_s: float = field(
        default=300.0,
        validator=gt(0),
        metadata=doc(
            "Seconds until an accepted sandbox must run: its image may have to be fetched."
        ),
    )
    retry_s: float = field(
        default=120.0,
        validator=gt(0),
        metadata=doc("Seconds for which a call is repeated while the service does not answer."),
    )
