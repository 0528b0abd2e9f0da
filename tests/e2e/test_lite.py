"""ALE-lite as a whole: what takes long or needs more than one package, by number of statement."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECTS = [ROOT / "core", *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))]


def copy(folder: Path) -> Path:
    """The repository as a fresh clone has it, without tests."""
    ignored = shutil.ignore_patterns("__pycache__", "*.dist-info", "tests", ".*")
    for name in ("core", "plugins"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.mark.long
def test_s01_pip_installs_the_root_and_its_commands_start(tmp_path: Path) -> None:
    clone, place = copy(tmp_path / "clone"), tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, "-e", str(clone)], check=True, capture_output=True)
    # What they need from outside is here already, and is not what is tested.
    outside = [path for path in sys.path if path.endswith("site-packages")]
    for command in ("iflow", "tbp", "roll", "rock"):
        done = subprocess.run(
            [str(place / "bin" / command), "--help"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(outside)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert f"Usage: {command} " in done.stdout


@pytest.mark.long
def test_s73_mypy_finds_nothing() -> None:
    found = [path for folder in PROJECTS for path in sorted((folder / "src").glob("ale*"))]
    names = [path.name for path in found if not path.name.endswith("-info")]
    path = os.pathsep.join(str(folder / "src") for folder in PROJECTS)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *(part for name in names for part in ("-p", name))],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_s75_a_lock_file_can_be_made(tmp_path: Path) -> None:
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not on the path")
    clone = copy(tmp_path / "clone")
    done = subprocess.run([uv, "lock"], cwd=clone, capture_output=True, text=True)
    if "ailed to fetch" in done.stderr or "no versions of" in done.stderr:
        pytest.skip("no index of packages can be asked")
    assert done.returncode == 0, done.stderr
    packages = tomllib.loads((clone / "uv.lock").read_text())["package"]
    assert {folder.name for folder in PROJECTS[1:]} < {package["name"] for package in packages}
