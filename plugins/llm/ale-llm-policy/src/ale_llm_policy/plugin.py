"""Registers the model ``policy``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import BuildContext, Component, Probe, hookimpl
from ale.protocols import LLM

if TYPE_CHECKING:
    from ale_llm_policy.options import PolicyOptions


def _options() -> type[PolicyOptions]:
    from ale_llm_policy.options import PolicyOptions

    return PolicyOptions


def _build(options: PolicyOptions, context: BuildContext) -> LLM:
    from ale_llm_policy.build import build

    return build(options, seed=context.seed)


def probe() -> Probe:
    """Is torch installed? Does not import it."""
    remedy = "pip install -e '.[train]' in a clone; else pip install ale-llm-policy"
    return Probe.of_package("torch", remedy=remedy)


@hookimpl
def ale_llms() -> Sequence[Component[PolicyOptions, LLM]]:
    """Register ``policy``."""
    return [
        Component(
            "policy",
            _options,
            _build,
            summary="A transformer in this process, exact to the token; what a trainer trains.",
            probe=probe,
        )
    ]
