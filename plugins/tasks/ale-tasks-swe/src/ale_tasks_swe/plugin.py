"""Registers the task source ``swe`` and the criterion ``swe_tests``; both are imported late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Benchmark, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Criterion, TaskSource


@hookimpl
def ale_task_sources() -> Sequence[Component[Any, TaskSource]]:
    """Register ``swe``."""
    summary = "Repositories with an issue to resolve, in the format of SWE-bench."
    published = Benchmark(
        "swe-bench",
        criterion="swe_tests",
        problems={"test": 2294, "dev": 225, "train": 19008},
        needs="--data FILE or --dataset NAME",
        home="https://github.com/SWE-bench/SWE-bench",
        agent="iflow",
    )
    return [
        Component(
            "swe",
            "ale_tasks_swe.options:SweOptions",
            "ale_tasks_swe.source:swe",
            summary=summary,
            benchmarks=(published,),
        )
    ]


@hookimpl
def ale_criteria() -> Sequence[Component[Any, Criterion]]:
    """Register ``swe_tests``."""
    summary = "Hidden tests of a repository: some must start to pass, others must still pass."
    return [
        Component(
            "swe_tests",
            "ale_tasks_swe.options:SweTestsOptions",
            "ale_tasks_swe.swe_tests:SweTests",
            summary=summary,
        )
    ]
