"""Registers the model and the trainer ``tinker``. The SDK is imported when they are built."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import BuildContext, Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import LLM, Trainer
    from ale_tinker.options import ModelOptions, TrainerOptions

REMEDY = "pip install 'tinker>=0.38,<0.39'"
_KEY = "TINKER_API_KEY"


def _sdk() -> Probe:
    return Probe.of_package("tinker", remedy=REMEDY)


def probe() -> Probe:
    """Are the SDK and a key there? The service is not asked."""
    sdk = _sdk()
    if not sdk.usable or os.environ.get(_KEY):
        return sdk
    return Probe(usable=False, reason=f"{_KEY} is not set", remedy=f"export {_KEY}=tml-...")


def _model(options: ModelOptions, context: BuildContext) -> LLM:
    _sdk().check()
    from ale_tinker.model import build

    return build(options, context)


def _trainer(options: TrainerOptions, context: BuildContext) -> Trainer:
    _sdk().check()
    from ale_tinker.trainer import build

    return build(options, context)


@hookimpl
def ale_llms() -> Sequence[Component[Any, LLM]]:
    """Register ``tinker``."""
    return [
        Component(
            "tinker",
            "ale_tinker.options:ModelOptions",
            _model,
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
            _trainer,
            summary="Trains the model of llm: {type: tinker} on that service.",
            probe=probe,
            needs=("llm",),
        )
    ]
