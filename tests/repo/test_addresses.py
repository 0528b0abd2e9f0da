"""The address of the repository stands in one place, and what links to it leads to a file."""

import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TOOL: dict[str, Any] = runpy.run_path(str(ROOT / "core/workspace/addresses.py"))


def test_metadata_and_links_have_the_address_of_the_repository() -> None:
    wrong = [
        str(path.relative_to(ROOT)) for path, text in TOOL["updated"]() if path.read_text() != text
    ]
    assert not wrong, "nox -s addresses writes them"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("core", "plugins/agent/ale-middleware"):
        (tmp_path / name).mkdir(parents=True)
        for file in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name / file, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_another_address_is_written_everywhere(clone: Path) -> None:
    before = TOOL["repository"](clone)
    root = clone / "pyproject.toml"
    root.write_text(root.read_text().replace(before, "https://forge.example.org/us/ale"))
    readme = clone / "plugins/agent/ale-middleware/README.md"
    readme.write_text(readme.read_text() + "\n[new](../../../core/README.md#use)\n")
    for path, text in TOOL["updated"](clone):
        path.write_text(text)
    links = re.findall(r"\]\(([^)\s]+)\)", readme.read_text())
    assert len(links) > 2
    assert links[-1] == "https://forge.example.org/us/ale/blob/main/core/README.md#use"
    assert not [path for path in clone.rglob("*.*") if before in path.read_text()]
    assert all(path.read_text() == text for path, text in TOOL["updated"](clone))
