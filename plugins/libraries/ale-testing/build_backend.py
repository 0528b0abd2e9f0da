"""Build backend of ale-testing: uv's, given the contract kits from the core's folder.

They lie beside the protocols that they test, in ``core/src/ale/testing``, and not in this project.
A source distribution has them in it.
"""

import shutil
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uv_build
from uv_build import get_requires_for_build_sdist as get_requires_for_build_sdist
from uv_build import get_requires_for_build_wheel as get_requires_for_build_wheel
from uv_build import prepare_metadata_for_build_wheel as prepare_metadata_for_build_wheel

HERE = Path(__file__).resolve().parent
PLACE = "src/ale/testing"


@contextmanager
def _complete() -> Iterator[None]:
    """Work in a copy of the project that has the kits: several builds may run at once."""
    if (HERE / PLACE).is_dir():  # it is a source distribution
        yield
        return
    with TemporaryDirectory(prefix="ale-testing-") as folder:
        ignored = shutil.ignore_patterns("__pycache__", "tests", "src", "dist")
        shutil.copytree(HERE, folder, ignore=ignored, dirs_exist_ok=True)
        kits = HERE.parents[2] / "core" / PLACE
        shutil.copytree(kits, Path(folder) / PLACE, ignore=shutil.ignore_patterns("__pycache__"))
        with chdir(folder):
            yield


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Build the source distribution."""
    folder = str(Path(sdist_directory).resolve())
    with _complete():
        return uv_build.build_sdist(folder, config_settings)


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Build the wheel."""
    folder = str(Path(wheel_directory).resolve())
    with _complete():
        return uv_build.build_wheel(folder, config_settings)


def build_editable(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Build an ordinary wheel: beside an editable core, its own files are imported."""
    return build_wheel(wheel_directory, config_settings)
