"""`pytest` typed at the root collects every test, whatever is installed."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_collecting_at_the_root_gives_no_error() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    counts = dict(line.rsplit(": ", 1) for line in done.stdout.splitlines() if ".py: " in line)
    folders = {path.split("/")[0] for path in counts}
    assert folders == {"tests", "plugins"}
    assert int(counts["tests/repo/test_collection.py"]) == 1
