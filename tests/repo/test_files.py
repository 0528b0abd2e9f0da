"""Files are small and written in one way, and the top level has no unknown files."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
tracked = runpy.run_path(str(Path(__file__).with_name("tracked.py")))["tracked"]
LONGEST = 800

PYTHON = [
    path for path in tracked("core/**/*.py", "plugins/**/*.py", "tests/**/*.py", "docs/**/*.py")
]


def test_a_file_has_at_most_800_lines() -> None:
    lines = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in PYTHON}
    assert "core/src/ale/hookspecs.py" in lines
    assert {path: number for path, number in lines.items() if number > LONGEST} == {}


RENAMED = {
    "ale/folders.py": "folders are moved in order to be removed",
    "ale/processes.py": "a file is locked before it has its name",
    "ale/_store/checkpoints.py": "several processes write into one folder, which one renames",
    "ale_workbench/machine/wizard.py": "a config may not take the place of one that has appeared",
    "ale_rows/tables.py": "in a folder that nobody else sees yet",
    "ale_grading/signed_tests/inside/supervisor.py": "runs in a sandbox",
    "ale_look/store/archiving.py": "an archive may not take the place of one that has appeared",
    "ale_look/store/removing.py": "a folder is renamed to be removed",
    "ale_processes/torchrun/rank.py": "runs on another machine, with the standard library alone",
}
"""Files of packages that rename files themselves, and why."""


def test_files_are_written_and_replaced_by_the_core_alone() -> None:
    """A file that is written in place, or replaced by hand, can be half a file to a reader."""
    by_hand = re.compile(
        r"os\.(replace|rename)\(|shutil\.move\(|\.rename\(|with_name\(f\"\.|"
        r"(?<!records)\.replace\((path|target|out|file|folder)\)"
    )
    found = {
        "/".join(path.parts[path.parts.index("src") + 1 :])
        for path in PYTHON
        if "src" in path.parts and "testing" not in path.parts
        if by_hand.search(path.read_text())
    }
    assert found == {"ale/files.py", *RENAMED}, "use `ale.files.replacing`"


def test_the_top_level_has_no_unknown_files() -> None:
    names = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert {name for name in names if not name.startswith(".")} == {
        "AGENTS.md",
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
