"""The packages: their table, and for Sphinx their READMEs as pages."""

import functools
import re
import runpy
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ale._registry import KINDS, Registry
from ale_reference.commands import command_names
from ale_reference.markup import code, markdown, table

ROOT = Path(__file__).resolve().parents[3]
GROUPS = {
    "tasks": "Task sources",
    "sandbox": "Sandboxes",
    "llm": "Models and inference servers",
    "agent": "Agents and middleware",
    "criteria": "Criteria",
    "credit": "Chunkers, step scorers and credit schemes",
    "training": "Training",
    "execution": "More processes and machines",
    "observe": "Observers",
    "commands": "Commands",
    "libraries": "Libraries, which packages share",
}

_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def parts(registry: Registry, root: Path) -> Mapping[str, str]:
    """``packages``: a table per group of packages, with what each offers."""
    made = ["## The core\n\n", _table(["ale-core", "ale-starter"], registry)]
    for group, title in GROUPS.items():
        names = [name for name, folder in folders().items() if folder.split("/")[1:2] == [group]]
        made += [f"\n## {title}\n\n", _table(names, registry)]
    listed = {path.name for path in root.glob("plugins/*") if path.is_dir()} - {"__pycache__"}
    if missing := listed - GROUPS.keys() - folders().keys():
        raise RuntimeError(f"no heading for the packages in plugins/{sorted(missing)}")
    return {"packages": "".join(made)}


def _table(names: list[str], registry: Registry) -> str:
    rows = [
        [
            f"[{name}](../{folder_of(name)}/README.md)",
            markdown(_project(ROOT / folder_of(name))["description"]),
            _registrations(name, registry),
        ]
        for name in names
    ]
    return table(["package", "what it is", "offers"], rows)


@functools.cache
def folders() -> Mapping[str, str]:
    """Every package of the repository with its folder, the core first."""
    plugins = sorted(ROOT.glob("plugins/*/*/pyproject.toml"))
    named = {path.parent.name: str(path.parent.relative_to(ROOT)) for path in plugins}
    return {"ale-core": "core", "ale-starter": "plugins/ale-starter", **named}


def folder_of(distribution: str) -> str:
    """The folder of a package of the repository."""
    return folders()[distribution]


def readmes() -> Mapping[str, str]:
    """A page per package, and a list of them: pages that only Sphinx needs."""
    made = {f"packages/{name}.md": _page(name) for name in folders()}
    tree = "\n".join(["```{toctree}", ":maxdepth: 1", "", *folders(), "```"])
    made["packages/index.md"] = f"# READMEs of the packages\n\n{tree}\n"
    return made


def page_of(link: str) -> str | None:
    """The page of the README that a link leads to."""
    found = re.fullmatch(
        r"(?:.*/)?(?:plugins/(?:[a-z]+/)?(ale-[a-z0-9-]+)|(core))/README\.md(#.*)?", link
    )
    if not found:
        return None
    return f"/reference/generated/packages/{found[1] or 'ale-core'}.md{found[3] or ''}"


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
    for package, answer in registry.answers("ale_commands"):
        if package.distribution == distribution:
            offered += [f"ale {name}" for name in command_names(answer)]
    return ", ".join(map(code, offered))


def _page(name: str) -> str:
    text = (ROOT / folder_of(name) / "README.md").read_text()
    address = runpy.run_path(str(ROOT / "core/workspace/addresses.py"))["repository"](ROOT)
    return _LINK.sub(partial(_link, f"{address}/blob/main/"), text)


def _link(address: str, match: "re.Match[str]") -> str:
    """Links to files of the repository that are pages here are links to these pages."""
    label, target = match[1], match[2].removeprefix(address)
    page = re.fullmatch(r"docs/(.+\.md)(#.*)?", target)
    if page:
        return f"[{label}](/{page[1]})"
    readme = page_of(target)
    return f"[{label}]({readme})" if readme else match[0]
