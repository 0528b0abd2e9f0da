"""GSM8K and MATH: problems whose answer is a number or a formula."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ale.errors import InputError, Problem, nearest
from ale.types import Task
from ale_grading.answers import boxed, final_number
from ale_rows.task_rows import Row, RowTasks, check_exists, rows_below, rows_of, safe_id
from ale_tasks_benchmarks.options import Gsm8kOptions, MathOptions, Selection
from ale_tasks_benchmarks.source import benchmark_rows, criterion, environment, goal, written

GSM8K = (
    "train.jsonl and test.jsonl, a JSON object per line with question and answer (which ends with "
    "'#### 18'), from "
    "https://github.com/openai/grade-school-math/tree/master/grade_school_math/data"
)
MATH = (
    "the folder MATH with train/TYPE/N.json and test/TYPE/N.json, or a .jsonl file; objects with "
    "problem, solution (with \\boxed{}), level, type, from https://github.com/hendrycks/math"
)


def gsm8k(options: Gsm8kOptions) -> RowTasks:
    """The source ``gsm8k``. Raises `InputError`."""

    def read(path: Path) -> Iterator[Row]:
        file = path / f"{options.split}.jsonl" if path.is_dir() else path
        check_exists(file, GSM8K)
        return rows_of(file, GSM8K)

    rows = benchmark_rows(options, read, "gsm8k", options.split, GSM8K)
    return RowTasks(options, rows, lambda row: _gsm8k_task(row, options))


def _gsm8k_task(row: Row, options: Gsm8kOptions) -> Task:
    solution = row.text("answer")
    if "####" not in solution or (found := final_number(solution)) is None:
        raise row.problem("the answer does not end with '####' and a number", "answer")
    return Task(
        id=safe_id(f"gsm8k-{row.name}"),
        goal=goal(row.text("question"), _instruction("a number", "#### 18", options), options),
        origin=row.file,
        tags=("gsm8k",),
        criteria=(criterion("numeric_answer", {"expected": found.text}, row, options),),
        solution=written(solution, options.answer),
        metadata={**environment(options), "index": row.index},
    )


def maths(options: MathOptions) -> RowTasks:
    """The source ``math``. Raises `InputError`."""

    def read(path: Path) -> Iterator[Row]:
        inner = path / options.split
        return rows_below(inner if inner.is_dir() else path, MATH)

    rows = _checked(options, benchmark_rows(options, read, "math", options.split, MATH))
    return RowTasks(options, rows, lambda row: _math_task(row, options))


def _checked(
    options: MathOptions, rows: Callable[[], Iterator[Row]]
) -> Callable[[], Iterator[Row]]:
    """The same rows, after which a level or type is reported that none of them has."""

    def read() -> Iterator[Row]:
        levels, types = set(), set()
        for row in rows():
            levels.add(str(row.data.get("level")).removeprefix("Level "))
            types.add(str(row.data.get("type")))
            yield row
        problems = [
            *_missing("level", list(map(str, options.levels)), levels),
            *_missing("type", options.types, types),
        ]
        if problems:
            raise InputError(problems)

    return read


def _missing(option: str, wanted: Sequence[str], found: set[str]) -> list[Problem]:
    lower = [each.lower() for each in found]
    return [
        Problem(
            message=f"no problem has the {option} {each!r}",
            path=f"tasks.{option}s",
            expected=f"some of {', '.join(sorted(found))}",
            hint=nearest(each, found),
        )
        for each in wanted
        if each.lower() not in lower
    ]


def _math_task(row: Row, options: MathOptions) -> Task | None:
    level, kind = row.text("level"), row.text("type")
    solution = row.text("solution")
    found = boxed(solution)
    if found is None:
        raise row.problem(r"the solution has no \boxed{}", "solution")
    if options.levels and level.removeprefix("Level ") not in map(str, options.levels):
        return None
    if options.types and kind.lower() not in [each.lower() for each in options.types]:
        return None
    return Task(
        id=safe_id(f"math-{_place(row)}"),
        goal=goal(row.text("problem"), _instruction("a formula", r"\boxed{18}", options), options),
        origin=row.file,
        tags=("math", safe_id(kind.lower()), safe_id(level.lower())),
        criteria=(criterion("math_equal", {"expected": found.text}, row, options),),
        solution=written(solution, options.answer),
        metadata={**environment(options), "level": level, "type": kind},
    )


def _place(row: Row) -> str:
    """``algebra-12`` of ``test/algebra/12.json``: a file per problem; else name and position."""
    path = Path(row.file)
    if path.suffix == ".json" and path.stem.isdigit():
        return f"{path.parent.name}-{path.stem}"
    return row.name


def _instruction(kind: str, example: str, options: Selection) -> str:
    if options.answer == "message":
        return f"Reason step by step, and end with the answer, {kind}, written as {example}"
    name = options.answer.removeprefix("file:")
    return f"Write the answer, {kind}, to the file {name}, written as {example}"
