"""The criterion ``python_tests``: tests and answer run in two processes, and only values pass.

docs/why/python-tests.md says why, and what that prevents.
"""

import hmac
import importlib.util
import marshal
import secrets
from collections.abc import Collection, Sequence
from functools import cache
from hashlib import blake2b
from importlib import resources
from typing import Any

from attrs import field, frozen

from ale.errors import GradingError
from ale.protocols import Sandbox
from ale.types import Score, Task, Trajectory
from ale_criteria_python.inside import wire
from ale_criteria_python.names import classes, combines, free_names, replaced, unsupported
from ale_criteria_python.options import PythonTestsOptions
from ale_grading.answers import Extracted, answer_code, messages_of, parsed_python, read_answer_file
from ale_grading.signed_tests import (
    Look,
    by_clock,
    needed_modules,
    new_scratch,
    not_begun,
    remove,
    variables,
)

GRACE_S = 15.0
"""The tests end by themselves after `total_timeout_s`; what does not is killed later."""
LONGEST_S = 480.0
"""Seconds by the clock for all tests, if CPU time allows no more: below ``run.grading_timeout_s``,
so that an answer that only waits fails, and does not break its episode."""
SHOWN = 5
"""Failed tests whose errors are in the detail."""
PARTS = (
    *("wire", "channel", "twins", "candidate", "around", "decoys", "hiding", "remote", "carried"),
    *("spawner", "tester"),
)

# The last argument is the scratch folder. Only the place for temporary files is taken over, as the
# backend clears it away.
_CLEAN = """
scratch=${TMPDIR:-/tmp}/$1 && shift
exec /usr/bin/env -i "TMPDIR=${TMPDIR:-/tmp}" "HOME=$scratch" "$@" "$scratch"
"""

# Reads no byte more than the program: what follows is not for all processes. The compiled program
# is for the Python that compiled it; compiling takes longer than a short test.
_BOOT = """
import os, sys
sys.version_info >= (3, 8) or sys.exit("Python 3.8 or later is needed")
import _frozen_importlib_external, marshal
def part():
    data = b""
    size = int.from_bytes(os.read(0, 8), "big")
    while len(data) < size:
        more = os.read(0, size - len(data))
        data += more or sys.exit("the program did not arrive")
    return data
magic, compiled, source = part(), part(), part()
same = magic == _frozen_importlib_external.MAGIC_NUMBER
code = marshal.loads(compiled) if same else compile(source, "<ale grading>", "exec")
exec(code, {"__name__": "ale_grading"})
"""


