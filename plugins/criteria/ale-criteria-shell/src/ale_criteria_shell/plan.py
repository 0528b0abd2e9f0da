"""The list of tests that must pass, read from their source on the host, not in the sandbox.

A test that is not reported as passed has not passed, so the list must be known beforehand.
"""

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from attrs import field, frozen

from ale.errors import InputError, Problem
from ale_grading.signed_tests import needed_modules

MAX_BYTES = 16 << 20
_IGNORED = frozenset({"__pycache__", ".pytest_cache", ".git"})
_FIXTURES = ("setup_module", "teardown_module", "setup_function", "teardown_function")
_TEST_CASE = "TestCase"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@frozen(kw_only=True)
class Test:
    """One test function or method."""

    cls: str | None
    name: str
    is_async: bool = False

    def __str__(self) -> str:
        return self.name if self.cls is None else f"{self.cls}::{self.name}"


@frozen(kw_only=True)
class TestFile:
    """A file of tests; `module` is the name under which it is imported."""

    path: str
    module: str
    tests: tuple[Test, ...]


@frozen(kw_only=True)
class Plan:
    """Everything that is sent for grading, read once: later changes on the host do not count."""

    files: Mapping[str, tuple[int, bytes]]
    """Relative path to mode and content."""
    modules: Mapping[str, tuple[str, bool]]
    """Name of each module among the files to its path, and whether it is a package."""
    test_files: tuple[TestFile, ...]
    standard: tuple[str, ...]
    """Modules of the standard library that the tests import."""
    needed: tuple[str, ...] = ()
    """Other packages that they import, and that are none of their own files."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every test that must pass, as ``file::Class::name``."""
        return tuple(f"{file.path}::{test}" for file in self.test_files for test in file.tests)


@frozen
class _Report:
    """Collects what is wrong with the tests."""

    problems: list[Problem] = field(factory=list)

    def add(self, message: str, file: Path | None = None, line: int | None = None) -> None:
        self.problems.append(
            Problem(message=message, path="tests", file=str(file) if file else None, line=line)
        )


def make_plan(tests: Path, runner: str) -> Plan:
    """Read a file or a folder of tests.

    Raises:
        InputError: there are none, or some that this runner could not judge; every one is named.
    """
    report = _Report()
    files = _read(tests, report)
    if report.problems:
        raise InputError(report.problems)
    root = tests if tests.is_dir() else tests.parent
    package = tests.is_dir() and "__init__.py" in files
    modules = _modules(files, root.name if package else None)
    trees = {
        path: _parse(root / path, data, report)
        for path, (_, data) in sorted(files.items())
        if path.endswith(".py")
    }
    found = []
    for name, (path, _) in sorted(modules.items()):
        tree = trees.get(path)
        if tree is not None and _is_test_file(path, tests) and name not in files:
            listed = tuple(_tests(tree, root / path, runner, report))
            found.append(TestFile(path=path, module=name, tests=listed))
    found = [file for file in _once(found) if file.tests]
    if runner == "builtin":
        _need_pytest(trees, root, report)
    if not found and not report.problems:
        report.add("no test was found: name files test_*.py and functions test_*", tests)
    if report.problems:
        raise InputError(report.problems)
    imports = {name for tree in trees.values() if tree is not None for name in _imports(tree)}
    standard = sorted(n for n in imports if n.partition(".")[0] in sys.stdlib_module_names)
    whole = {n for tree in trees.values() if tree is not None for n in needed_modules(tree)}
    whole -= {name.partition(".")[0] for name in modules}
    return Plan(
        files=files,
        modules=modules,
        test_files=tuple(found),
        standard=tuple(standard),
        needed=tuple(sorted(whole)),
    )


def _read(tests: Path, report: _Report) -> dict[str, tuple[int, bytes]]:
    if tests.is_file():
        if tests.suffix != ".py":
            report.add("expected a Python file or a folder", tests)
        return {tests.name: (tests.stat().st_mode & 0o777, tests.read_bytes())}
    if not tests.is_dir():
        report.add("there is no such file or folder", tests)
        return {}
    files: dict[str, tuple[int, bytes]] = {}
    total = 0
    for path in sorted(tests.rglob("*")):
        relative = path.relative_to(tests)
        if path.is_file() and not _IGNORED.intersection(relative.parts):
            total += path.stat().st_size
            if total > MAX_BYTES:
                report.add(f"the folder holds more than {MAX_BYTES >> 20} MiB", tests)
                return {}
            files[relative.as_posix()] = (path.stat().st_mode & 0o777, path.read_bytes())
    return files


