"""The editable install of the whole repository: core/workspace."""

import re
import runpy
import shutil
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", "*.dist-info", "tests", ".*")
    for name in ("core", "plugins/libraries", "plugins/llm", "plugins/sandbox"):
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
    projects = ["core", *clone.glob("plugins/*/*/pyproject.toml")]
    assert len(first) == 3 * len(projects)
    assert install(clone) == first


def test_a_new_version_replaces_the_metadata_of_the_old_one(clone: Path) -> None:
    install(clone)
    project = clone / "core/pyproject.toml"
    project.write_text(project.read_text().replace('version = "0.1.0"', 'version = "0.2.0"'))
    install(clone)
    (found,) = (clone / "core/src").glob("ale_core-*.dist-info")
    assert found.name == "ale_core-0.2.0.dist-info"
    assert "Version: 0.2.0" in (found / "METADATA").read_text()


def _names(requirements: list[str]) -> set[str]:
    return {
        re.split(r"[^A-Za-z0-9._-]", line)[0] for line in requirements if "extra ==" not in line
    }


def test_no_package_needs_what_the_default_install_does_not_bring(clone: Path) -> None:
    """`pip check` looks at the metadata that lies next to the code, too."""
    install(clone)
    found = [PathDistribution(path) for path in clone.glob("**/*.dist-info")]
    backend: dict[str, Any] = runpy.run_path(str(clone / "core/workspace/ale_workspace.py"))
    brought = _names(backend["requirements"]()) | {one.name for one in found}
    needs = {one.name: _names(one.requires or []) for one in found}
    assert {name: lacks for name, wants in needs.items() if (lacks := wants - brought)} == {}
    (litellm,) = (one for one in found if one.name == "ale-llm-litellm")
    assert "needs" in litellm.metadata.get_all("Provides-Extra")
    assert "docker" in brought, "an extra of ours that another package asks for"
