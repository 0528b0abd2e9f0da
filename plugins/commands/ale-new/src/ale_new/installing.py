"""The command that installs the new package in this environment."""

import importlib.util
import shlex
from pathlib import Path


def install_command() -> str:
    """The command that installs a package, editable and with its test tools.

    An environment made by uv has no pip. Where `ale` was installed from a checkout as a whole, no
    distribution named ale-core is recorded, so uv would look for it in an index: the command then
    names its folder.
    """
    if importlib.util.find_spec("pip") is not None:
        return "pip install -e '.[test]'"
    core = _core()
    return "uv pip install -e '.[test]'" + (f" -e {shlex.quote(str(core))}" if core else "")


def _core() -> Path | None:
    """The folder of the checkout that `ale` is imported from; None where it is a copy."""
    spec = importlib.util.find_spec("ale")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parents[2]
    return folder if (folder / "pyproject.toml").is_file() else None
