"""The editable install of the whole repository: core/workspace."""

import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", "*.dist-info", "tests", ".*")
    for name in ("core", "plugins/credit"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def install(clone: Path) -> dict[Path, int]:
    """Install, and when each file of the packages' metadata was written."""
    backend: dict[str, Any] = runpy.run_path(str(clone / "core/workspace/ale_workspace.py"))
    (clone / "wheels").mkdir(exist_ok=True)
    backend["build_editable"](str(clone / "wheels"))
    return {path: path.stat().st_mtime_ns for path in clone.glob("**/*.dist-info/*")}


def test_installing_again_leaves_the_metadata_that_others_are_reading(clone: Path) -> None:
    first = install(clone)
    assert len(first) == 3 * 3
    assert install(clone) == first


def test_a_new_version_replaces_the_metadata_of_the_old_one(clone: Path) -> None:
    install(clone)
    project = clone / "core/pyproject.toml"
    project.write_text(project.read_text().replace('version = "0.1.0"', 'version = "0.2.0"'))
    install(clone)
    (found,) = (clone / "core/src").glob("*.dist-info")
    assert found.name == "ale_core-0.2.0.dist-info"
    assert "Version: 0.2.0" in (found / "METADATA").read_text()