def _modules(files: Mapping[str, object], package: str | None) -> dict[str, tuple[str, bool]]:
    """Names for the Python files: as seen from the folder and, for a package, from above it."""
    modules: dict[str, tuple[str, bool]] = {}
    for path in files:
        pure = PurePosixPath(path)
        if pure.suffix != ".py":
            continue
        parts = pure.with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        if name:
            modules[name] = (path, is_package)
        if package is not None:
            modules[f"{package}.{name}".rstrip(".")] = (path, is_package)
    return modules


def _once(files: Sequence[TestFile]) -> list[TestFile]:
    """Each file under its longest name, so that relative imports work."""
    best: dict[str, TestFile] = {}
    for file in files:
        if file.path not in best or len(file.module) > len(best[file.path].module):
            best[file.path] = file
    return [best[path] for path in sorted(best)]


def _is_test_file(path: str, tests: Path) -> bool:
    stem = PurePosixPath(path).stem
    return tests.is_file() or stem.startswith("test_") or stem.endswith("_test")


def _parse(file: Path, data: bytes, report: _Report) -> ast.Module | None:
    try:
        return ast.parse(data, filename=str(file))
    except (SyntaxError, ValueError) as error:
        report.add(f"not valid Python: {error}", file, getattr(error, "lineno", None))
        return None


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _need_pytest(trees: Mapping[str, ast.Module | None], root: Path, report: _Report) -> None:
    for path, tree in trees.items():
        why = None
        if PurePosixPath(path).name == "conftest.py":
            why = "conftest.py is pytest's"
        elif tree is not None and any(n.partition(".")[0] == "pytest" for n in _imports(tree)):
            why = "the file imports pytest"
        if why:
            report.add(f"{why}: use 'runner: pytest'", root / path)


def _body(nodes: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements at the top, those under ``if`` and ``try`` included."""
    for node in nodes:
        if isinstance(node, ast.If | ast.Try):
            yield from _body(node.body)
            yield from _body(node.orelse)
        else:
            yield node


def _tests(tree: ast.Module, file: Path, runner: str, report: _Report) -> Iterator[Test]:
    top = list(_body(tree.body))
    classes = {node.name: node for node in top if isinstance(node, ast.ClassDef)}
    seen: set[str] = set()
    for node in top:
        if isinstance(node, Function) and runner == "builtin" and node.name in _FIXTURES:
            report.add(f"{node.name} is pytest's: use 'runner: pytest'", file, node.lineno)
        if isinstance(node, Function) and node.name.startswith("test"):
            _check(node, 0, runner, file, report)
            test = Test(cls=None, name=node.name, is_async=isinstance(node, ast.AsyncFunctionDef))
            if node.name not in seen:
                yield test
            seen.add(node.name)
    for node in classes.values():
        if _is_test_class(node, classes):
            yield from _methods(node, classes, file, runner, report)


def _is_test_class(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> bool:
    if node.name.startswith("Test"):
        return True
    return any(base.endswith(_TEST_CASE) for base in _ancestors(node, classes))


def _ancestors(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    """Names of all bases, those of bases in the same file included."""
    for base in node.bases:
        name = ast.unparse(base)
        yield name
        if name in classes and classes[name] is not node:
            yield from _ancestors(classes[name], classes)


def _methods(
    node: ast.ClassDef,
    classes: Mapping[str, ast.ClassDef],
    file: Path,
    runner: str,
    report: _Report,
) -> Iterator[Test]:
    bases = list(_ancestors(node, classes))
    for base in bases:
        if base not in classes and base != "object" and not base.endswith(_TEST_CASE):
            report.add(
                f"class {node.name}: its base {base} is not in this file, so its tests can't be "
                "listed",
                file,
                node.lineno,
            )
    methods: dict[str, Function] = {}
    for name in [*reversed([base for base in bases if base in classes]), node.name]:
        found = [item for item in _body(classes[name].body) if isinstance(item, Function)]
        methods.update({item.name: item for item in found if item.name.startswith("test")})
    for method in methods.values():
        _check(method, 1, runner, file, report)
        yield Test(
            cls=node.name, name=method.name, is_async=isinstance(method, ast.AsyncFunctionDef)
        )


def _check(node: Any, bound: int, runner: str, file: Path, report: _Report) -> None:
    """Without pytest nothing provides the parameters."""
    given = node.args
    required = len(given.posonlyargs) + len(given.args) - len(given.defaults) - bound
    static = any(ast.unparse(d) == "staticmethod" for d in node.decorator_list)
    patched = sum("patch" in ast.unparse(d) for d in node.decorator_list)
    if runner == "builtin" and required + static * bound - patched > 0:
        report.add(
            f"{node.name} takes arguments (fixtures, parameters): use 'runner: pytest'",
            file,
            node.lineno,
        )
