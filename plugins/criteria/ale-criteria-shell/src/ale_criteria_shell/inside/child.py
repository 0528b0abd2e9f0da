"""The process in which one test runs, together with the code under test.

`main` is entered in a fresh fork and never returns. Nothing that this process prints or exits with
counts; only `report_pass`, after the test has returned, does. Standard library only, Python 3.8.
"""

# pathlib would add to every start.
# ruff: noqa: PTH109, PTH110, PTH118, PTH120, PTH123

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
import traceback
from types import CodeType, ModuleType
from typing import Any, Callable, Dict, Iterable, Mapping, NoReturn, Tuple  # noqa: UP035

Plan = Dict[str, Any]  # noqa: UP006
ReportPass = Callable[[int], None]
Modules = Mapping[str, Tuple[CodeType, str, bool]]  # noqa: UP006

NO_PYTEST = 0xFFFFFFFF
LANGUAGE = ("builtins", "unittest")
PYTEST = ("pytest", "_pytest", "pluggy")


def main(plan: Plan, unit: Plan, modules: Modules, link: int, decoy: bool) -> NoReturn:
    """Run a unit: one test, or for pytest one file."""
    leave, read, write, flush = os._exit, os.read, os.write, sys.stdout.flush
    code = 1

    def report_pass(index: int) -> None:
        if not decoy:
            write(link, index.to_bytes(4, "big"))
            write(link, read(link, 16))

    try:
        environment(plan)
        if plan["runner"] == "pytest":
            import_pytest(lambda: write(link, NO_PYTEST.to_bytes(4, "big")))
        importable(plan, modules)
        guard = Guard((*LANGUAGE, *plan["standard"]))
        if plan["runner"] == "pytest":
            run_pytest(plan, unit, guard, report_pass)
        else:
            run_builtin(unit, guard)
            report_pass(0)
        code = 0
    except BaseException:  # SystemExit too: a test that did not return has not passed
        flush()
        write(2, traceback.format_exc().encode("utf-8", "replace"))
    try:
        flush()
    finally:
        leave(code)


def environment(plan: Plan) -> None:
    """Working directory, home, and the installed packages, which -S had left out."""
    import site

    os.chdir(plan["workdir"])
    os.environ["HOME"] = os.path.join(plan["folder"], "home")
    plan["own_path"] = list(sys.path)
    site.main()
    sys.argv = [plan["python"]]


def import_pytest(report_missing: Callable[[], object]) -> None:
    """Before anything of the workspace can be imported, so that only its absence is reported."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        import pytest  # noqa: F401
    except ImportError:
        report_missing()
        raise


def importable(plan: Plan, modules: Modules) -> None:
    """The standard library, the tests (from memory), then packages and workspace as asked for."""
    standard = plan["own_path"]
    installed = [entry for entry in sys.path if entry not in standard]
    workspace = [os.path.normpath(os.path.join(os.getcwd(), p)) for p in plan["import_paths"]]
    both = installed + workspace if plan["prefer"] == "installed" else workspace + installed
    sys.path[:] = standard + both
    if plan["runner"] != "pytest":
        sys.meta_path.insert(2, TestModules(modules))


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


class Guard:
    """Detects that functions which the tests rely on have been replaced."""

    def __init__(self, names: Iterable[str]) -> None:
        whole = {"unittest", *PYTEST}.intersection(names)
        guarded = [n for n in sys.modules if n in names or n.partition(".")[0] in whole]
        self.modules = [sys.modules[name] for name in guarded if name != "sys"]
        self.before = self.snapshot()

    def snapshot(self) -> Plan:
        """Every function and class of the guarded modules, and what is in the classes."""
        found = {}
        for module in self.modules:
            for name, value in list(vars(module).items()):
                if callable(value) and (not name.startswith("_") or module.__name__ == "builtins"):
                    found[module.__name__ + "." + name] = value
                    found.update(self.snapshot_class(module.__name__ + "." + name, value))
        return found

    def snapshot_class(self, path: str, value: object) -> Plan:
        """The functions of a class of a test framework."""
        if not isinstance(value, type):
            return {}
        if value.__module__.partition(".")[0] not in ("unittest", *PYTEST):
            return {}
        kinds = (staticmethod, classmethod, property)
        return {
            path + "." + name: item
            for name, item in vars(value).items()
            if callable(item) or isinstance(item, kinds)
        }

    def check(self) -> None:
        """Raise if anything was replaced."""
        now = self.snapshot()
        for name in set(now) | set(self.before):
            known = name in self.before or name.rpartition(".")[0] in self.before
            if known and now.get(name) is not self.before.get(name):
                raise AssertionError(name + " was replaced by the code under test")


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
    if not os.path.exists(config):
        config = os.path.join(plan["folder"], "home", "pytest.ini")
        with open(config, "w") as out:
            out.write("[pytest]\n")
    arguments = ["-q", "-c", config, "--rootdir", root, "--confcutdir", root]
    arguments += ["-p", "no:cacheprovider", "--tb=short", "--no-header"]
    for plugin in plan["pytest_plugins"]:
        arguments += ["-p", plugin]
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
