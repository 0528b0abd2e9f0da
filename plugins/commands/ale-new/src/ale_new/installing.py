"""How the new package is installed here."""

import importlib.util
import shlex
from pathlib import Path


def install_command() -> str:
    """The command that installs it, editable and with its test tools, into this environment.

    An environment that uv made has no pip. And uv looks for ale-core in an index where it runs
    from a checkout that was installed as a whole, since no package of that name is recorded
    there: it has to be told where it is.
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
