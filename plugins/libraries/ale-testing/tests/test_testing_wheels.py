"""The kits are in the wheel of ale-testing alone, and `import ale.testing` says so without it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
ROOT = HERE.parents[2]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels by distribution, each built from its source distribution."""
    folder = tmp_path_factory.mktemp("wheels")
    for source in (ROOT / "core", HERE):
        build = [sys.executable, "-m", "uv", "build", "--quiet", "--out-dir", folder, source]
        subprocess.run(build, check=True)
    return {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}


def unpack(folder: Path, *wheels: Path) -> Path:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


def python(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(path)},
        cwd=path,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_kits_are_imported_where_the_package_is_installed(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    both = unpack(tmp_path, wheels["ale_core"], wheels["ale_testing"])
    done = python("import ale.testing.credit; print(ale.testing.__file__)", both)
    assert done.stdout.strip() == str(both / "ale" / "testing" / "__init__.py"), done.stderr


def test_without_it_the_error_names_it_and_nothing_else_is_missing(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    core = unpack(tmp_path, wheels["ale_core"])
    assert not (core / "ale" / "testing").exists()
    done = python("import ale.testing", core)
    assert "ModuleNotFoundError: ale.testing is a package of its own" in done.stderr
    assert "pip install ale-testing" in done.stderr
    done = python("import ale._cli.main; print(ale.__file__)", core)
    assert done.stdout.strip() == str(core / "ale" / "__init__.py"), done.stderr
