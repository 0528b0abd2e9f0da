"""What all the task sources do beyond reading rows: prompts, criteria, samples."""

from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from ale.types import CriterionSpec
from ale_rows.task_rows import Row, rows_from
from ale_tasks_benchmarks.options import BenchmarkOrigin, Selection


def benchmark_rows(
    options: BenchmarkOrigin,
    read: Callable[[Path], Iterator[Row]],
    sample_name: str,
    split: str,
    expected: str,
) -> Callable[[], Iterator[Row]]:
    """As `rows_from`, with a sample of this package."""
    return rows_from(options, read, sample(sample_name), split, expected)


def sample(name: str) -> Path:
    """A file or folder of the samples that are part of this package."""
    return Path(str(resources.files("ale_tasks_benchmarks.samples").joinpath(name)))


def criterion(kind: str, options: dict[str, Any], row: Row, selection: Selection) -> CriterionSpec:
    """One criterion, with what the options of the source add."""
    given = {**options, **selection.grading}
    if selection.answer != "message":
        given["answer"] = selection.answer
    return CriterionSpec(type=kind, options=given, file=row.file, line=row.line)


def environment(selection: Selection) -> dict[str, str]:
    """The kind of environment, as metadata: where it is answered in a message, a conversation."""
    return {"environment": "chat" if selection.answer == "message" else "terminal"}


def goal(problem: str, instruction: str, selection: Selection) -> str:
    """The prompt: the problem, then how to answer."""
    text = instruction if selection.instruction is None else selection.instruction
    return f"{problem.strip()}\n\n{text}".strip() + "\n"


def written(answer: str, place: str) -> tuple[str, ...] | None:
    """The commands that write an answer to its file; None where it is given in a message."""
    if place == "message":
        return None
    mark = "ALE_ANSWER"
    while mark in answer:
        mark += "_"
    name = place.removeprefix("file:").replace("'", "'\\''")
    end = "" if answer.endswith("\n") else "\n"
    return (f"cat > '{name}' <<'{mark}'\n{answer}{end}{mark}\n",)
