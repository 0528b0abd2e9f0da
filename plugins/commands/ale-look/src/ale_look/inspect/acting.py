"""Which parts of an objective could not act in a run, and which did not."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ale.text import counted

_ROUNDING = 1e-4
"""A ratio that is this close to 1 differs by rounding alone."""

Metrics = Iterable[Mapping[str, float]]


def acting_lines(manifest: Mapping[str, Any], steps: Metrics) -> Iterator[str]:
    """A line for each part that can't act with the settings, or did not in any step; first of all
    what is left of the objective. Nothing of runs whose trainer does not tell.

    Args:
        manifest: its `objective` is `ale.protocols.ObjectiveFacts`.
        steps: the trainer's metrics of each step.
    """
    facts = manifest.get("objective")
    if facts is None:
        return
    if facts["reduces_to"]:
        yield f"{facts['name']} is here {facts['reduces_to']}"
    measured = list(steps)
    for part in facts["parts"]:
        if part["idle"]:
            yield f"{part['name']} can't act: {part['idle']}"
        elif n := _steps_without(part["metrics"], measured):
            yield f"{part['name']} could act, and did not in any of {counted(n, 'step')}"


def _steps_without(neutral: Mapping[str, float], steps: Metrics) -> int:
    """The number of steps that measured the part, if it changed nothing in any; else 0."""
    found = [
        [abs(metrics[name] - at) <= (_ROUNDING if at else 0.0) for name, at in neutral.items()]
        for metrics in steps
        if neutral.keys() <= metrics.keys()
    ]
    return len(found) if all(map(all, found)) else 0