@frozen
class PythonTests:
    """Passes when every one of the tests does."""

    options: PythonTestsOptions
    _names: tuple[str, ...] = field(init=False, repr=False)
    _modules: tuple[str, ...] = field(init=False, repr=False)
    _replaced: tuple[str, ...] = field(init=False, repr=False)
    _combines: bool = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        names, modules = free_names(self.options.tests, self.options.setup)
        object.__setattr__(self, "_names", (*self.options.names, *names))
        object.__setattr__(self, "_modules", modules)
        object.__setattr__(self, "_replaced", replaced(self.options.tests))
        object.__setattr__(self, "_combines", combines(self.options.tests, self._names))

    @property
    def needs_workspace(self) -> bool:
        """Is the answer a file? See `ale.protocols.RunsPrograms`."""
        return self.options.answer != "message"

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        """One exec for all tests; a second one if the first failed. Raises as `Criterion`."""
        found, why = await self._answer(trajectory, sandbox)
        if found is None:
            await remove(sandbox, new_scratch())  # raises where the sandbox is gone
            return _score(0.0, why)
        if reason := unsupported(self.options.tests, self._names):
            raise GradingError(f"the tests of {task.id} can't be run: {reason}")
        key, scratch = secrets.token_bytes(32), new_scratch()
        options = self.options
        result = await sandbox.exec(
            self._command(task, scratch),
            timeout_s=self._longest_s() + GRACE_S,
            stdin=_program()
            + _part(self._plan(found.text, sandbox))
            + _part(self._tests(task, key)),
            max_output_bytes=16 << 20,
        )
        report = _verified(result.stdout, key)
        began = result.stdout.startswith(b"ale-started\n")
        if report is None or report.get("left"):
            await remove(sandbox, scratch, began=began)
        if not began:
            raise not_begun(result, options.python)
        if report is None:
            ended = "ran out of time" if result.timed_out else "was ended"
            detail = f"the process of the tests {ended} by the answer, {found.source}"
            return _score(0.0, detail, timed_out=result.timed_out)
        if "unsupported" in report:
            raise GradingError(f"the tests of {task.id} can't be run: {report['unsupported']}")
        return self._judged(report["tests"], report["timed_out"], found)

    async def _answer(
        self, trajectory: Trajectory, sandbox: Sandbox
    ) -> tuple[Extracted | None, str]:
        if self.options.answer == "message":
            found = answer_code(messages_of(trajectory))
            return found, "no message of the agent has a block of Python code"
        return await read_answer_file(self.options.answer, sandbox)

    async def lacking(self, task: Task, sandbox: Sandbox, *, untouched: bool) -> Collection[str]:
        """The modules of the tests that are missing. Raises as `NeedsTools.lacking`."""
        options = self.options
        trees = map(parsed_python, options.tests)
        needed = frozenset().union(*map(needed_modules, trees)) - {"answer"}
        look = Look(task=task, sandbox=sandbox, untouched=untouched, env=options.env)
        # The tests' process imports nothing of the workspace.
        return await look.modules(sorted(needed), python=options.python, import_paths=())

    def _command(self, task: Task, scratch: str) -> Sequence[str]:
        environment = variables(task, self.options.env)
        python = (self.options.python, "-I", "-S", "-B", "-c", _BOOT)
        return ("/bin/sh", "-c", _CLEAN, "ale-grading", scratch, *environment, *python)

    def _plan(self, answer: str, sandbox: Sandbox) -> bytes:
        """What the answer's process may know."""
        options = self.options
        return wire.pack(
            {
                "answer": answer,
                "setup": options.setup,
                "paths": [] if options.answer == "message" else [sandbox.workdir],
                "timeout_s": options.timeout_s,
                "total_timeout_s": options.total_timeout_s,
                "wait_s": by_clock(options.timeout_s, self._longest_s()),
                "total_wait_s": self._longest_s(),
                "memory_mb": options.memory_mb,
            }
        )

    def _longest_s(self) -> float:
        """Seconds by the clock for all tests."""
        return by_clock(self.options.total_timeout_s, LONGEST_S)

    def _tests(self, task: Task, key: bytes) -> bytes:
        """What it must not know."""
        used, spelled = classes(
            self.options.tests, self._names, f"{task.goal}\n{self.options.setup}"
        )
        return wire.pack(
            {
                "tests": list(self.options.tests),
                "names": self._names,
                "modules": self._modules,
                "replaced": self._replaced,
                "combines": self._combines,
                "classes": used,
                "spelled": spelled,
                "key": key,
            }
        )

    def _judged(self, errors: Sequence[str | None], timed_out: bool, found: Extracted) -> Score:
        total = len(self.options.tests)
        failed = [(i, error) for i, error in enumerate(errors, 1) if error is not None]
        passed = total - len(failed)
        detail = f"{passed} of {total} tests passed; the answer is {found.source}"
        detail += "".join(f"\ntest {i}: {error}" for i, error in failed[:SHOWN])
        if len(failed) > SHOWN:
            detail += f"\nand {len(failed) - SHOWN} more"
        value = passed / total if self.options.partial or not failed else 0.0
        return _score(value, detail, timed_out=timed_out)


def _score(value: float, detail: str, *, timed_out: bool = False) -> Score:
    return Score(
        criterion="python_tests",
        passed=value == 1.0,
        value=value,
        detail=detail,
        timed_out=timed_out,
    )


def _part(data: bytes) -> bytes:
    return len(data).to_bytes(8, "big") + data


@cache
def _program() -> bytes:
    """The modules of `inside` as one, compiled for this Python and as text for any other."""
    folder = resources.files("ale_criteria_python.inside")
    texts = [folder.joinpath(f"{name}.py").read_text("utf-8") for name in PARTS]
    future = "from __future__ import annotations\n"
    source = future + "\n".join(text.replace(future, "") for text in texts)
    code = compile(source, "<ale grading>", "exec", dont_inherit=True, optimize=2)
    compiled = marshal.dumps(code)
    return b"".join(map(_part, (importlib.util.MAGIC_NUMBER, compiled, source.encode())))


def _verified(stdout: bytes, key: bytes) -> dict[str, Any] | None:
    """The report of the tests' process; lines that are not signed are ignored."""
    for line in stdout.splitlines():
        words = line.split(b" ")
        if len(words) == 3 and words[0] == b"ale-report":
            text = bytes.fromhex(words[2].decode("ascii", "replace"))
            if hmac.compare_digest(blake2b(text, key=key).hexdigest().encode(), words[1]):
                report: dict[str, Any] = wire.unpack(text)
                return report
    return None
