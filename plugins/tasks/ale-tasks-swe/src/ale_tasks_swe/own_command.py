"""Tests that a command of the task runs: its JUnit report is believed as it is."""

import secrets
from collections.abc import Iterator
from xml.etree import ElementTree

from ale.errors import GradingError
from ale.protocols import Sandbox
from ale.types import Task
from ale_signed_tests import clean, excerpt, new_scratch, remove
from ale_tasks_swe.options import SweTestsOptions
from ale_tasks_swe.verdict import Verdict

REPORT_BYTES = 64 << 20
OUTPUT_BYTES = 20_000
# $1 mark, $2 command, $3 folder. The report comes between two marks, the output after them.
_RUN = """
mkdir -m 700 -- "$3" "$3/home" || exit 125
REPORT=$3/report.xml
export REPORT
printf '%s started\\n' "$1" >&2
/bin/sh -c "$2" > "$3/output" 2>&1 < /dev/null
code=$?
[ ! -f "$REPORT" ] || cat -- "$REPORT"
printf '\\n%s\\n' "$1"
tail -c 20000 -- "$3/output"
cd / && rm -rf -- "$3"
exit $code
"""


async def run_command(options: SweTestsOptions, task: Task, sandbox: Sandbox) -> Verdict:
    """Run the command, read its report, and match its tests with those of the lists.

    Raises:
        GradingError: it could not be started.
        SandboxError: the sandbox is gone.
    """
    mark, scratch = secrets.token_hex(16), new_scratch()
    command = ("/bin/sh", "-c", _RUN, "ale-grading", mark, options.test_command or "")
    result = await sandbox.exec(
        clean(command, task, options.env, scratch),
        timeout_s=options.timeout_s,
        max_output_bytes=REPORT_BYTES,
    )
    if result.timed_out or result.exit_code > 128:
        await remove(sandbox, scratch)
    if f"{mark} started".encode() not in result.stderr:
        raise GradingError(
            f"the test command could not be started (exit code {result.exit_code}): "
            f"{excerpt(result.stderr)}"
        )
    report, _, output = result.stdout.partition(f"\n{mark}\n".encode())
    text = f"--- {options.test_command}\n{excerpt(output, OUTPUT_BYTES)}"
    if result.timed_out:
        return Verdict(
            options=options, passed=(), failed=(), output=text, void="the tests ran out of time"
        )
    try:
        cases = dict(_cases(report))
    except ElementTree.ParseError as error:
        why = f"the test command wrote no JUnit report to $REPORT: {error}"
        return Verdict(options=options, passed=(), failed=(), output=text, void=why)
    return Verdict(
        options=options,
        passed={name for name, passed in cases.items() if passed},
        failed={name for name, passed in cases.items() if not passed},
        output=text,
    )


def _cases(report: bytes) -> Iterator[tuple[str, bool]]:
    """Every name that a test case may have in the lists, and whether it passed."""
    # Entities are refused: one that expands to gigabytes would end this process.
    if b"<!DOCTYPE" in report or b"<!ENTITY" in report:
        raise ElementTree.ParseError("a report has no document type")
    for case in ElementTree.fromstring(report).iter("testcase"):  # noqa: S314
        passed = not any(case.find(kind) is not None for kind in ("failure", "error", "skipped"))
        name, group, file = (case.get(key, "") for key in ("name", "classname", "file"))
        yield name, passed
        for prefix in filter(None, (group, file)):
            yield f"{prefix}::{name}", passed
        if group:
            yield f"{group}.{name}", passed
            yield f"{name} ({group})", passed
            yield from _node_ids(group, name, passed)


def _node_ids(group: str, name: str, passed: bool) -> Iterator[tuple[str, bool]]:
    """As pytest names a test of the class ``tests.test_a.TestB``: by file, then class."""
    parts = group.split(".")
    for cut in range(1, len(parts) + 1):
        yield "::".join(["/".join(parts[:cut]) + ".py", *parts[cut:], name]), passed
