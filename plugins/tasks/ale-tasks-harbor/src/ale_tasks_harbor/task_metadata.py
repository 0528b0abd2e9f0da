"""Metadata of a ``task.toml``: tags, ignored keys, the author's own keys."""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import dropwhile
from typing import Any

from ale_tasks_harbor.values import MISSPELT, Values

_CANARY = re.compile(r"<!--.*canary.*-->|#.*canary.*", re.IGNORECASE)
_KNOWN: Mapping[str, Collection[str]] = {
    "": {
        *("schema_version", "version", "source", "multi_step_reward_strategy", "artifacts"),
        *("task", "metadata", "agent", "verifier", "environment", "solution", "steps"),
    },
    "task": {"name", "version", "description", "authors", "keywords"},
    "agent": {"timeout_sec", "user", "network_mode", "allowed_hosts"},
    "verifier": {
        *("timeout_sec", "env", "user", "environment_mode", "environment", "collect"),
        *("network_mode", "allowed_hosts"),
    },
    "environment": {
        *("docker_image", "build_timeout_sec", "os", "cpus", "memory_mb", "storage_mb", "gpus"),
        *("gpu_types", "tpu", "network_mode", "allowed_hosts", "env", "workdir", "healthcheck"),
        *("skills_dir", "mcp_servers", "memory", "storage", "allow_internet"),
    },
    "solution": {"env"},
}
_STEP = {"name", "min_reward", "agent", "verifier", "healthcheck", "artifacts"}
_HEALTHCHECK = {
    *("command", "timeout_sec", "interval_sec", "start_interval_sec", "start_period_sec"),
    "retries",
}
_TAKEN = (
    "format",
    "name",
    "difficulty",
    "build_timeout_s",
    "ignored_keys",
    "tags",
    "agent_needs",
    MISSPELT,
)
"""Names in a task's metadata that this package uses itself."""


def without_canary(text: str) -> str:
    """An instruction without the canary at its beginning, which marks it for filters of corpora.

    As in Harbor: comments with the word ``canary``, and the blank lines after them.
    """
    lines = text.split("\n")
    shown = dropwhile(lambda line: _CANARY.fullmatch(line.strip()), lines)
    return "\n".join(dropwhile(lambda line: not line.strip(), shown))


def tags(metadata: Values) -> tuple[str, ...]:
    """The task's tags, and its category."""
    found = metadata.values.get("tags", [])
    category = metadata.values.get("category")
    tags = [tag for tag in found if isinstance(tag, str)] if isinstance(found, list) else []
    return (*tags, *([category] if isinstance(category, str) else []))


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The author's own keys as JSON values; dates and lists become text."""
    return {
        name: value if isinstance(value, str | int | float) else str(value)
        for name, value in values.items()
        if name not in _TAKEN
    }


def ignored(root: Values, steps: Sequence[Values]) -> list[str]:
    """Keys that are not used here; they are stored with the run."""
    tables = [(root.table(name) if name else root, known) for name, known in _KNOWN.items()]
    tables.append((root.table("environment").table("healthcheck"), _HEALTHCHECK))
    for step in steps:
        tables += [
            (step, _STEP),
            (step.table("agent"), _KNOWN["agent"]),
            (step.table("verifier"), _KNOWN["verifier"]),
            (step.table("healthcheck"), _HEALTHCHECK),
        ]
    unknown = [key for table, known in tables for key in table.unknown(known)]
    sizes = root.table("environment").values
    odd = [key for key in ("memory", "storage") if not isinstance(sizes.get(key, ""), str)]
    return [*unknown, *(f"environment.{key}" for key in odd)]
