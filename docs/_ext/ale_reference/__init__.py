"""The generated part of the documentation: `nox -s reference` writes it, and it is committed.

Pages have it between the comments ``<!-- generated: NAME -->`` and ``<!-- end -->``, in Markdown
that a code host shows as it is. `stale` says which files differ from what the code gives.

For Sphinx alone, `setup` adds the READMEs of the packages as pages, and turns the lists of links of
a page into the navigation.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ale._registry import Registration, Registry
from ale_reference import architecture, commands, components, hooks, kits, packages, records

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[2]
PACKAGES = DOCS.parent / "core" / "src" / "ale" / "_packages.json"
PICTURE = DOCS / "architecture.svg"
MAKERS: tuple[Callable[[Registry, Path], Mapping[str, str]], ...] = (
    hooks.parts,
    components.parts,
    records.parts,
    kits.parts,
    commands.parts,
    packages.parts,
    architecture.parts,
)

_PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.S)
_TREE = re.compile(r"<!-- toctree\n(.*?)-->", re.S)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


class OwnRegistry(Registry):
    """The packages of the repository: what else is installed has no place in its documentation."""

    def registrations(self, kind: str) -> list[Registration]:
        found = super().registrations(kind)
        return [each for each in found if each.distribution in packages.folders()]


def wanted() -> Mapping[Path, str]:
    """Every committed file with generated content, as it is to be."""
    registry = OwnRegistry.installed()
    if registry.failed:
        raise RuntimeError(registry.failed[0].traceback)
    made: dict[str, str] = {}
    for make in MAKERS:
        made |= make(registry, DOCS.parent)
    files = {
        path: _filled(path, text, made)
        for path in sorted(DOCS.rglob("*.md"))
        if "_build" not in path.parts and "<!-- generated: " in (text := path.read_text())
    }
    used = {name for text in files.values() for _, name, _, _ in _PART.findall(text)}
    if unused := made.keys() - used:
        raise RuntimeError(f"no page has <!-- generated: NAME --> for {sorted(unused)}")
    files[PACKAGES] = json.dumps(components.homes(registry), indent=1, sort_keys=True) + "\n"
    files[PICTURE] = architecture.picture(registry, DOCS.parent)
    return files


def stale() -> Mapping[Path, str]:
    """Of `wanted`, the files that are different now."""
    return {
        path: text
        for path, text in wanted().items()
        if not path.exists() or path.read_text() != text
    }


def _filled(path: Path, page: str, made: Mapping[str, str]) -> str:
    def part(match: "re.Match[str]") -> str:
        if match[2] not in made:
            raise RuntimeError(f"{path}: nothing generates {match[2]!r}")
        text = made[match[2]]
        headings = re.findall(r"^(#+) ", text, re.M)
        above = re.findall(r"^(#+) ", page[: match.start()], re.M)
        # A page has no heading of the third level right below its title.
        if headings and len(min(headings)) > len(above[-1]) + 1:
            text = re.sub(r"^##", "#", text, flags=re.M)
        return f"{match[1]}\n{text.rstrip()}\n\n{match[4]}"

    return _PART.sub(part, page)


def write_readmes(source: Path) -> None:
    """Make the pages that only Sphinx needs, and remove those that nothing makes any more."""
    target = source / "reference" / "generated"
    pages = {target / name: text for name, text in packages.readmes().items()}
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    for path in target.rglob("*"):
        if path.is_file() and path not in pages:
            path.unlink()


def for_sphinx(text: str) -> str:
    """A page as Sphinx is to read it: links to READMEs lead to pages, and lists are a tree."""
    text = _TREE.sub(r"```{toctree}\n:hidden:\n\n\1```", text)
    return _LINK.sub(lambda match: f"]({packages.page_of(match[1]) or match[1]})", text)


def _read(app: "Sphinx", name: str, content: list[str]) -> None:
    content[0] = for_sphinx(content[0])


def setup(app: "Sphinx") -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("builder-inited", lambda app: write_readmes(Path(app.srcdir)))
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
