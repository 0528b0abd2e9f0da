"""Runs code with its visible tests in a sandbox, and reads the result."""

import json
import math
from importlib.resources import files

from attrs import frozen

from ale.errors import SandboxError
from ale.protocols import Sandbox
from ale.types import ExecResult
from ale_agent_attempts.problem import Problem

MISSING = 127
"""Exit code of a command that does not exist, which code can end with too."""

OUT_OF_TIME = (128 + 24, -24)
"""Exit codes of a program that SIGXCPU has ended."""


@frozen(kw_only=True)
class Tested:
    """How code did with its visible tests."""

    error: str | None
    """Why it does not pass; None where it does."""
    verdict: str
    """``2 of 3 tests passed``; empty where the program ended before."""
    output: str
    """What it printed and why tests failed."""
    result: ExecResult
    timed_out: bool
    """It used up its CPU time, or did not end."""


async def run_tests(
    sandbox: Sandbox,
    python: str,
    code: str,
    problem: Problem,
    *,
    cpu_s: float | None,
    timeout_s: float | None,
    max_output_bytes: int,
) -> Tested:
    """Run the code, and then each visible test, in one process of the sandbox.

    The code can fake the result, which ends the episode early and earns nothing: hidden tests
    decide its reward.

    Args:
        python: the interpreter, as the sandbox knows it.
        cpu_s: limit of CPU time for each process, in seconds.
        max_output_bytes: of stdout and of stderr each; head and tail are kept.

    Raises:
        SandboxError: the sandbox has failed, or has no such interpreter.
    """
    program = files(__package__).joinpath("inside", "runner.py").read_text()
    given = {
        "code": code,
        "setup": problem.setup,
        "tests": problem.visible_tests,
        "cpu_s": None if cpu_s is None else math.ceil(cpu_s),
    }
    result = await sandbox.exec(
        [python, "-c", program],
        stdin=json.dumps(given).encode(),
        timeout_s=timeout_s,
        max_output_bytes=max_output_bytes,
    )
    if result.exit_code == MISSING:
        await _require(sandbox, python)
    n = len(problem.visible_tests)
    output = _text(result.stdout)
    verdict = output.rpartition("\n")[2]
    passed = f"{n} of {n} tests passed"
    if not verdict.endswith(f" of {n} tests passed"):
        verdict = ""
    late = result.timed_out or result.exit_code in OUT_OF_TIME
    return Tested(
        error="timed out" if late else _error(result, verdict, passed),
        verdict=verdict,
        output="\n".join(
            filter(None, (output, _text(result.stderr), "" if late else _ending(result, verdict)))
        ),
        result=result,
        timed_out=late,
    )


async def _require(sandbox: Sandbox, python: str) -> None:
    result = await sandbox.exec([python, "-c", ""], timeout_s=60.0)
    if result.exit_code != 0:
        raise SandboxError(
            f"'{python}' can't be run in the sandbox (exit code {result.exit_code}): choose an "
            "image with Python, or set agent.python"
        )


def _error(result: ExecResult, verdict: str, passed: str) -> str | None:
    if result.exit_code == 0 and verdict == passed:
        return None
    return verdict or f"exit code {result.exit_code}"


def _ending(result: ExecResult, verdict: str) -> str:
    if verdict:
        return ""
    return f"[ended with exit code {result.exit_code}, before the tests were over]"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace").rstrip("\n")
