"""The middleware ``skills`` and the command ``ale skills``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.errors import InputError
from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    import click

    from ale.protocols import Middleware
    from ale_skills.options import SkillOptions


def _build(options: SkillOptions, context: BuildContext) -> Middleware:
    from ale_skills.middleware import Skills

    asked = options.embeddings
    if asked is None or asked.api_key_env is None:
        return Skills(options)
    key = context.secret(asked.api_key_env)
    if key is None:
        message = f"the environment variable {asked.api_key_env} is not set"
        raise InputError.of(message, path="embeddings.api_key_env")
    return Skills(options, key.value)


@hookimpl
def ale_middleware() -> Sequence[Component[SkillOptions, Middleware]]:
    """Register ``skills``."""
    summary = "Adds the skills that fit a task to the system message."
    return [Component("skills", "ale_skills.options:SkillOptions", _build, summary=summary)]


@hookimpl
def ale_commands() -> Sequence[click.Command]:
    """Add ``ale skills``."""
    from ale_skills.commands import skills

    return [skills]
