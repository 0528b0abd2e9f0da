"""The model ``scripted``: plays a script or a recorded run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import LLM
    from ale_llm_scripted.options import ScriptedOptions


@hookimpl
def ale_llms() -> Sequence[Component[ScriptedOptions, LLM]]:
    """Register ``scripted``."""
    return [
        Component(
            "scripted",
            "ale_llm_scripted.options:ScriptedOptions",
            "ale_llm_scripted.model:build",
            summary="Plays a written script or a recorded run; for tests and demonstrations.",
        )
    ]
