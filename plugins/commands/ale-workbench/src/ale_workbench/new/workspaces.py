"""Folders of files that `ale new` writes as they are: for programs that are no plugins of `ale`."""

from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

WORKSPACES = ("openclaw", "openrlhf")
"""Their names, as the KIND of ``ale new``: a manager and a worker of OpenClaw; an agent function
and a launch line of OpenRLHF."""
SUFFIX = ".tmpl"
"""Keeps test runners and linters from taking a template for a module."""


def texts_of(kind: str) -> Mapping[str, str]:
    """The files of a workspace, by their path in its folder."""
    return _texts(files("ale_workbench.new") / "templates" / kind, "")


def _texts(folder: Traversable, path: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            found |= _texts(entry, f"{path}{entry.name}/")
        else:
            found[f"{path}{entry.name.removesuffix(SUFFIX)}"] = entry.read_text(encoding="utf-8")
    return found
