"""How a child of `ale_grading.signed_tests` runs the hidden tests, after that child's own text.

Standard library only, Python 3.8.
"""

# pathlib would add to every start.
# ruff: noqa: PTH110, PTH118, PTH120

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Callable, Mapping, Tuple  # noqa: UP035

if TYPE_CHECKING:  # in the sandbox they are there: their text comes before this one
    from ale_grading.signed_tests.inside.child import (
        LANGUAGE,
        PYTEST,
        Guard,
        Plan,
        Reports,
        import_pytest,
        importable,
        pytest_arguments,
    )

ReportPass = Callable[[int], None]
Modules = Mapping[str, Tuple[CodeType, str, bool]]  # noqa: UP006


def run(plan: Plan, unit: Plan, modules: Modules, reports: Reports) -> None:
    """Run a unit: one test, or for pytest one file."""
    if plan["runner"] == "pytest":
        import_pytest(reports.no_pytest)
    importable(plan)
    if plan["runner"] != "pytest":
        sys.meta_path.insert(2, TestModules(modules))
    guard = Guard((*LANGUAGE, *plan["standard"]))
    if plan["runner"] == "pytest":
        run_pytest(plan, unit, guard, reports.passed)
    else:
        run_builtin(unit, guard)
        reports.passed(0)


class TestModules:
    """Finds the tests and their helpers in memory: changes on disk have no effect.

    Each gets builtins of its own, so that patched ones do not reach the tests.
    """

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.builtins = dict(vars(sys.modules["builtins"]))

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for a module of the tests; for a folder without __init__.py too."""
        if name in self.modules and name:
            _, file, is_package = self.modules[name]
            spec = importlib.machinery.ModuleSpec(
                name,
                self,  # type: ignore[arg-type]  # importlib.abc is not worth its import
                origin=file,
                is_package=is_package,
            )
            spec.has_location = True
            if is_package:
                spec.submodule_search_locations = [os.path.dirname(file)]
            return spec
        if any(known.startswith(name + ".") for known in self.modules):
            spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = []
            return spec
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """The default one."""
        return

    def exec_module(self, module: ModuleType) -> None:
        """Run the code that was compiled before any code under test was there."""
        module.__dict__["__builtins__"] = self.builtins
        exec(self.modules[module.__name__][0], module.__dict__)  # noqa: S102


def run_builtin(unit: Plan, guard: Guard) -> None:
    """Import the test's module and run the one test in it; raises unless it passes."""
    cls, name, is_async = unit["tests"][0]
    module = importlib.import_module(unit["module"])
    guard.check()
    unittest = sys.modules.get("unittest")
    if cls is None:
        call(getattr(module, name), is_async)
    else:
        owner = getattr(module, cls)
        if unittest is not None and issubclass(owner, unittest.TestCase):
            run_case(unittest, owner(name))
        else:
            run_method(owner(), name, is_async)
    guard.check()


def call(function: Callable[[], Any], is_async: bool) -> None:
    """Call a test function."""
    result = function()
    if is_async:
        import asyncio

        asyncio.run(result)


def run_method(instance: object, name: str, is_async: bool) -> None:
    """Call a method of a plain test class, with its set-up and tear-down."""
    getattr(instance, "setup_method", lambda *_: None)()
    try:
        call(getattr(instance, name), is_async)
    finally:
        getattr(instance, "teardown_method", lambda *_: None)()


def run_case(unittest: Any, case: Any) -> None:
    """Run one unittest case, class and module fixtures included; only a clean pass counts."""
    result = unittest.TestResult()
    unittest.TestSuite([case]).run(result)
    for _, text in result.failures + result.errors:
        raise AssertionError(text)
    odd = result.skipped or result.expectedFailures or result.unexpectedSuccesses
    if odd or result.testsRun != 1:
        raise AssertionError("the test was skipped, or expected to fail, or did not run")


def run_pytest(plan: Plan, unit: Plan, guard: Guard, report_pass: ReportPass) -> None:
    """Run the listed tests of one file; each is reported when all of its cases have passed."""
    import pytest

    root = os.path.join(plan["folder"], "tests")
    file = os.path.join(root, unit["file"])
    wanted = ["::".join(part for part in test[:2] if part) for test in unit["tests"]]
    config = os.path.join(root, "pytest.ini")
    arguments = pytest_arguments(plan, root, config if os.path.exists(config) else "")
    arguments += [file + "::" + name for name in wanted]
    pytest.main(arguments, plugins=[Outcomes(wanted, guard, report_pass)])


class Outcomes:
    """A pytest plugin that follows each listed test through all of its cases."""

    def __init__(self, wanted: list[str], guard: Guard, report_pass: ReportPass) -> None:
        self.wanted, self.guards, self.report_pass = wanted, [guard], report_pass
        self.open: dict[str, int] = {}
        self.bad: set[str] = set()
        self.called: set[str] = set()
        self.pytest_sessionstart = self._started
        self.pytest_collection_finish = self._collected
        self.pytest_runtest_logreport = self._report
        self.pytest_runtest_logfinish = self._finished

    def _test(self, nodeid: str) -> str:
        return nodeid.partition("::")[2].partition("[")[0]

    def _started(self, session: object) -> None:
        # Not earlier: pytest extends its own classes while it starts.
        self.guards.append(Guard(PYTEST))

    def _check(self) -> None:
        for guard in self.guards:
            guard.check()

    def _collected(self, session: Any) -> None:
        self._check()
        for item in session.items:
            test = self._test(item.nodeid)
            self.open[test] = self.open.get(test, 0) + 1

    def _report(self, report: Any) -> None:
        if report.outcome != "passed" or hasattr(report, "wasxfail"):
            self.bad.add(self._test(report.nodeid))
        if report.when == "call":
            self.called.add(report.nodeid)

    def _finished(self, nodeid: str, location: object) -> None:
        test = self._test(nodeid)
        self.open[test] -= 1
        if nodeid not in self.called:
            self.bad.add(test)
        if self.open[test] == 0 and test not in self.bad and test in self.wanted:
            self._check()
            self.report_pass(self.wanted.index(test))
