"""What needs Linux says so elsewhere; everything that only reads works without it.

The commands run with the modules and functions hidden that other systems lack, and with another
name of the platform. That shows what is imported, not how another system behaves: none was used.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORED = ROOT / "tests" / "core" / "data" / "run-0.1" / "scripted"
HIDDEN = """\
import os, select, signal, sys
NAMES = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in NAMES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in NAMES:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hidden())
sys.platform = "darwin"
del os.pidfd_open, select.epoll, signal.pidfd_send_signal
from ale._cli.main import main
sys.exit(main())
"""

Elsewhere = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    """`ale` as on another system."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", HIDDEN, *map(str, arguments)]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--help"], "Look:"),
        (["plugins"], "ale-sandbox-local"),
        (["doctor"], "UNUSABLE  sandbox   local          needs Linux, found darwin"),
        (["show", STORED], "basics-ls"),
        (["show", "credit", STORED, "--scheme", "ipa", "--scheme", "grpo"], "grpo"),
        (["report", STORED, "--out", "report.html"], "report.html"),
        (["data", "collect", STORED, "--out", "rows.jsonl"], "2 rows"),
        (["show", "results", STORED], "pass@1"),
        (["sandbox", "list", "--type", "local"], ""),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, list) else "",
)
def test_what_only_reads_works(elsewhere: Elsewhere, arguments: list[str], expected: str) -> None:
    done = elsewhere(*arguments)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


def test_a_config_whose_sandbox_needs_linux_is_refused_with_that_reason(
    elsewhere: Elsewhere, tmp_path: Path
) -> None:
    refused = elsewhere("check", ROOT / "configs" / "examples.yaml")
    assert refused.returncode == 2
    assert "sandbox 'local' can't be used: needs Linux, found darwin" in refused.stderr


@pytest.mark.parametrize(
    "module", ["ale_rows.scoring", "ale_trainer_export.plugin", "ale_trainer_policy.trainer"]
)
def test_data_sets_and_training_import_without_what_linux_alone_has(module: str) -> None:
    # Torch chooses by the platform's name, so that name stays, and the modules that macOS has too.
    code = HIDDEN.replace("from ale._cli.main import main\nsys.exit(main())", f"import {module}")
    code = code.replace('sys.platform = "darwin"\n', "NAMES.clear()\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
