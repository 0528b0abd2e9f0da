"""Registers the task sources. What reads the files is imported when one is built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import BuildContext, Component, hookimpl
from ale.protocols import TaskSource

if TYPE_CHECKING:
    from ale_tasks_benchmarks.options import (
        Gsm8kOptions,
        HumanEvalOptions,
        JsonlOptions,
        MathOptions,
        MbppOptions,
    )


def _options(name: str) -> Callable[[], type]:
    def late() -> type:
        from ale_tasks_benchmarks.options import OPTIONS

        return OPTIONS[name]

    return late


def _mbpp(options: MbppOptions, context: BuildContext) -> TaskSource:
    from ale_tasks_benchmarks.code import mbpp

    return mbpp(options)


def _humaneval(options: HumanEvalOptions, context: BuildContext) -> TaskSource:
    from ale_tasks_benchmarks.code import humaneval

    return humaneval(options)


def _gsm8k(options: Gsm8kOptions, context: BuildContext) -> TaskSource:
    from ale_tasks_benchmarks.maths import gsm8k

    return gsm8k(options)


def _math(options: MathOptions, context: BuildContext) -> TaskSource:
    from ale_tasks_benchmarks.maths import maths

    return maths(options)


def _jsonl(options: JsonlOptions, context: BuildContext) -> TaskSource:
    from ale_tasks_benchmarks.jsonl import jsonl

    return jsonl(options)


@hookimpl
def ale_task_sources() -> Sequence[Component[Any, TaskSource]]:
    """Register the benchmarks."""
    return [
        Component(
            "mbpp", _options("mbpp"), _mbpp, summary="MBPP: short Python functions, and asserts."
        ),
        Component(
            "humaneval",
            _options("humaneval"),
            _humaneval,
            summary="HumanEval: Python functions to complete.",
        ),
        Component(
            "gsm8k", _options("gsm8k"), _gsm8k, summary="GSM8K: word problems with a number."
        ),
        Component("math", _options("math"), _math, summary="MATH: competition problems."),
        Component(
            "jsonl", _options("jsonl"), _jsonl, summary="Problems of a JSON-lines file of yours."
        ),
    ]
