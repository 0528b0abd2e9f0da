"""What the criterion reports, restores and refuses."""

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ale.errors import GradingError, InputError, SandboxError
from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale.types import Score, Task, replace
from ale_tasks_swe.git import git

from .conftest import criterion_of, set_up

Grade = Callable[..., Awaitable[Score]]
FILE = "tests/test_ranges.py"


@pytest.fixture
def ranges(tasks: Mapping[str, Task]) -> Task:
    return tasks["ranges"]


async def test_both_lists_say_what_passed_failed_and_is_missing(
    ranges: Task, grade: Grade, sandbox: FolderSandbox
) -> None:
    await set_up(ranges, sandbox)
    score = await grade(
        ranges,
        fail_to_pass=(f"{FILE}::test_write", f"{FILE}::test_round_trip"),
        pass_to_pass=(f"{FILE}::test_parse", f"{FILE}::test_absent", "tests/test_no.py::test_a"),
    )
    first, wanted, kept = score.detail.splitlines()[:3]
    assert first == "not resolved"
    assert wanted == (
        "FAIL_TO_PASS: 1 of 2 passed; passed: tests/test_ranges.py::test_write; "
        "failed: tests/test_ranges.py::test_round_trip"
    )
    assert kept == (
        "PASS_TO_PASS: 0 of 3 passed; failed: tests/test_ranges.py::test_parse; "
        "missing: tests/test_ranges.py::test_absent, tests/test_no.py::test_a"
    )
    assert "assert '1-2,5-8' == '1-3,5-9'" in score.detail


async def test_a_list_may_have_ids_that_end_at_the_first_blank(
    ranges: Task, grade: Grade, sandbox: FolderSandbox
) -> None:
    await set_up(ranges, sandbox, solved=True)
    score = await grade(ranges, fail_to_pass=(f"{FILE}::test_parse[2-4,",), pass_to_pass=())
    assert score.passed, score.detail


async def test_a_test_that_used_to_pass_and_now_fails_is_not_resolved(
    ranges: Task, grade: Grade, sandbox: FolderSandbox
) -> None:
    await set_up(ranges, sandbox, solved=True)
    await sandbox.write("ranges/writing.py", b"def write(numbers):\n    return '1-3,5-9'\n")
    score = await grade(ranges)
    assert score.value == 0.0
    assert "FAIL_TO_PASS: 3 of 3 passed" in score.detail
    assert "PASS_TO_PASS: 3 of 4 passed" in score.detail
    assert "failed: tests/test_ranges.py::test_write" in score.detail


async def test_files_of_the_tests_that_the_agent_changed_are_restored_and_named(
    tasks: Mapping[str, Task], grade: Grade, sandbox: FolderSandbox
) -> None:
    task = tasks["expiry"]
    await set_up(task, sandbox, solved=True)
    await sandbox.write("tests/clock.py", b"raise SystemExit\n")
    score = await grade(task)
    assert score.passed
    assert "restored before the tests: tests/clock.py" in score.detail
    assert await sandbox.read("tests/clock.py") == b"raise SystemExit\n"


async def test_a_workspace_that_the_agent_has_emptied_is_a_zero(
    ranges: Task, grade: Grade, sandbox: FolderSandbox
) -> None:
    await set_up(ranges, sandbox)
    await sandbox.exec("find . -mindepth 1 -delete")
    score = await grade(ranges)
    assert score.value == 0.0
    assert "No module named 'ranges'" in score.detail


async def test_tests_that_take_too_long_are_a_zero_that_says_so(
    ranges: Task, grade: Grade, sandbox: FolderSandbox
) -> None:
    await set_up(ranges, sandbox)
    await sandbox.write("ranges/parsing.py", b"import time\ntime.sleep(60)\n")
    score = await grade(ranges, timeout_s=0.5)
    assert score.value == 0.0
    assert "ran out of time" in score.detail


async def test_a_python_without_pytest_is_no_verdict(
    ranges: Task, grade: Grade, sandbox: FolderSandbox, tmp_path: Path
) -> None:
    import venv

    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    await set_up(ranges, sandbox)
    with pytest.raises(GradingError, match="pytest is not installed"):
        await grade(ranges, python=str(tmp_path / "bare" / "bin" / "python"))


