"""Runs in the sandbox: code and tests from stdin, what failed to stdout.

Source is given to `linecache` under a name, so that tracebacks show its lines. What only failures
need is imported when one is there: most of the time of a quick test is that of imports.
"""

import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any


SOURCES: "dict[str, str]" = {}
"""What was run, by name."""


def run(name: str, source: str, namespace: "dict[str, Any]") -> "str | None":
    """Run source in a namespace; the traceback of what ended it, or None."""
    SOURCES[name] = source
    try:
        exec(compile(source, name, "exec"), namespace)  # noqa: S102 - what this is for
    except BaseException as error:  # SystemExit too: code that exits has not passed
        return trace(error)
    return None


def trace(error: BaseException) -> str:
    """The traceback as Python prints it, without the frames of this file."""
    import linecache
    import traceback

    for name, source in SOURCES.items():
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    found = traceback.TracebackException.from_exception(error)
    kept = [frame for frame in found.stack if frame.filename != "<string>"]
    found.stack = traceback.StackSummary.from_list(kept)
    return "".join(found.format())


def failure(test: str, error: str, namespace: "dict[str, Any]") -> str:
    """What the model is shown of a failed test: of ``assert a == b`` also the value of ``a``."""
    left = _left_side(test)
    if left is None or not error.rstrip().endswith("AssertionError"):
        return error
    try:
        value = eval(left, namespace)  # noqa: S307 - the test did the same
        shown = f"is {value!r}"
    except BaseException as raised:
        shown = f"raises {raised!r}"
    return f"failed: {test}\n    the left side {shown}\n"


def _left_side(test: str) -> "CodeType | None":
    import ast

    statements = ast.parse(test).body
    if len(statements) != 1 or not isinstance(statements[0], ast.Assert):
        return None
    comparison = statements[0].test
    if not isinstance(comparison, ast.Compare) or not isinstance(comparison.ops[0], ast.Eq):
        return None
    return compile(ast.Expression(comparison.left), "test", "eval")


def parts(setup: str, code: str) -> "list[tuple[str, str]]":
    """What is run before the tests: the set-up, then the code, which may continue it."""
    if setup and not _parses(code) and _parses(setup + code):
        return [("code.py", setup + code)]
    return [("setup.py", setup), ("code.py", code)]


def _parses(source: str) -> bool:
    try:
        compile(source, "code.py", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def main() -> None:
    """Run set-up, code and each test in one namespace, that of a module ``answer``."""
    given = json.load(sys.stdin)
    if given["cpu_s"] is not None:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        soft = given["cpu_s"] if hard == resource.RLIM_INFINITY else min(given["cpu_s"], hard)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
    module = sys.modules["answer"] = type(sys)("answer")
    namespace = vars(module)
    n, failures = len(given["tests"]), []
    for name, source in parts(given["setup"], given["code"]):
        if wrong := run(name, source, namespace):
            print(f"{wrong}0 of {n} tests passed", flush=True)
            sys.exit(1)
    for test in given["tests"]:
        if wrong := run("test", test, namespace):
            failures.append(failure(test, wrong, namespace))
    print("".join(failures), end="")
    print(f"{n - len(failures)} of {n} tests passed", flush=True)
    sys.exit(1 if failures else 0)


main()
