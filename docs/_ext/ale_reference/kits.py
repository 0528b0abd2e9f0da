"""The contract kits: what an author gives, and what is tested. Read from source: no pytest."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path

import ale.testing
from ale._registry import Registry
from ale_reference.markup import Function, markdown


def parts(registry: Registry, root: Path) -> Mapping[str, str]:
    """``kits``."""
    folder = Path(inspect.getfile(ale.testing)).parent
    classes: dict[str, tuple[str, ast.ClassDef]] = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        module = ".".join(("ale.testing", *(part for part in parts if part != "__init__")))
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                classes[node.name] = (module, node)
    kits = [name for name in classes if name.endswith("Contract")]
    return {"kits": "".join("".join(_kit(*classes[name])) for name in kits)}


def _kit(module: str, node: ast.ClassDef) -> Iterator[str]:
    yield f"## `{node.name}`\n\n`from {module} import {node.name}`\n\n"
    yield f"{markdown(ast.get_docstring(node))}\n\n"
    bases = [ast.unparse(base) for base in node.bases]
    if bases:
        yield f"Includes {', '.join(f'`{base}`' for base in bases)}.\n\n"
    methods = [item for item in node.body if isinstance(item, Function)]
    fixtures = [method for method in methods if _is_fixture(method)]
    tests = [method for method in methods if method.name.startswith("test_")]
    others = [
        method
        for method in methods
        if method not in fixtures and method not in tests and not method.name.startswith("_")
    ]
    given = [method for method in (*fixtures, *others) if ast.get_docstring(method)]
    if given:
        yield "What you give, or may override:\n\n"
        for method in given:
            kind = "fixture" if method in fixtures else "method"
            yield f"- `{method.name}` ({kind}): {_one_line(method)}\n"
        yield "\n"
    if tests:
        yield "What is tested:\n\n"
        for method in tests:
            said = method.name.removeprefix("test_").replace("_", " ")
            yield f"- {said}\n"
        yield "\n"


def _is_fixture(method: Function) -> bool:
    return any("fixture" in ast.unparse(decorator) for decorator in method.decorator_list)


def _one_line(method: Function) -> str:
    return " ".join(markdown(ast.get_docstring(method)).split())
