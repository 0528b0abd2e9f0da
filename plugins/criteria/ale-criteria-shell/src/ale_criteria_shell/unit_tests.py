"""The criterion that runs tests that the agent never saw.

`ale_grading.signed_tests` and docs/why/grading.md explain how forged verdicts are prevented.
"""

import base64
from collections.abc import Collection, Mapping
from importlib import resources
from typing import Any, ClassVar

from attrs import field, frozen

from ale.protocols import Sandbox
from ale.types import Score, Task, Trajectory, replace
from ale_criteria_shell.options import UnitTestsPassOptions
from ale_criteria_shell.plan import Plan, make_plan
from ale_grading.signed_tests import Look, Report, excerpt, run_signed

SHOWN = 5
"""Failed tests whose output is in the detail."""


@frozen
class UnitTestsPass:
    """Passes when every one of the tests does.

    Raises:
        InputError: when made: there is no test, or one that the runner can't judge.
    """

    options: UnitTestsPassOptions
    needs_workspace: ClassVar[bool] = True
    _plan: Plan = field(init=False, repr=False)
    _units: tuple[Mapping[str, Any], ...] = field(init=False, repr=False)
    _body: Mapping[str, Any] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        plan = make_plan(self.options.tests, self.options.runner)
        object.__setattr__(self, "_plan", plan)
        object.__setattr__(self, "_units", _units(plan, self.options.runner))
        object.__setattr__(self, "_body", _body(plan, self._units, self.options))

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        """One exec for all tests; a second one if the first failed. Raises as `Criterion`."""
        options = self.options
        report = await run_signed(
            sandbox,
            task,
            self._body,
            [_source("child.py")],
            python=options.python,
            env=options.env,
            timeout_s=options.timeout_s,
        )
        return self._score(report)

    async def lacking(self, task: Task, sandbox: Sandbox, *, untouched: bool) -> Collection[str]:
        """The modules of the tests that are missing. Raises as `NeedsTools.lacking`."""
        options = self.options
        look = Look(task=task, sandbox=sandbox, untouched=untouched, env=options.env)
        return await look.modules(
            self._plan.needed, python=options.python, import_paths=options.import_paths
        )

    def _score(self, report: Report) -> Score:
        passed: set[str] = set()
        output: dict[str, str] = {}
        for line in report.units:
            names = self._units[line["unit"]]["names"]
            passed.update(names[index] for index in line["passed"])
            text = "ran out of time" if line["status"] is None else excerpt(line["output"])
            output.update(dict.fromkeys(names, text))
        if report.forged:
            return self._made(
                0.0,
                "forged result: the code under test reported a pass for a test that had not passed",
            )
        if not report.ended:
            return self._made(0.0, f"the code under test killed the runner: {_list(passed)} passed")
        late = any(line["status"] is None for line in report.units)
        return replace(self._judged(passed, output), timed_out=late)

    def _judged(self, passed: set[str], output: Mapping[str, str]) -> Score:
        names = self._plan.names
        failed = [name for name in names if name not in passed]
        if not failed:
            return self._made(1.0, f"all {len(names)} tests passed")
        detail = f"{len(passed)} of {len(names)} tests passed; failed: {_list(failed)}"
        shown = [name for name in failed if name in output][:SHOWN]
        detail += "".join(f"\n--- {name}\n{output[name]}" for name in shown)
        return self._made(len(passed) / len(names) if self.options.partial else 0.0, detail)

    def _made(self, value: float, detail: str) -> Score:
        return Score(criterion="unit_tests_pass", passed=value == 1.0, value=value, detail=detail)


def _units(plan: Plan, runner: str) -> tuple[Mapping[str, Any], ...]:
    """The work of one child: a test, or for pytest, which starts slowly, a file."""
    units = []
    for file in plan.test_files:
        tests = [[test.cls, test.name, test.is_async] for test in file.tests]
        names = [f"{file.path}::{test}" for test in file.tests]
        cuts = [slice(None)] if runner == "pytest" else [slice(i, i + 1) for i in range(len(tests))]
        units += [
            {"file": file.path, "module": file.module, "tests": tests[cut], "names": names[cut]}
            for cut in cuts
        ]
    return tuple(units)


def _body(
    plan: Plan, units: tuple[Mapping[str, Any], ...], options: UnitTestsPassOptions
) -> dict[str, Any]:
    return {
        "runner": options.runner,
        "import_paths": options.import_paths,
        "prefer": options.prefer,
        "pytest_plugins": options.pytest_plugins,
        "files": {p: [mode, base64.b64encode(d).decode()] for p, (mode, d) in plan.files.items()},
        "modules": plan.modules,
        "standard": plan.standard,
        "units": units,
    }


def _source(name: str) -> bytes:
    return resources.files("ale_criteria_shell.inside").joinpath(name).read_bytes()


def _list(names: object) -> str:
    listed = sorted(names) if isinstance(names, set) else list(names)  # type: ignore[call-overload]
    shown = ", ".join(listed[:20])
    return (shown or "none") + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")
