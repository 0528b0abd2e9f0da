"""Registers the model and the trainer ``tinker``. The SDK is imported when they are built."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import LLM, Trainer

REMEDY = "pip install 'tinker>=0.38,<0.39'"
_KEY = "TINKER_API_KEY"


def probe() -> Probe:
    """Are the SDK and a key there? The service is not asked."""
    sdk = Probe.of_package("tinker", remedy=REMEDY)
    if not sdk.usable or os.environ.get(_KEY):
        return sdk
    return Probe(usable=False, reason=f"{_KEY} is not set", remedy=f"export {_KEY}=tml-...")


@hookimpl
def ale_llms() -> Sequence[Component[Any, LLM]]:
    """Register ``tinker``."""
    return [
        Component(
            "tinker",
            "ale_tinker.options:ModelOptions",
            "ale_tinker.model:build",
            summary="An open model on the service Tinker, exact to the token.",
            probe=probe,
        )
    ]


@hookimpl
def ale_trainers() -> Sequence[Component[Any, Trainer]]:
    """Register ``tinker``."""
    return [
        Component(
            "tinker",
            "ale_tinker.options:TrainerOptions",
            "ale_tinker.trainer:build",
            summary="Trains the model of llm: {type: tinker} on that service.",
            probe=probe,
            needs=("llm",),
        )
    ]
