"""Task folders, written where a test wants them, and a sandbox whose /tests is not the host's."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ale.plugin import BuildContext
from ale_tasks_harbor.options import HarborOptions
from ale_tasks_harbor.paths import SandboxPaths
from ale_tasks_harbor.source import HarborSource

DATA = Path(__file__).parent / "data"
BESIDE = SandboxPaths(tests="../tests", logs="../logs", records=("../before",))
"""Beside the workspace, which is a folder of this machine."""

Write = Callable[[str, Mapping[str, str]], Path]

HARBOR = {
    "task.toml": 'schema_version = "1.4"\n',
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM ale-test-busybox:2\nWORKDIR /app\n",
    "tests/test.sh": "#!/bin/sh\necho 1 >/logs/verifier/reward.txt\n",
    "solution/solve.sh": "#!/bin/sh\ntouch done\n",
}
BENCH = {
    "task.yaml": "instruction: Do it.\ndifficulty: easy\n",
    "Dockerfile": "FROM ale-test-debian:2\nWORKDIR /app\n",
    "run-tests.sh": "#!/bin/bash\ntrue\n",
    "solution.sh": "#!/bin/bash\ntouch done\n",
}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a task folder; a file without text is left out."""

    def write(name: str, files: Mapping[str, str]) -> Path:
        folder = tmp_path / "tasks" / name
        for path, text in files.items():
            if text:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(text)
        return folder

    return write


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., HarborSource]:
    """A source of what was written."""

    def source(environ: Mapping[str, str] | None = None, **options: object) -> HarborSource:
        made = HarborOptions(**{"path": tmp_path / "tasks", **options})  # type: ignore[arg-type]
        return HarborSource(made, BuildContext(environ=environ or {}))

    return source
