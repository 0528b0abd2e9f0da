"""Write the address of the repository into the packages: ``nox -s addresses``.

It stands in one place, `[project.urls]` of the root's ``pyproject.toml``. Each package has it in
its metadata, and in the links of its README: a package index shows that, where relative links lead
nowhere.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def repository(root: Path = ROOT) -> str:
    """The address, without a slash at the end."""
    return str(_project(root)["urls"]["Repository"])


def file_address(path: Path, root: Path = ROOT) -> str:
    """Where a file of the repository can be read."""
    return f"{repository(root)}/blob/main/{path.resolve().relative_to(root.resolve())}"


def addressed_file(link: str, root: Path = ROOT) -> Path | None:
    """The file that a link to the repository leads to; None for a link to somewhere else."""
    start = f"{repository(root)}/blob/main/"
    return root / link.removeprefix(start) if link.startswith(start) else None


def updated(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Each ``pyproject.toml`` and README of a package, and what it is to hold."""
    patterns = ("core/pyproject.toml", "plugins/ale-starter/pyproject.toml")
    for project in sorted(
        path for each in (*patterns, "plugins/*/*/pyproject.toml") for path in root.glob(each)
    ):
        urls = _project(project.parent).get("urls", {})
        yield project, _with_urls(project, root)
        readme = project.parent / "README.md"
        yield readme, _with_links(readme, str(urls.get("Repository", repository(root))), root)


def _project(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return found


def _with_urls(project: Path, root: Path) -> str:
    text = re.sub(r"\n\[project\.urls\]\n(?:[^\n\[]+\n)*", "", project.read_text())
    urls = {
        "Repository": repository(root),
        "Documentation": file_address(root / "docs/index.md", root),
        "Changelog": file_address(project.parent / "CHANGELOG.md", root),
    }
    lines = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    head, project_table, rest = text.partition("[project]\n")
    fields, bracket, tables = rest.partition("\n[")
    return f"{head}{project_table}{fields}\n[project.urls]\n{lines}{bracket}{tables}"


def _with_links(readme: Path, before: str, root: Path) -> str:
    def link(match: re.Match[str]) -> str:
        target = match[1]
        if target.startswith(f"{before}/"):
            return f"]({repository(root)}{target.removeprefix(before)})"
        path, mark, part = target.partition("#")
        if not path or ":" in path:
            return match[0]
        return f"]({file_address(readme.parent / path, root)}{mark}{part})"

    return _LINK.sub(link, readme.read_text())


if __name__ == "__main__":
    for path, text in updated():
        if path.read_text() != text:
            path.write_text(text)
            print(path.relative_to(ROOT))
