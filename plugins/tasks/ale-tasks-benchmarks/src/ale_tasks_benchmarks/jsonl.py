"""Problems of a JSON-lines file whose fields the options name."""

import string
from typing import Any

from ale.types import Task
from ale_grading.answers import marked
from ale_rows.task_rows import Row, RowTasks, check_exists, rows_below, safe_id
from ale_tasks_benchmarks.options import JsonlOptions
from ale_tasks_benchmarks.source import criterion, environment, goal, written

_INSTRUCTIONS = {
    "python_tests": "Answer with the whole code in one block that begins with ```python.",
    "numeric_answer": "Reason step by step, and end with the answer, written as #### 18",
    "math_equal": r"Reason step by step, and end with the answer, written as \boxed{18}",
    "exact_match": "End with: The answer is ...",
    "choice": "Reason step by step, and end with: The answer is (A), or another letter.",
}


def jsonl(options: JsonlOptions) -> RowTasks:
    """The source ``jsonl``. Raises `InputError`."""
    graded = "tests" if options.criterion == "python_tests" else "expected"
    expected = (
        f"a JSON object per line with {options.prompt!r} and {getattr(options, graded)!r} "
        f"(tasks.prompt and tasks.{graded} name the fields)"
    )
    path = options.path.absolute()
    check_exists(path, expected)
    return RowTasks(options, lambda: rows_below(path, expected), lambda row: _task(row, options))


def _task(row: Row, options: JsonlOptions) -> Task:
    problem = row.text(options.prompt)
    if not problem.strip():
        raise row.problem("the problem is blank", options.prompt)
    metadata: dict[str, Any] = {**environment(options)}
    if options.criterion == "python_tests":
        graded, metadata["python"] = _code(row, options)
        shown = metadata["python"]["visible_tests"]
        if shown:
            tests = "\n".join(shown)
            problem += f"\n\nYour code must pass these tests:\n\n```python\n{tests}\n```"
    else:
        graded = {"expected": _expected(row, options)}
    if options.choices is not None:
        problem += "\n\n" + "\n".join(
            f"{letter}. {choice}" for letter, choice in _choices(row, options).items()
        )
    reference = graded.get("expected")
    given = row.data.get(options.id)
    return Task(
        id=safe_id(row.name if given is None else str(given)),
        goal=goal(problem, _instruction(options), options),
        origin=row.file,
        tags=("jsonl",),
        criteria=(criterion(options.criterion, graded, row, options),),
        solution=None if reference is None else written(reference, options.answer),
        metadata=metadata,
    )


def _instruction(options: JsonlOptions) -> str:
    if options.answer == "message":
        return _INSTRUCTIONS[options.criterion]
    return f"Write the answer to the file {options.answer.removeprefix('file:')}."


def _code(row: Row, options: JsonlOptions) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the criterion, and what the agent may see."""
    found = row.get(options.tests, object)
    tests = [found] if isinstance(found, str) else row.texts(options.tests)
    if not tests:
        raise row.problem("there are no tests", options.tests)
    setup, name = row.text(options.setup, ""), row.data.get(options.entry_point)
    graded: dict[str, Any] = {"setup": setup, "tests": tests}
    visible: dict[str, Any] = {"setup": setup, "visible_tests": tests[: options.shown_tests]}
    if name is not None:
        visible["entry_point"] = row.text(options.entry_point)
        graded["names"] = [visible["entry_point"]]
    return graded, visible


def _expected(row: Row, options: JsonlOptions) -> str:
    value = row.get(options.expected, object)
    if isinstance(value, int | float) and options.choices is not None:
        letters = list(_choices(row, options))
        if not 0 <= value < len(letters):
            raise row.problem(f"{value} is not the position of a choice", options.expected)
        return letters[int(value)]
    if isinstance(value, int | float):
        return repr(value)
    text = row.text(options.expected)
    if options.choices is not None:
        return _letter(row, options, text)
    found = marked(text) if "####" in text or r"\boxed" in text else None
    return text.strip() if found is None else found.text


def _letter(row: Row, options: JsonlOptions, text: str) -> str:
    """The letter of a choice that is given as a letter or as its text."""
    choices = _choices(row, options)
    if text.strip().upper() in choices:
        return text.strip().upper()
    found = [letter for letter, choice in choices.items() if choice == text]
    if len(found) != 1:
        raise row.problem(f"{text!r} is neither a letter nor one of the choices", options.expected)
    return found[0]


def _choices(row: Row, options: JsonlOptions) -> dict[str, str]:
    choices = row.texts(options.choices or "")
    if not 2 <= len(choices) <= len(string.ascii_uppercase):
        raise row.problem("expected a list of 2 to 26 choices", options.choices)
    return dict(zip(string.ascii_uppercase, choices, strict=False))
