"""The middleware ``hints`` and ``skills``, and the command ``ale skills``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    import click

    from ale.protocols import Middleware


@hookimpl
def ale_middleware() -> Sequence[Component[Any, Middleware]]:
    """Register ``hints`` and ``skills``."""
    return [
        Component(
            "hints",
            "ale_middleware.hints.options:HintOptions",
            "ale_middleware.hints.hints:build",
            summary=(
                "Adds a text to the system message: one for all tasks, one per task, "
                "or stored feedback."
            ),
        ),
        Component(
            "skills",
            "ale_middleware.skills.options:SkillOptions",
            "ale_middleware.skills.middleware:built",
            summary="Adds the skills that fit a task to the system message.",
        ),
    ]


@hookimpl
def ale_commands() -> Mapping[str, Sequence[click.Command]]:
    """Add ``ale skills``."""
    from ale_middleware.skills.commands import skills

    return {"Data and training": [skills]}
