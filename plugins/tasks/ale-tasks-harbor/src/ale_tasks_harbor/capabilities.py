"""Features of a sandbox that some tasks require; containers have them."""

from collections.abc import Mapping
from typing import Any

from ale.errors import GradingError
from ale.types import SandboxFeature

MAIN = "main"
"""The agent's own service."""


def unable(feature: SandboxFeature) -> GradingError:
    """The error for a sandbox without a feature."""
    message = f"this sandbox lacks the feature '{feature}'; use 'docker' or 'podman'"
    return GradingError(message)


def required(options: Mapping[str, Any], *, several: bool) -> tuple[SandboxFeature, ...]:
    """The features that a task requires.

    Args:
        options: of its criterion ``task_tests``.
        several: it has service containers.
    """
    parts = [*options.get("artifacts", ()), *options.get("collect", ())]
    wanted: dict[SandboxFeature, bool] = {
        "change-network": any(options.get(key) for key in ("tests_network", "next_agent_network")),
        "list-sessions": bool(options.get("same_shell")),
        "open-sibling": bool(options.get("separate_verifier")),
        "service-containers": several
        or any(part.get("service") not in (None, MAIN) for part in parts),
        "switch-user": any(each.get("user") is not None for each in (options, *parts)),
    }
    return tuple(feature for feature, is_required in wanted.items() if is_required)
