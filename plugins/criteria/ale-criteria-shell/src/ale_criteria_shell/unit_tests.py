"""The criterion that runs tests that the agent never saw.

`inside/supervisor.py` and docs/why/grading.md explain how forged verdicts are prevented.
"""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from importlib import resources
from typing import Any

from attrs import field, frozen

from ale.errors import GradingError
from ale.protocols import Sandbox
from ale.types import ExecResult, Score, Task, Trajectory
from ale_criteria_shell import shell
from ale_criteria_shell.options import UnitTestsPassOptions
from ale_criteria_shell.plan import Plan, make_plan
from ale_criteria_shell.shell import clean, excerpt

GRACE_S = 15.0
"""The runner ends by itself after `timeout_s`, or twice that with its decoy; it is killed later."""
SHOWN = 5
"""Failed tests whose output is in the detail."""

# Reads exactly the runner from stdin and not a byte more: what follows is not for all processes.
_BOOT = """
import os, sys
sys.version_info >= (3, 8) or sys.exit("Python 3.8 or later is needed")
left, parts = int(sys.argv[1]), []
while left:
    parts.append(os.read(0, left))
    left -= len(parts[-1]) or sys.exit("the runner did not arrive")
exec(compile(b"".join(parts), "<ale grading>", "exec"), {"__name__": "ale_grading"})
"""


@frozen
class UnitTestsPass:
    """Passes when every one of the tests does.

    Raises:
        InputError: when made: there is no test, or one that the runner can't judge.
    """

    options: UnitTestsPassOptions
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
        options, key, scratch = self.options, secrets.token_bytes(32), shell.new_scratch()
        body = {**self._body, "key": key.hex(), "workdir": sandbox.workdir}
        runner = _source("supervisor.py")
        python = (options.python, "-I", "-S", "-B", "-c", _BOOT, str(len(runner)))
        result = await sandbox.exec(
            clean(python, task, options.env, scratch),
            timeout_s=2 * options.timeout_s + GRACE_S,
            stdin=runner + json.dumps(body).encode(),
            max_output_bytes=16 << 20,
        )
        messages = _verified(result.stdout, key)
        report = messages.get("report")
        if report is None or report["left"]:
            await shell.remove(sandbox, scratch)  # raises when the sandbox is gone
        if "started" not in messages:
            raise GradingError(self._not_begun(result))
        lines = report["lines"] if report is not None else []
        return self._score(lines, ended=report is not None and lines[-1:] == [{"done": True}])

    def _not_begun(self, result: ExecResult) -> str:
        why = "ran out of time" if result.timed_out else f"exit code {result.exit_code}"
        return (
            f"the tests could not be started with {self.options.python!r} in the sandbox ({why}): "
            f"{excerpt(result.stderr)}"
        )

    def _score(self, lines: list[dict[str, Any]], *, ended: bool) -> Score:
        passed: set[str] = set()
        output: dict[str, str] = {}
        forged = False
        for line in lines:
            if line.get("error"):
                raise GradingError(_error(line["error"], self.options.python))
            forged = forged or line.get("forged", False)
            if "unit" in line:
                names = self._units[line["unit"]]["names"]
                passed.update(names[index] for index in line["passed"])
                text = "ran out of time" if line["status"] is None else excerpt(line["output"])
                output.update(dict.fromkeys(names, text))
        if forged:
            return self._made(
                0.0,
                "forged result: the code under test reported a pass for a test that had not passed",
            )
        if not ended:
            return self._made(0.0, f"the code under test killed the runner: {_list(passed)} passed")
        return self._judged(passed, output)

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
    """What one child runs: a test, or for pytest, which starts slowly, a file."""
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
        "timeout_s": options.timeout_s,
        "python": options.python,
        "import_paths": options.import_paths,
        "prefer": options.prefer,
        "pytest_plugins": options.pytest_plugins,
        "child": _source("child.py").decode(),
        "files": {p: [mode, base64.b64encode(d).decode()] for p, (mode, d) in plan.files.items()},
        "modules": plan.modules,
        "standard": plan.standard,
        "units": units,
    }


def _source(name: str) -> bytes:
    return resources.files("ale_criteria_shell.inside").joinpath(name).read_bytes()


def _verified(stdout: bytes, key: bytes) -> dict[str, Any]:
    """Messages of the signer by kind; lines without a valid signature are ignored."""
    messages: dict[str, Any] = {}
    for line in stdout.splitlines():
        kind, _, rest = line.partition(b" ")
        mark, _, text = rest.partition(b" ")
        right = hmac.new(key, kind + b" " + text, hashlib.sha256).hexdigest().encode()
        if hmac.compare_digest(mark, right):
            messages[kind.decode()] = json.loads(text)
    return messages


def _error(text: str, python: str) -> str:
    if text == "pytest":
        return (
            f"pytest is not installed for {python!r} in the sandbox: install it in the image, name "
            "another 'python', or use 'runner: builtin'"
        )
    return f"the tests could not be set up in the sandbox: {text}"


def _list(names: object) -> str:
    listed = sorted(names) if isinstance(names, set) else list(names)  # type: ignore[call-overload]
    shown = ", ".join(listed[:20])
    return (shown or "none") + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")
