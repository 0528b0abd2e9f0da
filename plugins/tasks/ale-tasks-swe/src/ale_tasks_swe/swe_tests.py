"""The criterion ``swe_tests``: which tests of a repository pass after the agent's work.

docs/why/grading.md explains how forged verdicts are prevented, and what is not.
"""

import base64
import json
import secrets
from collections.abc import Collection, Sequence
from importlib import resources
from typing import Any, ClassVar

from ale.errors import InputError, NoVerdictError
from ale.protocols import Sandbox
from ale.types import Score, Task, Trajectory, replace
from ale_grading.signed_tests import (
    Look,
    Report,
    clean,
    excerpt,
    lacking_of_line,
    new_scratch,
    run_signed,
)
from ale_tasks_swe.expected import expected_files
from ale_tasks_swe.git import GitError
from ale_tasks_swe.options import RESTORED, SweTestsOptions
from ale_tasks_swe.verdict import score_of

CHECK_S = 120.0
"""Seconds to look for changed files."""
OUTPUT_BYTES = 20_000
"""Of what each file's tests print: its end."""


class SweTests:
    """Passes when all tests of both lists do.

    Raises:
        InputError: when made: the test patch does not apply, or a test can't be run.
    """

    needs_workspace: ClassVar[bool] = True

    def __init__(self, options: SweTestsOptions) -> None:
        self.options = options
        listed = [*dict.fromkeys((*options.fail_to_pass, *options.pass_to_pass))]
        if not listed:
            raise _wrong("fail_to_pass and pass_to_pass are both empty")
        files = _by_file(listed) if options.test_command is None else {}
        try:
            self._expected = expected_files(options, [*files])
        except GitError as error:
            raise _wrong(str(error)) from error
        self._units: list[dict[str, Any]] = [
            {"file": file, "tests": tests, "config": self._expected.configs[file]}
            for file, tests in files.items()
        ]
        if options.test_command is not None:
            # Believed as it is, so no second run is needed to find forged claims.
            unit = {"command": options.test_command, "tests": listed, "decoy": False}
            self._units = [{"file": options.test_command, **unit}]

    async def lacking(self, task: Task, sandbox: Sandbox, *, untouched: bool) -> Collection[str]:
        """The programs of ``test_command`` or the modules of the tests that are missing.

        Raises as `NeedsTools.lacking`.
        """
        options = self.options
        # Every repository names what its tests import: that asks no agent to provide it.
        told = options.test_command is not None
        look = Look(task=task, sandbox=sandbox, untouched=untouched and told, env=options.env)
        if options.test_command is not None:
            return await lacking_of_line(options.test_command, look)
        return await look.modules(
            self._expected.needed, python=options.python, import_paths=options.import_paths
        )

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        """Restore the files of the tests, run them, and judge both lists. Raises as `Criterion`."""
        options, expected = self.options, self._expected
        changed = await self._changed(task, sandbox)
        files = {**expected.always, **expected.read(changed)}
        sent = {path: [mode, base64.b64encode(d).decode()] for path, (mode, d) in files.items()}
        body = {
            "units": self._units,
            "files": {},
            "modules": {},
            "standard": (),
            "tail_bytes": OUTPUT_BYTES,
            "import_paths": options.import_paths,
            "prefer": options.prefer,
            "pytest_plugins": options.pytest_plugins,
            "pytest_args": options.pytest_args,
            "workspace": {
                "files": sent,
                "absent": expected.absent,
                # What the agent compiled would be taken for the code of the sources beside it.
                "names": (*RESTORED, "__pycache__"),
                "known": expected.known,
            },
        }
        report = await run_signed(
            sandbox,
            task,
            body,
            [_source("pytest_run.py" if options.test_command is None else "command_run.py")],
            python=options.python,
            env=options.env,
            timeout_s=options.timeout_s,
        )
        return self._score(report, changed)

    async def _changed(self, task: Task, sandbox: Sandbox) -> Sequence[str]:
        """The files to restore that are not as they were, beside those that are always written."""
        if not self._expected.checked:
            return ()
        mark = secrets.token_hex(16)
        given = {"workdir": sandbox.workdir, "files": self._expected.checked, "mark": mark}
        text = _source("differing.py").decode()
        program = (
            f"exec(compile({text!r}, '<ale grading>', 'exec'), {{'__name__': 'ale_differing'}})"
        )
        result = await sandbox.exec(
            clean(
                (self.options.python, "-I", "-S", "-B", "-c", program),
                task,
                self.options.env,
                new_scratch(),
            ),
            timeout_s=CHECK_S,
            stdin=json.dumps(given).encode(),
            max_output_bytes=16 << 20,
        )
        _, found, rest = result.stdout.decode(errors="replace").rpartition(mark)
        if result.exit_code != 0 or not found:
            why = "ran out of time" if result.timed_out else f"exit code {result.exit_code}"
            raise NoVerdictError(
                f"the files of the tests could not be checked with {self.options.python!r} in the "
                f"sandbox ({why}): {excerpt(result.stderr)}"
            )
        named: list[str] = json.loads(rest)
        return [path for path in named if path in self._expected.checked]

    def _score(self, report: Report, restored: Sequence[str]) -> Score:
        passed, failed, output = set[str](), set[str](), list[str]()
        for line in report.units:
            unit = self._units[line["unit"]]
            tests, text = unit["tests"], excerpt(line["output"], OUTPUT_BYTES)
            passed.update(tests[index] for index in line["passed"])
            failed.update(tests[index] for index in line["failed"])
            late = "\nran out of time" if line["status"] is None else ""
            output.append(f"--- {unit['file']}\n{text}{late}")
        why = ""
        if report.forged:
            why = "forged result: a pass was reported for a test that had not passed"
        elif not report.ended:
            why = "the code under test killed the runner"
        score = score_of(
            self.options,
            passed=passed,
            failed=failed,
            restored=restored,
            output="\n".join(output),
            void=why,
        )
        return replace(score, timed_out=any(line["status"] is None for line in report.units))


def _by_file(listed: Sequence[str]) -> dict[str, list[str]]:
    files: dict[str, list[str]] = {}
    for name in listed:
        file, separator, _ = name.partition("::")
        if not separator or not file.endswith(".py") or file.startswith("/") or ".." in file:
            raise _wrong(
                f"{name!r} is not pytest's id of a test, FILE.py::TEST; for other tests give a "
                "test_command"
            )
        files.setdefault(file, []).append(name)
    return files


def _wrong(message: str) -> InputError:
    return InputError.of(message, path="swe_tests")


def _source(name: str) -> bytes:
    return resources.files("ale_tasks_swe.inside").joinpath(name).read_bytes()
