"""Environments of server programs: each has its own, never that of the trainer."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from attrs import frozen

from ale.errors import AleError

_MARKER = "ale.json"
SHARED_MEMORY = Path(__file__).with_name("shared_memory.py")
BROADCAST = Path(__file__).with_name("broadcast.py")
"""Modules that need only PyTorch, for environments in which `ale` is not installed."""


@frozen(kw_only=True)
class Recipe:
    """What is installed in an environment.

    Attributes:
        name: the environment's.
        packages: pinned requirements.
        overrides: requirements that replace those of the packages.
        python: version of Python.
        source: folder of a package of ours to install too; its build backend is setuptools.
        modules: files to add to that folder, by their names there.
    """

    name: str
    packages: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    python: str = "3.11"
    source: Path | None = None
    modules: Mapping[str, Path] = {}


def root() -> Path:
    """The folder of all environments: ``$ALE_SERVER_ENVIRONMENTS``, or one in the user's cache."""
    if given := os.environ.get("ALE_SERVER_ENVIRONMENTS"):
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "ale" / "environments"


def folder_of(recipe: Recipe) -> Path:
    """The folder where this environment is, or would be."""
    return root() / recipe.name


def is_made(recipe: Recipe) -> bool:
    """Was exactly this recipe installed completely?"""
    try:
        return (folder_of(recipe) / _MARKER).read_bytes() == _made(recipe)
    except OSError:
        return False


def missing(recipe: Recipe) -> str:
    """What to say of a program whose recipe is not made."""
    folder = folder_of(recipe)
    if (folder / _MARKER).is_file():
        return f"was installed in {folder} by another version of ale, and has to be installed anew"
    return f"is not installed in {folder}"


def _made(recipe: Recipe) -> bytes:
    sources = () if recipe.source is None else sorted(recipe.source.rglob("*.py"))
    content = [file.read_text() for file in (*sources, *recipe.modules.values())]
    return msgspec.json.encode((recipe.packages, recipe.overrides, recipe.python, content))


def make(recipe: Recipe, uv: str) -> Path:
    """Make an environment, or do nothing if it exists; returns its folder.

    Args:
        uv: path of the program uv.

    Raises:
        AleError: something can't be installed; what was made so far is removed.
    """
    folder = folder_of(recipe)
    if is_made(recipe):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be making it
        if not is_made(recipe):
            _make(recipe, uv, folder)
    return folder


def _make(recipe: Recipe, uv: str, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    overrides = folder.with_name(f"{folder.name}.overrides")
    copy = folder.with_name(f"{folder.name}.source")
    overrides.write_text("".join(f"{line}\n" for line in recipe.overrides))
    install = ("pip", "install", "--python", str(folder / "bin" / "python"))
    try:
        _run(uv, "venv", "--python", recipe.python, str(folder))
        _run(uv, *install, "--override", str(overrides), *recipe.packages)
        if recipe.source is not None:
            shutil.copytree(recipe.source, copy)
            for name, module in recipe.modules.items():
                shutil.copyfile(module, copy / name)
            # It is built with the build tools that the packages have installed.
            _run(uv, *install, "--no-deps", "--no-build-isolation", str(copy))
        (folder / _MARKER).write_bytes(_made(recipe))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        overrides.unlink(missing_ok=True)
        shutil.rmtree(copy, ignore_errors=True)


def _run(*argv: str) -> None:
    # These constraints belong to the caller's own environment.
    mine: Sequence[str] = ("UV_CONSTRAINT", "PIP_CONSTRAINT", "VIRTUAL_ENV")
    environ = {name: value for name, value in os.environ.items() if name not in mine}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-12:])
        raise AleError(f"{' '.join(argv[:3])} failed with status {done.returncode}:\n{last}")
