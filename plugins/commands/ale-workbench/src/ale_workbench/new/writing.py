"""Fill in the templates of a package, and write files."""

from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from ale_workbench.new.about import About
from ale_workbench.new.kinds import Kind
from ale_workbench.new.names import Names
from ale_workbench.new.workspaces import SUFFIX


def render(kind: Kind, names: Names, about: About) -> Mapping[str, str]:
    """The files of a package: path in the package, and text.

    Raises:
        ValueError: `about` has an author or a URL that can't be used.
        KeyError: a template has an unknown placeholder.
    """
    templates = files("ale_workbench.new") / "templates"
    values = {
        "distribution": names.distribution,
        "module": names.module,
        "component": names.component,
        "class_name": names.class_name,
        "entry_point": names.distribution.removeprefix("ale-"),
        "kind": kind.words,
        "A_kind": f"{'An' if kind.words[0] in 'aeiou' else 'A'} {kind.words}",
        "test_needs": "".join(f', "{each}"' for each in kind.test_needs),
        "license_name": about.license,
        **about.values(names.distribution),
    }
    values["use"] = _fill(templates / kind.name / f"use.md{SUFFIX}", values).rstrip()
    sources = {
        "pyproject.toml": templates / "common" / f"pyproject.toml{SUFFIX}",
        "README.md": templates / "common" / f"README.md{SUFFIX}",
        "CHANGELOG.md": templates / "common" / f"CHANGELOG.md{SUFFIX}",
        f"src/{names.module}/__init__.py": templates / "common" / f"init.py{SUFFIX}",
        **_modules(templates / kind.name, names),
    }
    made = {path: _fill(source, values) for path, source in sources.items()}
    license_text = about.license_text(names.distribution)
    return {**made, "LICENSE": license_text, f"src/{names.module}/py.typed": ""}


def _modules(folder: Traversable, names: Names) -> Mapping[str, Traversable]:
    """The kind's own files: tests, the modules of the package, and examples beside the README."""
    found = {entry.name.removesuffix(SUFFIX): entry for entry in folder.iterdir()}
    return {_place(name, names): found[name] for name in sorted(found) if name != "use.md"}


def _place(name: str, names: Names) -> str:
    if not name.endswith(".py"):
        return name
    return f"tests/{name}" if name.startswith("test_") else f"src/{names.module}/{name}"


def _fill(template: Traversable, values: Mapping[str, str]) -> str:
    return Template(template.read_text(encoding="utf-8")).substitute(values)


def write(root: Path, texts: Mapping[str, str]) -> tuple[Path, ...]:
    """Write files into a new folder.

    Args:
        texts: by the path in the folder.

    Returns:
        The files, in the order written.

    Raises:
        FileExistsError: the folder exists already; nothing is changed.
        OSError: it can't be written.
    """
    root.mkdir()
    written = []
    for path, text in texts.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        written.append(target)
    return tuple(written)
