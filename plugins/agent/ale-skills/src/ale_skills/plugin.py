"""The middleware ``skills`` and the command ``ale skills``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    import click

    from ale.protocols import Middleware


@hookimpl
def ale_middleware() -> Sequence[Component[Any, Middleware]]:
    """Register ``skills``."""
    summary = "Adds the skills that fit a task to the system message."
    build = "ale_skills.middleware:built"
    return [Component("skills", "ale_skills.options:SkillOptions", build, summary=summary)]


@hookimpl
def ale_commands() -> Sequence[click.Command]:
    """Add ``ale skills``."""
    from ale_skills.commands import skills

    return [skills]
