"""The reference, written from the code whenever the documentation is built.

Every page under ``reference/generated/`` comes from here: hooks, components with their options,
records, contract kits, commands, JSON Schemas and the packages' own READMEs. A page is only
written when it changes, so that Sphinx rebuilds only what has changed.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from sphinx.application import Sphinx

from ale._registry import Registry
from ale_reference import (
    architecture,
    commands,
    components,
    hooks,
    kits,
    packages,
    records,
    schemas,
)

Pages = Mapping[str, str]
MAKERS: tuple[Callable[[Registry, Path], Pages], ...] = (
    hooks.pages,
    components.pages,
    records.pages,
    kits.pages,
    commands.pages,
    schemas.pages,
    packages.pages,
    architecture.pages,
)


def write_pages(source: Path) -> None:
    """Make every generated page, and remove those that nothing makes any more."""
    target = source / "reference" / "generated"
    registry = Registry.installed()
    if registry.failed:
        raise RuntimeError(registry.failed[0].traceback)
    wanted: dict[Path, str] = {}
    for make in MAKERS:
        wanted |= {target / name: text for name, text in make(registry, source.parent).items()}
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    for path in target.rglob("*"):
        if path.is_file() and path not in wanted:
            path.unlink()


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir)))
    app.connect("autodoc-process-signature", records.tidy_signature)
    app.connect("autodoc-process-docstring", records.tidy_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
