"""No two modules of a package import each other."""

import ast
import runpy
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
tracked = runpy.run_path(str(Path(__file__).with_name("tracked.py")))["tracked"]
PACKAGES = [
    ROOT / "core",
    *(path.parent for path in tracked("plugins/*/*/pyproject.toml")),
]


def modules(source: Path) -> Mapping[str, Path]:
    """The modules of a source folder by their dotted names."""
    found = {}
    for path in source.rglob("*.py"):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(node: ast.AST) -> Iterator[str]:
    """What is imported at module level and in functions, but not only for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            for alias in child.names:
                yield f"{child.module}.{alias.name}"
        yield from imports(child)


def module_of(imported: str, known: Mapping[str, Path]) -> str:
    """The module that an import loads: the name itself, or what the last part is taken from."""
    return imported if imported in known else imported.rpartition(".")[0]


def mutual_imports(source: Path) -> list[tuple[str, str]]:
    known = modules(source)
    loaded = {
        name: {module_of(each, known) for each in imports(ast.parse(path.read_text()))}
        for name, path in known.items()
    }
    return [
        (one, other)
        for one in sorted(loaded)
        for other in sorted(loaded[one] & loaded.keys())
        if one < other and one in loaded[other]
    ]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_two_modules_import_each_other(package: Path) -> None:
    assert mutual_imports(package / "src") == []


def test_a_mutual_import_is_found_in_functions_but_not_for_type_checkers(tmp_path: Path) -> None:
    files = {
        "one": "from p import two\nfrom p.three import c\n",
        "two": "def f():\n    from p.one import a\n",
        "three": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.one import a\n",
    }
    (tmp_path / "p").mkdir()
    for name, text in files.items():
        (tmp_path / "p" / f"{name}.py").write_text(text)
    assert mutual_imports(tmp_path) == [("p.one", "p.two")]
