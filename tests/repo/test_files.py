"""Files are small, and the top level has no unknown files."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 500

PYTHON = [
    path
    for folder in ("core", "plugins", "tests", "docs")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not any(part.startswith((".", "_build")) for part in path.relative_to(ROOT).parts)
]


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_has_at_most_500_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


def test_the_top_level_has_no_unknown_files() -> None:
    names = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert names - {"runs", "uv.lock", "build", "dist", "__pycache__"} == {
        "CONTRIBUTING.md",
        "LICENSE",
        "README.md",
        "SECURITY.md",
        "configs",
        "core",
        "docs",
        "examples",  # the paths of the ALE-lite document: a link to configs
        "noxfile.py",
        "plugins",
        "pyproject.toml",
        "tasks",
        "tests",
    }
