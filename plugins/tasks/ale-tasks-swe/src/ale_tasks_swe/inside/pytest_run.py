"""How a child of `ale_grading.signed_tests` runs the tests of a file, after that child's own text.

Standard library only, Python 3.8.
"""

# pathlib would add to every start.
# ruff: noqa: PTH118

from __future__ import annotations

import ast
import base64
import importlib.machinery
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Mapping, Tuple  # noqa: UP035

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


def run(plan: Plan, unit: Plan, modules: object, reports: Reports) -> None:
    """Run the listed tests of one file; each is reported once all of its cases have been run."""
    import_pytest(reports.no_pytest)
    importable(plan)
    guard = Guard(LANGUAGE)
    import pytest

    root = plan["workdir"]
    config = os.path.join(root, unit["config"]) if unit["config"] else ""
    arguments = pytest_arguments(plan, root, config)
    arguments += [*plan["pytest_args"], os.path.join(root, unit["file"])]
    sources = Sources(root, plan["workspace"]["files"])
    pytest.main(arguments, plugins=[Outcomes(unit["tests"], guard, reports, sources)])


class Sources:
    """Finds the tests and what configures them in memory.

    A ``conftest.py`` may import the code under test, which could then write the test files anew
    before pytest reads them.
    """

    def __init__(self, root: str, files: Mapping[str, Tuple[int, str]]) -> None:  # noqa: UP006
        from _pytest.assertion.rewrite import rewrite_asserts

        self.rewrite = rewrite_asserts
        self.texts = {
            os.path.join(root, path): base64.b64decode(data)
            for path, (_, data) in files.items()
            if path.endswith(".py")
        }
        self.config: Any = None

    def install(self, config: Any) -> None:
        """Be asked before pytest's own loader."""
        self.config = config
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Any = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The usual spec, with another loader."""
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.origin in self.texts:
            spec.loader = self  # type: ignore[assignment]
            return spec
        return None

    def create_module(self, spec: object) -> None:
        """The default one."""
        return

    def exec_module(self, module: ModuleType) -> None:
        """Run the text, with the assertions rewritten as pytest does it."""
        file = str(module.__file__)
        tree = ast.parse(self.texts[file], file)
        self.rewrite(tree, self.texts[file], file, self.config)
        exec(compile(tree, file, "exec", dont_inherit=True), module.__dict__)  # noqa: S102


class Outcomes:
    """A pytest plugin that selects the listed tests and follows each through all of its cases."""

    def __init__(self, listed: list[str], guard: Guard, reports: Reports, sources: Sources) -> None:
        self.guards, self.reports, self.sources = [guard], reports, sources
        self.exact = {name: index for index, name in enumerate(listed)}
        # Published lists have ids that end at the first blank of a parameter.
        self.cut = [name for name in listed if "[" in name and not name.endswith("]")]
        self.open: dict[int, int] = {}
        self.tests: dict[str, list[int]] = {}
        self.expected_to_fail: set[str] = set()
        self.bad: set[int] = set()
        self.passed: set[str] = set()
        self.pytest_load_initial_conftests = self._begin
        self.pytest_collection_modifyitems = self._select
        self.pytest_collection_finish = self._collected
        self.pytest_runtest_logreport = self._report
        self.pytest_runtest_logfinish = self._finished

    def _listed(self, nodeid: str) -> list[int]:
        names = {nodeid, nodeid.partition("[")[0]}
        names.update(name for name in self.cut if nodeid.startswith(name))
        return sorted(self.exact[name] for name in names if name in self.exact)

    def _begin(self, early_config: object) -> None:
        """Before a conftest.py is imported, and with it perhaps the code under test.

        Not earlier: pytest extends its own classes while it starts.
        """
        self.guards.append(Guard(PYTEST))
        self.sources.install(early_config)

    def _check(self) -> None:
        for guard in self.guards:
            guard.check()

    def _select(self, session: Any, config: Any, items: list[Any]) -> None:
        items[:] = [item for item in items if self._listed(item.nodeid)]

    def _collected(self, session: Any) -> None:
        for item in session.items:
            self.tests[item.nodeid] = self._listed(item.nodeid)
            for index in self.tests[item.nodeid]:
                self.open[index] = self.open.get(index, 0) + 1
            # Declared beforehand: a call of pytest.xfail() is one that the code can make.
            if item.get_closest_marker("xfail") is not None:
                self.expected_to_fail.add(item.nodeid)

    def _report(self, report: Any) -> None:
        indexes = self.tests.get(report.nodeid, [])
        expected = report.nodeid in self.expected_to_fail
        failed_as_expected = expected and report.outcome == "skipped" and report.when == "call"
        clean = report.outcome == "passed" and not hasattr(report, "wasxfail")
        if not (clean or (failed_as_expected and hasattr(report, "wasxfail"))):
            self.bad.update(indexes)
        elif report.when == "call":
            self.passed.add(report.nodeid)

    def _finished(self, nodeid: str, location: object) -> None:
        for index in self.tests.get(nodeid, []):
            self.open[index] -= 1
            if nodeid not in self.passed:
                self.bad.add(index)
            if self.open[index] == 0:
                self._tell(index)

    def _tell(self, index: int) -> None:
        if index in self.bad:
            self.reports.failed(index)
        else:
            self._check()
            self.reports.passed(index)
