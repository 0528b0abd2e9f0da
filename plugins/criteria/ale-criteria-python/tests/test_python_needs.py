"""Modules that tests import and a sandbox lacks are told from what the answer lacks."""

from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale_criteria_python.options import PythonTestsOptions
from ale_criteria_python.python_tests import PythonTests


async def test_modules_that_the_tests_import_and_nobody_installed_are_lacking(
    sandbox: FolderSandbox,
) -> None:
    await sandbox.write("own.py", b"")
    tests = (
        "import json, no_such\nassert f(1) == no_such.x",
        "from no_other.deep import y, z\nimport attrs",
        "from answer import f\nassert f(1) == 1",
        "import own",
        "try:\n    import guarded\nexcept ImportError:\n    pass",
        "import sys\nif sys.version_info < (3, 8):\n    import backport",
    )
    criterion = PythonTests(PythonTestsOptions(tests=tests))
    task = builders.task(goal="Install no_other.")
    found = {*await criterion.lacking(task, sandbox, untouched=False)}
    assert found - {"attrs"} == {"no_such", "own"}
