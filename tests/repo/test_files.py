"""Files are small, and the top level has no unknown files."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
LONGEST = 500

PYTHON = [
    path
    for folder in ("core", "plugins", "tests", "docs")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not any(part.startswith((".", "_build")) for part in path.relative_to(ROOT).parts)
]


def test_a_file_has_at_most_500_lines() -> None:
    lines = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in PYTHON}
    assert "core/src/ale/hookspecs.py" in lines
    assert {path: number for path, number in lines.items() if number > LONGEST} == {}


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
