"""The READMEs of the packages as pages."""

import re
import runpy
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ale._registry import KINDS, Registry
from ale_reference.markup import code, markdown, table

_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def pages(registry: Registry, root: Path) -> Mapping[str, str]:
    """A page per package, and the table of them."""
    folders = [root / "core", *sorted(p.parent for p in root.glob("plugins/*/*/pyproject.toml"))]
    projects = {folder: _project(folder) for folder in folders}
    made = {
        f"packages/{project['name']}.md": _page(folder, project, root)
        for folder, project in projects.items()
    }
    names = [project["name"] for project in projects.values()]
    rows = [
        [
            f"[{project['name']}]({project['name']}.md)",
            markdown(project["description"]),
            _registrations(project["name"], registry),
        ]
        for project in projects.values()
    ]
    tree = "\n".join(["```{toctree}", ":hidden:", "", *names, "```"])
    made["packages/index.md"] = (
        "# Packages\n\nEach can be installed by itself; the page of a package is its README.\n\n"
        f"{tree}\n\n{table(['package', 'what it is', 'offers'], rows)}"
    )
    return made


def _project(folder: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return project


def _registrations(distribution: str, registry: Registry) -> str:
    offered = [
        f"{kind} {registration.component.name}"
        for kind in KINDS
        for registration in registry.registrations(kind)
        if registration.distribution == distribution
    ]
    for package, commands in registry.answers("ale_commands"):
        if package.distribution == distribution:
            offered += [f"ale {command.name}" for command in commands]
    return ", ".join(map(code, offered))


def _page(folder: Path, project: dict[str, Any], root: Path) -> str:
    readme = folder / "README.md"
    text = readme.read_text() if readme.exists() else ""
    if not text.strip():
        text = f"# {project['name']}\n\n{project['description']}\n"
    address = runpy.run_path(str(root / "core/workspace/addresses.py"))["repository"](root)
    return _LINK.sub(partial(_link, f"{address}/blob/main/"), text)


def _link(address: str, match: "re.Match[str]") -> str:
    """Links to files of the repository that are pages here are links to these pages."""
    label, target = match[1], match[2].removeprefix(address)
    other = re.fullmatch(r"(?:plugins/[a-z]+/)?([a-z0-9-]+)/README\.md", target)
    if other:
        name = "ale-core" if other[1] == "core" else other[1]
        return f"[{label}]({name}.md)"
    page = re.fullmatch(r"docs/(.+\.md)(#.*)?", target)
    return f"[{label}](../../../{page[1]})" if page else match[0]
