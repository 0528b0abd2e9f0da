"""What is installed for vLLM can be had from the package index alone."""

import os
import subprocess
from pathlib import Path

import pytest
from uv import find_uv_bin

from ale_vllm.recipes import RECIPES

OWN = ("UV_FIND_LINKS", "PIP_FIND_LINKS", "UV_CONSTRAINT", "PIP_CONSTRAINT", "UV_OVERRIDE")


@pytest.mark.long
@pytest.mark.parametrize("build", ["cpu", "cuda"])
def test_a_build_needs_no_wheels_of_this_machine(tmp_path: Path, build: str) -> None:
    recipe = RECIPES[build]
    wanted, overrides = tmp_path / "wanted.txt", tmp_path / "overrides.txt"
    wanted.write_text("\n".join(recipe.packages))
    overrides.write_text("\n".join(recipe.overrides))
    command = (find_uv_bin(), "pip", "compile", "--quiet", "--python-version", recipe.python)
    done = subprocess.run(
        (*command, "--override", str(overrides), str(wanted)),
        env={name: value for name, value in os.environ.items() if name not in OWN},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"vllm{'-cpu' if build == 'cpu' else ''}==" in done.stdout
