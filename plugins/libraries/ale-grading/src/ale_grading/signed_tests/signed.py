"""Runs tests in a sandbox, and believes what the signer of `inside/supervisor.py` has signed."""

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from attrs import frozen

from ale.errors import NoVerdictError
from ale.protocols import Sandbox
from ale.types import ExecResult, Task
from ale_grading.signed_tests.clean import by_clock, clean, excerpt, new_scratch, remove

GRACE_S = 15.0
"""The runner ends by itself when its time by the clock is over, or twice that with its decoy; it is
killed later."""
LONGEST_S = 280.0
"""Seconds by the clock for all units, if CPU time allows no more: twice that is below
``run.grading_timeout_s``."""

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


@frozen(kw_only=True)
class Report:
    """What the runner reported."""

    units: tuple[Mapping[str, Any], ...]
    """Of each unit that was run: `unit` (its number), `passed` and `failed` (positions of tests in
    it), `status` (None where it ran out of time) and `output`."""
    forged: bool
    """A pass was reported for a test that had not passed."""
    ended: bool
    """Every unit was run. If not, the code under test has killed the runner."""


async def run_signed(
    sandbox: Sandbox,
    task: Task,
    plan: Mapping[str, Any],
    child: Sequence[bytes],
    *,
    python: str,
    env: Mapping[str, str],
    timeout_s: float,
) -> Report:
    """Run the units of a plan: one exec for all of them, and a second one if the first failed.

    Args:
        plan: `units`, each with its `tests` and, where no pass of it needs to be looked at for
            forgery, `decoy` as False; `files` and `modules` of hidden tests; `standard`,
            modules to import before the code under test; `workspace`, see `restore_workspace`
            of the runner; and what the child asks for.
        child: texts of programs that follow `inside/child.py` and define ``run``.
        python: interpreter in the sandbox.
        env: added to the clean environment.
        timeout_s: seconds of CPU time for all units together, with what they start; by the clock,
            eight times as many, but not above `LONGEST_S`.

    Raises:
        NoVerdictError: the tests could not be started or set up.
        SandboxError: the sandbox is gone.
    """
    key, scratch, runner = secrets.token_bytes(32), new_scratch(), _source("supervisor.py")
    texts = [_source("child.py").decode(), *(text.decode() for text in child)]
    wait_s = by_clock(timeout_s, LONGEST_S)
    body = {
        **plan,
        "child": texts,
        "python": python,
        "timeout_s": timeout_s,
        "wait_s": wait_s,
        "key": key.hex(),
        "workdir": sandbox.workdir,
    }
    command = (python, "-I", "-S", "-B", "-c", _BOOT, str(len(runner)))
    result = await sandbox.exec(
        clean(command, task, env, scratch),
        timeout_s=2 * wait_s + GRACE_S,
        stdin=runner + json.dumps(body).encode(),
        max_output_bytes=16 << 20,
    )
    messages = _verified(result.stdout, key)
    report = messages.get("report")
    if report is None or report["left"]:
        await remove(sandbox, scratch, began="started" in messages)  # raises when it is gone
    if "started" not in messages:
        raise not_begun(result, python)
    return _read([] if report is None else report["lines"], python)


def not_begun(result: ExecResult, python: str) -> NoVerdictError:
    """The error for a command of which nothing says that the tests were started."""
    why = "ran out of time" if result.timed_out else f"exit code {result.exit_code}"
    return NoVerdictError(
        f"the tests could not be started with {python!r} in the sandbox ({why}): "
        f"{excerpt(result.stderr)}"
    )


def _read(lines: Sequence[Mapping[str, Any]], python: str) -> Report:
    for line in lines:
        if line.get("error"):
            raise NoVerdictError(_error(line["error"], python))
    return Report(
        units=tuple(line for line in lines if "unit" in line),
        forged=any(line.get("forged", False) for line in lines),
        ended=bool(lines) and lines[-1] == {"done": True},
    )


def _source(name: str) -> bytes:
    return resources.files("ale_grading.signed_tests.inside").joinpath(name).read_bytes()


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
            f"pytest is not installed for {python!r} in the sandbox: install it in the image, or "
            "name another 'python'"
        )
    return f"the tests could not be set up in the sandbox: {text}"