async def test_a_sandbox_that_is_gone_is_no_verdict(ranges: Task, sandbox: FolderSandbox) -> None:
    await set_up(ranges, sandbox)
    await sandbox.close()
    with pytest.raises(SandboxError):
        await criterion_of(ranges).grade(ranges, builders.trajectory(), sandbox)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"test_patch": "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"},
            "git apply: error: x: does not",
        ),
        ({"base_commit": "0" * 40}, "git read-tree"),
        ({"fail_to_pass": (), "pass_to_pass": ()}, "are both empty"),
        ({"fail_to_pass": ("test_a (tests.A)",)}, "is not pytest's id of a test"),
        ({"fail_to_pass": ("../a.py::test_a",)}, "is not pytest's id of a test"),
    ],
)
def test_what_can_not_be_graded_is_refused_before_the_run(
    ranges: Task, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        criterion_of(ranges, **changed)


def test_the_repository_on_the_host_is_only_read(ranges: Task) -> None:
    repository = Path(ranges.criteria[0].options["repository"])
    listing = ("cat-file", "--batch-all-objects", "--batch-check")
    before = git(*listing, cwd=repository)
    criterion_of(ranges)
    assert git(*listing, cwd=repository) == before


JUNIT = f"{sys.executable} -m pytest -q -p no:cacheprovider --junit-xml=$REPORT tests"


@pytest.mark.parametrize("solved", [True, False])
async def test_a_test_command_reports_by_junit(
    ranges: Task, grade: Grade, sandbox: FolderSandbox, solved: bool
) -> None:
    await set_up(ranges, sandbox, solved=solved)
    score = await grade(ranges, test_command=JUNIT, env={"PYTHONPATH": "."})
    assert score.passed is solved, score.detail
    assert "PASS_TO_PASS: 4 of 4 passed" in score.detail


async def test_tests_of_another_language_are_matched_by_name_and_group(
    ranges: Task, grade: Grade, sandbox: FolderSandbox
) -> None:
    await set_up(ranges, sandbox)
    cases = '<testcase name="a" classname="g.T"/><testcase name="b"><failure/></testcase>'
    await sandbox.write("report.xml", f"<testsuites><s>{cases}</s></testsuites>".encode())
    command = "cp report.xml $REPORT; exit 1"
    passing = await grade(
        ranges, test_command=command, fail_to_pass=("a (g.T)",), pass_to_pass=("g.T::a", "g.T.a")
    )
    assert passing.passed
    failing = await grade(ranges, test_command=command, fail_to_pass=("a", "b"), pass_to_pass=())
    assert "FAIL_TO_PASS: 1 of 2 passed; passed: a; failed: b" in failing.detail


async def test_a_test_command_without_a_report_is_a_zero_that_shows_its_output(
    ranges: Task, grade: Grade, sandbox: FolderSandbox
) -> None:
    await set_up(ranges, sandbox)
    score = await grade(ranges, test_command="echo no compiler; exit 2")
    assert score.value == 0.0
    assert "wrote no JUnit report to $REPORT" in score.detail
    assert "no compiler" in score.detail


@pytest.mark.parametrize("command", ["no-such-tool test", "echo no compiler; exit 2"])
async def test_programs_of_a_test_command_that_are_nowhere_are_lacking(
    ranges: Task, sandbox: FolderSandbox, command: str
) -> None:
    criterion = criterion_of(ranges, test_command=command)
    found = await criterion.lacking(ranges, sandbox, untouched=True)
    assert found == ({"no-such-tool"} if "such" in command else set())


async def test_a_report_of_a_command_can_be_forged(
    ranges: Task, grade: Grade, sandbox: FolderSandbox
) -> None:
    """What is not prevented: the code under test runs in the process that writes the report."""
    await set_up(ranges, sandbox)
    options = ranges.criteria[0].options
    names = [json.dumps(n) for n in (*options["fail_to_pass"], *options["pass_to_pass"])]
    cases = "".join(f"<testcase name={name}/>" for name in names)
    code = (
        f"import os\nopen(os.environ['REPORT'], 'w').write({'<x>' + cases + '</x>'!r})\nos._exit(0)"
    )
    await sandbox.write("ranges/parsing.py", code.encode())
    assert (await grade(ranges, test_command=JUNIT, env={"PYTHONPATH": "."})).passed


IMPORTING = """diff --git a/tests/test_more.py b/tests/test_more.py
new file mode 100644
--- /dev/null
+++ b/tests/test_more.py
@@ -0,0 +1,7 @@
+import no_such_runner
+import ranges
+from no_such_made import made
+import pytest
+
+def test_more():
+    assert no_such_runner.ok
"""


async def test_modules_that_the_tests_import_and_nobody_installed_are_lacking(
    ranges: Task, sandbox: FolderSandbox
) -> None:
    await set_up(ranges, sandbox)
    more = {"test_patch": IMPORTING, "fail_to_pass": ("tests/test_more.py::test_more",)}
    criterion = criterion_of(ranges, **more, pass_to_pass=())
    told = replace(ranges, goal="Add the package no_such_made.")
    for untouched in (False, True):
        found = await criterion.lacking(told, sandbox, untouched=untouched)
        assert {*found} == {"no_such_runner"}
