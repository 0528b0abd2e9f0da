"""What is reported is what happened in the sandbox, whatever the code under test does."""

import base64
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ale.errors import GradingError
from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale_grading.signed_tests import Report, by_clock, run_signed
from ale_grading.signed_tests.inside import supervisor

RUN = b"""
def run(plan, unit, modules, reports):
    for number, code in enumerate(unit["tests"]):
        try:
            exec(code)
        except AssertionError:
            print("test", number, "failed")
            reports.failed(number)
        else:
            reports.passed(number)
"""


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[FolderSandbox]:
    sandbox = FolderSandbox()
    yield sandbox
    await sandbox.close()


async def run(sandbox: FolderSandbox, *units: list[str], **more: Any) -> Report:
    given = {"python": "python3", "env": {}, "timeout_s": 20.0}
    plan = {"units": [{"tests": unit} for unit in units], "files": {}, "modules": {}}
    plan |= {"standard": [], **{key: more.pop(key) for key in ("workspace",) if key in more}}
    return await run_signed(sandbox, builders.task(), plan, [RUN], **(given | more))


async def test_passed_and_failed_tests_are_told_by_position(sandbox: FolderSandbox) -> None:
    many = ["assert 1", "assert 0", "assert 0", "assert 2"] * 20
    report = await run(sandbox, many, ["assert 3"])
    first, second = report.units
    assert first["passed"] == [number for number in range(80) if number % 4 in (0, 3)]
    assert first["failed"] == [number for number in range(80) if number % 4 in (1, 2)]
    assert (second["passed"], second["failed"], second["output"]) == ([0], [], "")
    assert first["output"].startswith("test 1 failed\ntest 2 failed\ntest 5 failed\n")
    assert (report.ended, report.forged) == (True, False)


async def test_what_did_not_return_has_neither_passed_nor_failed(sandbox: FolderSandbox) -> None:
    report = await run(sandbox, ["import os; os._exit(0)"], ["assert 1"])
    assert [(unit["passed"], unit["failed"]) for unit in report.units] == [([], []), ([0], [])]


async def test_a_pass_that_is_reported_for_a_test_that_did_not_pass_is_forged(
    sandbox: FolderSandbox,
) -> None:
    forging = (
        "import os\n"
        "for fd in range(3, 64):\n"
        "    try:\n        os.write(fd, b'\\0' * 4); os.write(fd, os.read(fd, 16))\n"
        "    except OSError:\n        pass\n"
        "os._exit(0)"
    )
    assert (await run(sandbox, [forging])).forged


async def test_files_of_the_tests_are_in_place_for_every_unit_and_the_agents_again_at_the_end(
    sandbox: FolderSandbox,
) -> None:
    await sandbox.write("pkg", b"a file where a folder belongs")
    await sandbox.write("sub/conftest.py", b"planted")
    await sandbox.write("known/conftest.py", b"kept")
    await sandbox.write("gone.py", b"to be removed")
    spoil = (
        "import os\n"
        "assert open('pkg/data.txt').read() == 'right'\n"
        "assert os.readlink('link') == 'pkg'\n"
        "assert not os.path.exists('sub/conftest.py') and not os.path.exists('gone.py')\n"
        "assert os.path.exists('known/conftest.py')\n"
        "os.unlink('pkg/data.txt'); os.rmdir('pkg'); os.symlink('/', 'pkg')\n"
        "open('sub/conftest.py', 'w').close(); os.unlink('link')"
    )
    workspace = {
        "files": {
            "pkg/data.txt": [0o100644, base64.b64encode(b"right").decode()],
            "link": [0o120000, base64.b64encode(b"pkg").decode()],
        },
        "absent": ["gone.py", "never/there"],
        "names": ["conftest.py"],
        "known": ["known/conftest.py"],
    }
    report = await run(sandbox, [spoil], [spoil], workspace=workspace)
    assert [unit["passed"] for unit in report.units] == [[0], [0]]
    kept = {"pkg": b"a file where a folder belongs", "sub/conftest.py": b"planted"}
    kept |= {"known/conftest.py": b"kept", "gone.py": b"to be removed"}
    assert {path: await sandbox.read(path) for path in kept} == kept
    assert not (Path(sandbox.workdir) / "link").is_symlink()


async def test_a_sandbox_without_this_python_is_an_error_and_no_verdict(
    sandbox: FolderSandbox,
) -> None:
    with pytest.raises(GradingError, match="could not be started with '/no/python'"):
        await run(sandbox, ["assert 1"], python="/no/python")


BUSY = "import time\nwhile time.process_time() < 2:\n    pass"


async def test_the_time_limit_is_one_of_the_processor(
    sandbox: FolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[by_clock.__module__], "PATIENCE", 100.0)
    report = await run(sandbox, ["import time; time.sleep(2)"], timeout_s=1.0)
    assert report.units[0]["passed"] == [0]
    in_a_child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    for code in (BUSY, in_a_child):
        report = await run(sandbox, [code], timeout_s=1.0)
        assert (report.units[0]["passed"], report.units[0]["status"]) == ([], None)


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"unit": ' + b"[" * 100_000,
        b'{"unit": {"a": 1}}',
        b'{"passed": [[1]]}',
        b"[1]",
        b"nothing",
        b"\xff",
    ],
)
def test_lines_after_one_that_the_runner_does_not_write_do_not_count(line: bytes) -> None:
    first = b'{"unit": 0, "passed": [0], "error": null, "output": "it"}'
    found = list(supervisor.received([first, line, b'{"done": true}']))
    assert found == [{"unit": 0, "passed": [0], "error": None, "output": "it"}]
