"""The keys of a task file. The JSON Schema and the error messages come from these classes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ale.plugin import doc
from ale_tasks_tbp import rules

REST = "rest"
"""Marks the field for all keys that no other field has."""


@frozen(kw_only=True)
class CriterionEntry:
    """One criterion. All other keys are options of the criterion."""

    type: str = field(
        validator=rules.not_blank, metadata=doc("Name of the criterion, as `ale plugins` lists it.")
    )
    weight: float = field(
        default=1.0,
        validator=rules.positive,
        metadata=doc("Share of the reward, before division by the sum of all weights."),
    )
    options: Mapping[str, Any] = field(
        factory=dict,
        validator=rules.finite,
        metadata={**doc("Options of the criterion."), REST: True},
    )


@frozen(kw_only=True)
class ConstraintsEntry:
    """Limits. The stricter of task and config wins."""

    network: bool | None = field(
        default=None, metadata=doc("false: no network; true: the task needs one.")
    )
    time_limit_s: float | None = field(
        default=None, validator=rules.positive, metadata=doc("Wall-clock seconds for the agent.")
    )
    max_steps: int | None = field(
        default=None, validator=rules.positive, metadata=doc("Tool calls.")
    )
    max_turns: int | None = field(
        default=None, validator=rules.positive, metadata=doc("Answers of the model.")
    )


@frozen(kw_only=True)
class EnvironmentEntry:
    """Requirements on the sandbox."""

    image: str | None = field(
        default=None, validator=rules.not_blank, metadata=doc("Container image.")
    )
    build: Path | None = field(
        default=None,
        metadata=doc("Folder with a Dockerfile, relative to the task file."),
    )
    env: Mapping[str, str] = field(factory=dict, metadata=doc("Environment variables."))
    cpus: float | None = field(default=None, validator=rules.positive, metadata=doc("Processors."))
    memory_mb: int | None = field(
        default=None, validator=rules.positive, metadata=doc("Memory, MiB.")
    )
    storage_mb: int | None = field(
        default=None, validator=rules.positive, metadata=doc("Disk, MiB.")
    )


@frozen(kw_only=True)
class TaskFile:
    """One task for an agent in a terminal."""

    id: str = field(validator=rules.task_id, metadata=doc("Name of the task, unique in its set."))
    goal: str = field(validator=rules.not_blank, metadata=doc("Prompt for the agent."))
    success_criteria: tuple[CriterionEntry, ...] = field(
        validator=rules.one_or_more,
        metadata=doc("Criteria of the result: {type, weight, ...}."),
    )
    description: str = field(default="", metadata=doc("Description for people."))
    tags: tuple[str, ...] = field(
        default=(), validator=rules.none_blank, metadata=doc("Tags to select tasks by.")
    )
    setup_steps: tuple[str, ...] = field(
        default=(),
        validator=rules.none_blank,
        metadata=doc("Shell commands that run before the agent, in the workspace."),
    )
    constraints: ConstraintsEntry = field(
        default=ConstraintsEntry(), metadata=doc("Limits for the agent.")
    )
    environment: EnvironmentEntry = field(
        default=EnvironmentEntry(), metadata=doc("Requirements on the sandbox.")
    )
    keep_processes: bool = field(
        default=False,
        metadata=doc("Keep the agent's processes running during grading."),
    )
    solution: tuple[str, ...] | None = field(
        default=None,
        validator=rules.none_blank,
        metadata=doc("Reference solution: commands, run one by one in one shell."),
    )
    metadata: Mapping[str, Any] = field(
        factory=dict, validator=rules.finite, metadata=doc("Any other data.")
    )
