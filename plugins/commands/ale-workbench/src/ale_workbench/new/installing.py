"""The commands that install the new package in this environment."""

import importlib.util
import shlex
import shutil
from pathlib import Path

_PIP = "pip install -e '.[test]'"


def install_command() -> str:
    """The command that installs a package, editable and with its test tools.

    An environment made by uv has no pip.
    """
    if importlib.util.find_spec("pip") is not None:
        return _PIP
    if shutil.which("uv") is not None:
        return _uv_command()
    return f"python -m ensurepip && python -m {_PIP}"


def uv_note() -> str | None:
    """How to do it with uv, where pip is there too and uv needs more words."""
    command = _uv_command()
    if command == f"uv {_PIP}" or install_command() == command:
        return None
    return f"uv does not see that ale-core is installed from a checkout; with uv, type\n  {command}"


def _uv_command() -> str:
    """Where `ale` was installed from a checkout as a whole, uv would look for it in an index.

    No distributions of these names are recorded, so the command names the folders.
    """
    core = _core()
    if core is None:
        return f"uv {_PIP}"
    folders = (core, core.parent / "plugins" / "libraries" / "ale-testing")
    return f"uv {_PIP} " + " ".join(f"-e {shlex.quote(str(folder))}" for folder in folders)


def _core() -> Path | None:
    """The folder of the checkout that `ale` is imported from; None where it is a copy."""
    spec = importlib.util.find_spec("ale")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parents[2]
    return folder if (folder / "pyproject.toml").is_file() else None
