"""The process in which a unit of tests runs, together with the code under test.

`main` is entered in a fresh fork and never returns. The text that follows this one in the plan
defines `run`. Nothing that this process prints or exits with counts; only `Reports.passed`, after a
test has returned, does. Standard library only, Python 3.8.
"""

# pathlib would add to every start.
# ruff: noqa: PTH109, PTH118, PTH123

from __future__ import annotations

import os
import sys
import traceback
from types import CodeType
from typing import Any, Callable, Dict, Iterable, Mapping, NoReturn, Tuple  # noqa: UP035

Plan = Dict[str, Any]  # noqa: UP006
Modules = Mapping[str, Tuple[CodeType, str, bool]]  # noqa: UP006

NO_PYTEST, FAILED = 0xFFFFFFFF, 0x80000000
LANGUAGE = ("builtins", "unittest")
PYTEST = ("pytest", "_pytest", "pluggy")


class Reports:
    """What a child may tell the runner; the functions are those from before any code under test."""

    def __init__(self, link: int, decoy: bool) -> None:
        read, write = os.read, os.write

        def passed(index: int) -> None:
            if not decoy:
                write(link, index.to_bytes(4, "big"))
                write(link, read(link, 16))

        def failed(index: int) -> None:
            write(link, (FAILED | index).to_bytes(4, "big"))

        def no_pytest() -> None:
            write(link, NO_PYTEST.to_bytes(4, "big"))

        self.passed: Callable[[int], None] = passed
        self.failed: Callable[[int], None] = failed
        self.no_pytest: Callable[[], None] = no_pytest


def main(plan: Plan, unit: Plan, modules: Modules, link: int, decoy: bool) -> NoReturn:
    """Run a unit."""
    leave, write, flush = os._exit, os.write, sys.stdout.flush
    reports = Reports(link, decoy)
    code = 1
    try:
        environment(plan)
        run(plan, unit, modules, reports)  # type: ignore[name-defined]  # noqa: F821
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


def importable(plan: Plan) -> None:
    """The standard library, then packages and workspace as asked for."""
    standard = plan["own_path"]
    installed = [entry for entry in sys.path if entry not in standard]
    workspace = [os.path.normpath(os.path.join(os.getcwd(), p)) for p in plan["import_paths"]]
    both = installed + workspace if plan["prefer"] == "installed" else workspace + installed
    sys.path[:] = standard + both


def pytest_arguments(plan: Plan, root: str, config: str) -> list[str]:
    """Arguments with which pytest reads this configuration and no other; an empty one if none."""
    if not config:
        config = os.path.join(plan["folder"], "home", "pytest.ini")
        with open(config, "w") as out:
            out.write("[pytest]\n")
    arguments = ["-q", "-c", config, "--rootdir", root, "--confcutdir", root]
    arguments += ["-p", "no:cacheprovider", "--tb=short", "--no-header"]
    for plugin in plan["pytest_plugins"]:
        arguments += ["-p", plugin]
    return arguments


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
