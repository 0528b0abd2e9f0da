"""What is installed for SGLang, and where. It was never installed and started here."""

from pathlib import Path

from ale.errors import InputError
from ale.plugin import Probe
from ale_servers.environment import Recipe, folder_of, is_made, make, missing

VERSION = "0.5.23"
RECIPE = Recipe(name=f"sglang-{VERSION}-cuda", packages=(f"sglang=={VERSION}",))
"""For CUDA only: for a CPU, SGLang's kernels have to be built from source."""


def install(build: str | None = None) -> Path:
    """Make the environment if it does not exist yet; returns its folder.

    Raises:
        InputError: there is no such build.
        AleError: it can't be installed.
    """
    if build not in (None, "cuda"):
        raise InputError.of(f"SGLang has no build '{build}' here", path="--build", expected="cuda")
    remedy = 'pip install "uv>=0.9"; in a clone: pip install -e ".[engines]"'
    Probe.of_package("uv", remedy=remedy).check()
    from uv import find_uv_bin

    return make(RECIPE, find_uv_bin())


def python() -> Path:
    """The interpreter of the environment.

    Raises:
        InputError: the environment has not been made, or has another version.
    """
    if not is_made(RECIPE):
        message = f"SGLang {VERSION} {missing(RECIPE)}"
        raise InputError.of(message, hint="ale engines install sglang")
    return folder_of(RECIPE) / "bin" / "python"
